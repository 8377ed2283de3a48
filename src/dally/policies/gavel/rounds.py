"""Rounds: how an allocation of GPU time becomes GPUs (section 5).

Every round the jobs furthest behind their allocation run: the priority of job m on column j is X[m,j] over the
share of time m has spent on j since the last allocation, counted from half a round up, so that new jobs come
first. GPUs are handed out in that order, each job once, skipping what does not fit. Who keeps its GPU type keeps
its GPUs, at no cost; the others are placed largest first. GPUs nobody has an allocation for go to whoever can use
them, in order of arrival, unless the objective counts their price.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.placement import Placement, level_of
from dally.core.plan import Demand, Migrate, Plan, Preempt, Start
from dally.core.policy import View
from dally.core.states import State
from dally.core.topology import Topology
from dally.policies.gavel.columns import Columns, gpu_type_of
from dally.policies.gavel.job_standings import Standings
from dally.policies.gavel.known import Known
from dally.policies.placing import place_best_fit, place_within

NOWHERE: Final = -1  # the column of who does not run


class Choice:
    """Who runs in which column of the round to come, by place in the standings."""

    def __init__(self, jobs: int) -> None:
        self.columns = [NOWHERE] * jobs
        self.count = 0


class Holders:
    """Who has GPUs as a round begins, in the order they got them, and what there is to be dealt out."""

    def __init__(self) -> None:
        self.known: list[Known] = []
        self.columns: list[int] = []  # in which each of them runs
        self.settled: list[int] = []  # which of them keep their GPUs whatever the order says
        self.room: list[int] = []  # GPUs of each type that are up and not being vacated: free, or held by these


def choose(standings: Standings, columns: Columns, order: list[int], holders: Holders,
           away: Collection[str] = ()) -> Choice:  # fmt: skip
    """Down the order, each job once, what does not fit is skipped; the settled stay anyway, and those sent `away` are
    not in it."""
    width = standings.width
    kind_of, gpus = columns.kind_of, standings.gpus
    left, total = list(holders.room), sum(holders.room)
    taken = [False] * len(gpus)
    choice = Choice(len(gpus))
    chosen = choice.columns
    for at in holders.settled:
        place, column = holders.known[at].place, holders.columns[at]
        taken[place] = True
        chosen[place] = column
        left[kind_of[column]] -= gpus[place]
        total -= gpus[place]
    for job_id in away:
        taken[standings.index[job_id].place] = True
    choice.count = len(holders.settled)
    waiting = len(gpus) - choice.count - len(away)
    for cell in order:
        place = cell if width == 1 else cell // width
        if taken[place]:
            continue
        column = cell - place * width
        size, kind = gpus[place], 0 if width == 1 else kind_of[column]
        room = left[kind]
        if room >= size:
            taken[place] = True
            left[kind] = room - size
            total -= size
            waiting -= 1
            choice.count += 1
            chosen[place] = column
            if total <= 0 or waiting == 0:
                break
    return choice


def look(view: View, standings: Standings, columns: Columns, running: dict[str, int], now: float) -> Holders:
    """Who holds GPUs, and the GPUs there are for the round."""
    pools, machines = view.free.pools, view.topology.machines
    kinds = columns.kinds
    room = [pools[kind].total for kind in kinds]
    alike = len(kinds) == 1
    holders = Holders()
    index = standings.index
    known = holders.known = [index[job_id] for job_id in list(running)]
    holders.columns = list(running.values())
    gpus = 0  # held, where they are all of one type
    for at, each in enumerate(known):
        job = each.job
        placement = job.placement
        if placement is None:
            continue
        if alike:
            gpus += placement.gpus
        elif placement.slices:
            room[kinds.index(machines[placement.slices[0][0]].gpu_type)] += placement.gpus
        if _keeps(job, now):
            holders.settled.append(at)
    if alike:
        room[0] += gpus
    holders.room = room
    return holders


def is_dealt(holders: Holders, choice: Choice) -> bool:
    """Whether those who were chosen are those who run, each in its column."""
    chosen, columns = choice.columns, holders.columns
    same = choice.count == len(columns)
    for at, known in enumerate(holders.known):
        same = same and chosen[known.place] == columns[at]
        if not same:
            break
    return same


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

    def carry(self, view: View, standings: Standings, running: dict[str, int], holders: Holders,
              choice: Choice) -> Plan:  # fmt: skip
        """The plan; `running` becomes who runs in which column once it is carried out."""
        plan: Plan = []
        moving: list[tuple[int, int, str]] = []
        leaving: list[ActiveJob] = []
        lost: list[str] = []  # who runs no more, or elsewhere
        index, chosen = standings.index, choice.columns
        waits = [column != NOWHERE for column in chosen]  # who was chosen and has no GPUs
        alike = len(self.columns.all) == 1  # one way to run: who is chosen has it already
        for at, known in enumerate(holders.known):
            job, place = known.job, known.place
            if job.placement is None:
                lost.append(job.id)
                continue
            waits[place] = False
            column = chosen[place]
            if column == NOWHERE:
                if job.movable:
                    plan.append(Preempt(job.id))
                    leaving.append(job)
                    lost.append(job.id)
            elif alike or not job.movable or self._stays(view, job, column):
                if column != holders.columns[at]:
                    running[job.id] = column
            else:
                moving.append((-job.gpus, job.number, job.id))
                leaving.append(job)
                lost.append(job.id)
        for job_id in lost:
            del running[job_id]
        for place, wait in enumerate(waits):
            if wait:
                job = standings.known[place].job
                if job.state is State.WAITING:
                    moving.append((-job.gpus, job.number, job.id))
        if moving:
            moving.sort()
            self._put(view, [(job_id, chosen[index[job_id].place]) for _, _, job_id in moving], leaving, running, plan)
        return plan

    def _put(self, view: View, moving: list[tuple[str, int]], leaving: list[ActiveJob], running: dict[str, int],
             plan: Plan) -> None:  # fmt: skip
        """Places for those who move, among what is free and what those leave who go."""
        with view.free.trial() as free:
            for job in leaving:
                assert job.placement is not None
                free.give(job.placement)
            stuck: list[tuple[ActiveJob, int]] = []
            for job_id, column in moving:
                job = view.job(job_id)
                placement = self._place(free, job, column)
                if placement is None:
                    stuck.append((job, column))
                    continue
                free.take(placement)
                running[job_id] = column
                plan.append(Migrate(job_id, placement) if job.placement is not None else Start(job_id, placement))
            for job, column in stuck:  # no place near enough: who runs stays where it was, if that is still there
                if job.placement is not None:
                    if all(free.has(machine, mask) for machine, mask in job.placement.slices):
                        free.take(job.placement)
                        running[job.id] = column
                    else:
                        plan.append(Preempt(job.id))

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
