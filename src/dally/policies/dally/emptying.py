"""When machines come to have so many GPUs free, by the ends expected of running jobs: kept from plan to plan.

An event changes this of a machine or two, so nobody looks through all ends again for a gang that waits on and on. What
is kept follows the jobs that something was said of; who asks looks at these first, and at machines with other free
GPUs. Nothing of it is remembered: where a plan came to nothing, those it spoke of are looked at once more.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Container, Iterable
from typing import Final

from dally.core.free import FreeGpus
from dally.core.policy import View
from dally.policies.dally.ends import Ends
from dally.policies.dally.tiers import Tiers

_MANY: Final = 4096  # jobs that something was said of since somebody asked: it is cheaper to look at all of them anew
_KEPT: Final = 16  # pairs of a share and a tier


class Fits:
    """When each machine of a GPU type has a share free, by domain of a tier, the soonest first; −∞: now."""

    __slots__ = ("_of", "domains", "inside", "share")

    def __init__(self, share: int, domains: list[int]) -> None:
        self.share, self.domains = share, domains
        self._of: dict[int, float] = {}
        self.inside: dict[int, list[float]] = {}

    def put(self, machine: int, time: float) -> None:
        before = self._of.get(machine)
        if before == time:
            return
        times = self.inside.setdefault(self.domains[machine], [])
        if before is not None:
            del times[bisect_left(times, before)]
        self._of[machine] = time
        insort(times, time)


class Emptying:
    """Of one layout of the cluster. `late`: jobs of which the plan in the making has said something already."""

    def __init__(self, view: View, tiers: Tiers, ends: Ends, late: Iterable[str]) -> None:
        self._view, self._tiers, self._ends = view, tiers, ends
        self.layout = view.layout
        self._up = [machine.index not in view.down for machine in view.topology.machines]
        self._masks = list(view.free.masks)  # as they were when somebody last asked
        self._there: list[dict[str, tuple[float, int]]] = [{} for _ in self._masks]  # end and GPUs of a job
        self._where: dict[str, list[int]] = {}  # machines of a job that is there
        self._changed: set[str] = set()  # jobs that something was said of
        self._seen = set(late)  # of these, those that were looked at, at this moment
        self._fits: dict[tuple[int, str, int], Fits] = {}
        touched: set[int] = set()
        for job_id in ends.of:
            self._follow(job_id, (), touched)

    def note(self, job_id: str) -> bool:
        """Something was said of a job; False where that is too much to keep."""
        self._changed.add(job_id)
        return len(self._changed) <= _MANY

    def begin(self) -> None:
        """Another moment: what a plan has said since the last one may have come to nothing."""
        if self._seen:
            self._changed |= self._seen
            self._seen.clear()

    def fits(self, share: int, kind: str, tier: int) -> Fits:
        """As things were when `look` was last called."""
        key = (share, kind, tier)
        found = self._fits.get(key)
        if found is None:
            if len(self._fits) >= _KEPT:
                self._fits.clear()
            found = self._fits[key] = Fits(share, self._tiers.domains[tier])
            for machine, other in enumerate(self._tiers.kinds):
                if other == kind:
                    found.put(machine, self._time(machine, share))
        return found

    def look(self, free: FreeGpus, gone: Container[str]) -> None:
        """What has changed, where some jobs count as gone."""
        touched: set[int] = set()
        for job_id in self._changed:
            self._follow(job_id, gone, touched)
        self._seen |= self._changed
        self._changed = set()
        masks, known = free.masks, self._masks
        for machine in range(len(known)):
            if masks[machine] != known[machine]:
                known[machine] = masks[machine]
                touched.add(machine)
        for (_, kind, _), fits in self._fits.items():
            for machine in touched:
                if self._tiers.kinds[machine] == kind:
                    fits.put(machine, self._time(machine, fits.share))

    def _follow(self, job_id: str, gone: Container[str], touched: set[int]) -> None:
        """A job to where it is now."""
        known = self._where.get(job_id)
        if known is not None:
            del self._where[job_id]
            for machine in known:
                del self._there[machine][job_id]
                touched.add(machine)
        expected = self._ends.of.get(job_id)
        if expected is None or job_id in gone:
            return
        placement = self._view.job(job_id).placement
        if placement is None:
            return
        machines = []
        for machine, mask in placement.slices:
            self._there[machine][job_id] = (expected.end, mask.bit_count())
            machines.append(machine)
            touched.add(machine)
        self._where[job_id] = machines

    def _time(self, machine: int, share: int) -> float:
        """When a machine has so many GPUs free; ∞: at no time that can be told."""
        free = self._masks[machine].bit_count()
        if free >= share:
            return -math.inf if self._up[machine] else math.inf
        for end, gpus in sorted(self._there[machine].values()):
            free += gpus
            if free >= share:
                return end
        return math.inf
