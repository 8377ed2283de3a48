"""GPUs kept together for a job that has waited out of all proportion, and who may use them until it begins."""

from __future__ import annotations


class Kept:
    """From `begin` on the job has the GPUs it needs, as far as can be told, and `spare` more are free. Until then
    whoever is through by then may use what comes free, and whoever fits beside the job may stay (EASY backfill, Lifka,
    JSSPP'95): to keep GPUs idle for it would put off everybody else and get it nothing."""

    def __init__(self, begin: float, spare: int) -> None:
        self.begin, self.spare = begin, spare

    def leaves(self, gpus: int, end: float) -> bool:
        """Whether there is something in it for a gang that would run until then."""
        return end <= self.begin or gpus <= self.spare

    def take(self, gpus: int, end: float) -> None:
        if end > self.begin:
            self.spare -= gpus
