"""Which pairs of jobs are worth a row of the allocation: those that gain, a few for every job (section 3.1).

Two jobs of one size on the same GPUs gain where their rates there, each over its rate alone, add up to more than 1:
one after the other they would get exactly 1. Among n jobs there are n²/2 pairs; so every job is in at most `most`
of them, and pairs are taken in order of what they gain. What is known of a pair is known of all jobs of its two
kinds (model, gang, GPU type asked for), so kinds are compared, not jobs, and the jobs of two kinds are dealt to each
other in rotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

from dally.core.active import ActiveJob
from dally.core.policy import View
from dally.policies.gavel.allocation.problem import PairRow
from dally.policies.gavel.allotting import Member
from dally.policies.gavel.columns import Columns
from dally.policies.gavel.memory import Kind, PaperMemory, Together


class Partners:
    """Finds the pairs; what the estimates say of two kinds of jobs is asked once and remembered: of other jobs of
    the same kinds they might say it with another last digit."""

    def __init__(self, columns: Columns, workers: Sequence[int], above: float, most: int) -> None:
        self.columns, self.workers, self.above, self.most = columns, workers, above, most

    def rows(self, view: View, memory: PaperMemory, listed: Sequence[Member]) -> tuple[PairRow, ...]:
        """Pairs of the members, by their positions: at most `most` with any of them."""
        kinds: dict[Kind, list[int]] = {}
        for place, member in enumerate(listed):
            if member.job.demand.bound:
                continue  # ours: who must be in certain places goes alone, it could not follow every partner
            kinds.setdefault(kind_of(member.job), []).append(place)
        found: list[tuple[float, Kind, Kind, Together]] = []
        for one, other in combinations_with_replacement(kinds, 2):
            if one[1] == other[1] and (one != other or len(kinds[one]) > 1):
                together = memory.beside.get((one, other))
                if together is None:
                    jobs = listed[kinds[one][0]].job, listed[kinds[other][-1]].job
                    together = memory.beside[one, other] = self._together(view, *jobs)
                if together.gain > 0:
                    found.append((together.gain, one, other, together))
        found.sort(key=lambda each: -each[0])  # stable: among equals the older kinds first
        made: list[PairRow] = []
        left = [self.most] * len(listed)
        for _, one, other, together in found:
            ours, theirs = ([place for place in kinds[kind] if left[place]] for kind in (one, other))
            for first, second in dealt(ours, theirs, left, same=one == other):
                made.append(PairRow(first, second, self._rates(listed[first], together.first),
                                    self._rates(listed[second], together.second)))  # fmt: skip
        return tuple(made)

    def _rates(self, member: Member, kept: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(rate * kept[kind] for rate, kind in zip(member.known.rates, self.columns.kind_of, strict=True))

    def _together(self, view: View, job: ActiveJob, beside: ActiveJob) -> Together:
        kept = [self._kept(view, job, beside, kind) for kind in self.columns.kinds]
        gains = [max(0.0, a + b - 1.0) * gpus for (a, b), gpus in zip(kept, self.workers, strict=True)]
        return Together(tuple(a for a, _ in kept), tuple(b for _, b in kept), sum(gains) / sum(self.workers))

    def _kept(self, view: View, job: ActiveJob, beside: ActiveJob, kind: str) -> tuple[float, float]:
        """Rates together over rates alone; (0, 0) where they do not fit, are unknown, or gain too little."""
        estimates = view.estimates
        if any(asked not in (None, kind) for asked in (job.job.gpu_type, beside.job.gpu_type)):
            return 0.0, 0.0
        if view.fits((job.job, beside.job), kind) is not None:
            return 0.0, 0.0
        pair = estimates.together(job.job, beside.job, kind)
        alone = estimates.throughput(job.job, kind), estimates.throughput(beside.job, kind)
        if pair is None or not alone[0] or not alone[1] or min(pair) <= 0:
            return 0.0, 0.0
        kept = pair[0] / alone[0], pair[1] / alone[1]
        return kept if sum(kept) > self.above else (0.0, 0.0)


def kind_of(job: ActiveJob) -> Kind:
    return job.job.model, job.gpus, job.job.gpu_type


def dealt(ours: list[int], theirs: list[int], left: list[int], *, same: bool) -> list[tuple[int, int]]:
    """Pairs across two lists, everybody's next partner one place further on; `left` says how many each may have."""
    made: list[tuple[int, int]] = []
    if same:
        for step in range(1, len(ours) // 2 + 1):
            if not any(left[place] for place in ours):
                break
            for i, first in enumerate(ours[: step] if 2 * step == len(ours) else ours):
                second = ours[(i + step) % len(ours)]
                if left[first] and left[second]:
                    made.append((min(first, second), max(first, second)))
                    left[first] -= 1
                    left[second] -= 1
        return made
    if len(ours) < len(theirs):
        return [(first, second) for second, first in dealt(theirs, ours, left, same=False)]
    for step in range(len(theirs)):
        if not any(left[place] for place in theirs) or not any(left[place] for place in ours):
            break
        for i, first in enumerate(ours):
            second = theirs[(i + step) % len(theirs)]
            if left[first] and left[second]:
                made.append((first, second))
                left[first] -= 1
                left[second] -= 1
    return made
