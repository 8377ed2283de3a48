"""What policies derive from: the answers of one that says nothing else. Never compiled: policies are plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dally.core.active import ActiveJob
from dally.core.journal import Entry
from dally.core.memory import Memory, NoMemory
from dally.core.ranking import Rank

if TYPE_CHECKING:
    from dally.core.policy import View


class PolicyBase:
    """What a policy is that says nothing else: it neither preempts nor shares, uses nothing it is told of the
    future, and remembers nothing."""

    name: str = "policy"
    preempts: bool = False
    shares: bool = False
    chooses_gpu_type: bool = False
    heeds_wishes: bool = False
    uses: frozenset[str] = frozenset()

    def new_memory(self) -> Memory:
        return NoMemory()

    def attach(self, view: View, memory: Any) -> None:
        return None

    def hear(self, view: View, memory: Any, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        return ()

    def rank(self, view: View, memory: Any, job: ActiveJob, now: float) -> Rank:
        return Rank(job.job.submit_time)

    def notes(self, memory: Any) -> tuple[str, ...]:
        return ()
