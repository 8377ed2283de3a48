"""Rounds: how an allocation of GPU time becomes GPUs (section 5).

Every round the jobs furthest behind their allocation run: the priority of job m on column j is X[m,j] over the
share of time m has spent on j since the last allocation, counted from half a round up, so that new jobs come
first. GPUs are handed out in that order, each job once, skipping what does not fit. Who keeps its GPU type keeps
its GPUs, at no cost; the others are placed largest first. GPUs nobody has an allocation for go to whoever can use
them, in order of arrival, unless the objective counts their price.
"""

from __future__ import annotations

from collections.abc import Collection

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.placement import Placement, level_of
from dally.core.plan import Demand, Migrate, Plan, Preempt, Start
from dally.core.policy import View
from dally.core.states import State
from dally.core.topology import Topology
from dally.policies.gavel.columns import Columns, gpu_type_of
from dally.policies.gavel.standings import Standings
from dally.policies.placing import place_best_fit, place_within


def choose(standings: Standings, columns: Columns, order: list[int], room: list[int],
           settled: dict[str, int], away: Collection[str] = ()) -> dict[str, int]:  # fmt: skip
    """Who runs in which column: down the order, each job once, what does not fit is skipped; `settled` stay anyway,
    and those sent `away` are not in it."""
    width = len(columns.all)
    kind_of, gpus, ids = columns.kind_of, standings.gpus, standings.ids
    chosen = dict(settled)
    left, total = list(room), sum(room)
    taken = [False] * len(ids)
    for job_id, column in settled.items():
        place = standings.index[job_id]
        taken[place] = True
        left[kind_of[column]] -= gpus[place]
        total -= gpus[place]
    for job_id in away:
        taken[standings.index[job_id]] = True
    waiting = len(ids) - len(chosen) - len(away)
    for cell in order:
        place = cell // width
        if taken[place]:
            continue
        column = cell - place * width
        size, kind = gpus[place], kind_of[column]
        if left[kind] >= size:
            taken[place] = True
            left[kind] -= size
            total -= size
            waiting -= 1
            chosen[ids[place]] = column
            if total <= 0 or waiting == 0:
                break
    return chosen


def look(view: View, columns: Columns, running: dict[str, int], now: float) -> tuple[list[int], dict[str, int]]:
    """GPUs of each type that are up and not being vacated, the free ones and those jobs hold; and who keeps its own
    whatever the order says."""
    pools, machines, job_of = view.free.pools, view.topology.machines, view.job
    room = {kind: pools[kind].total for kind in columns.kinds}
    only = columns.kinds[0] if len(columns.kinds) == 1 else None
    settled: dict[str, int] = {}
    for job_id, column in running.items():
        job = job_of(job_id)
        placement = job.placement
        if placement is None:
            continue
        if placement.slices:
            room[machines[placement.slices[0][0]].gpu_type if only is None else only] += placement.gpus
        if _keeps(job, now):
            settled[job_id] = column
    return list(room.values()), settled


def settled_in(view: View, running: dict[str, int], now: float) -> dict[str, int]:
    """Jobs that keep their GPUs whatever the order says."""
    jobs = [(view.job(job_id), column) for job_id, column in running.items()]
    return {job.id: column for job, column in jobs if job.placement is not None and _keeps(job, now)}


def _keeps(job: ActiveJob, now: float) -> bool:
    """Whom nobody may move: it is just being started, contact with it is lost, or it must not be preempted. And who has
    not made progress yet on the GPUs it was given: to take those now would make it pay the loading again, and with
    rounds shorter than that nobody would ever get anywhere."""
    return not job.movable or (job.progress_from >= now and job.progress_from > job.last_change)


class Placer:
    """Turns a choice into starts, moves and stops on concrete GPUs."""

    def __init__(self, topology: Topology, columns: Columns, strict: bool) -> None:
        self.topology, self.columns, self.strict = topology, columns, strict
        self._levels: dict[tuple[int, str], int] = {}

    def carry(self, view: View, running: dict[str, int], chosen: dict[str, int]) -> tuple[Plan, dict[str, int]]:
        """The plan, and who runs in which column once it is carried out."""
        plan: Plan = []
        after: dict[str, int] = {}
        moving: list[tuple[int, int, str]] = []
        leaving: list[ActiveJob] = []
        job_of, alike = view.job, len(self.columns.all) == 1  # one way to run: who is chosen has it already
        for job_id, before in running.items():
            job = job_of(job_id)
            if job.placement is None:
                continue
            column = chosen.get(job_id)
            if (alike and column is not None) or not job.movable:
                after[job_id] = before if column is None else column
            elif column is None:
                plan.append(Preempt(job_id))
                leaving.append(job)
            elif self._stays(view, job, column):
                after[job_id] = column
            else:
                moving.append((-job.gpus, job.number, job_id))
                leaving.append(job)
        for job_id in chosen:
            if job_id not in after and (job := job_of(job_id)).state is State.WAITING:
                moving.append((-job.gpus, job.number, job_id))
        if not moving:
            return plan, after
        with view.free.trial() as free:
            for job in leaving:
                assert job.placement is not None
                free.give(job.placement)
            stuck: list[ActiveJob] = []
            for _, _, job_id in sorted(moving):
                job, column = view.job(job_id), chosen[job_id]
                placement = self._place(free, job, column)
                if placement is None:
                    stuck.append(job)
                    continue
                free.take(placement)
                after[job_id] = column
                plan.append(Migrate(job_id, placement) if job.placement is not None else Start(job_id, placement))
            for job in stuck:  # no place near enough: who runs stays where it was, if that is still there
                if job.placement is not None:
                    if all(free.has(machine, mask) for machine, mask in job.placement.slices):
                        free.take(job.placement)
                        after[job.id] = chosen[job.id]
                    else:
                        plan.append(Preempt(job.id))
        return plan, after

    def fill(self, view: View, standings: Standings, order: list[int], plan: Plan,
             after: dict[str, int], leaving: set[str]) -> None:  # fmt: skip
        """GPUs left over go to those next in the order that fit where they are, adding to plan and `after`."""
        width = len(self.columns.all)
        with view.free.trial() as free:
            for action in plan:
                if isinstance(action, (Preempt, Migrate)):
                    held = view.job(action.job).placement
                    assert held is not None
                    free.give(held)
            for action in plan:
                if isinstance(action, (Start, Migrate)):
                    free.take(action.placement)
            for cell in order:
                if free.total == 0:
                    break
                place, column = divmod(cell, width)
                job_id = standings.ids[place]
                if job_id in after or job_id in leaving or view.job(job_id).state is not State.WAITING:
                    continue
                placement = self._place(free, view.job(job_id), column)
                if placement is not None:
                    free.take(placement)
                    after[job_id] = column
                    plan.append(Start(job_id, placement))

    def _stays(self, view: View, job: ActiveJob, column: int) -> bool:
        assert job.placement is not None
        kind, near = self.columns.all[column]
        return gpu_type_of(view, job) == kind and (not near or job.demand.shaped or self.is_near(job.placement, kind))

    def is_near(self, placement: Placement, kind: str) -> bool:
        """Whether these GPUs are as near each other as "consolidated" asks for, where that is asked."""
        return not self.strict or level_of(placement, self.topology) <= self._innermost(placement.gpus, kind)

    def _place(self, free: FreeGpus, job: ActiveJob, column: int) -> Placement | None:
        kind, near = self.columns.all[column]
        if self.strict and near and not job.demand.shaped:
            level = self._innermost(job.gpus, kind)  # not outside a level it must be in, or its rate is 0
            return place_within(free, free.pools[kind], job.gpus, level, tight=True)
        return place_best_fit(free, Demand(job.gpus, kind, job.demand.where))

    def _innermost(self, gpus: int, kind: str) -> int:
        """The innermost level at which the empty cluster has room for the gang: what "consolidated" means for it."""
        key = (gpus, kind)
        if key not in self._levels:
            pool = FreeGpus(self.topology).pools[kind]
            fitting = [level for level in range(len(self.topology.levels)) if pool.domains_with(level, gpus)]
            self._levels[key] = min(fitting, default=len(self.topology.levels) - 1)
        return self._levels[key]
