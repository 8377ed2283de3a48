"""Rounds: how an allocation of GPU time becomes GPUs (section 5).

Every round the jobs furthest behind their allocation run: the priority of job m on column j is X[m,j] over the
share of time m has spent on j since the last allocation, counted from half a round up, so that new jobs come
first. GPUs are handed out in that order, each job once, skipping what does not fit. Who keeps its GPU type keeps
its GPUs, at no cost; the others are placed largest first. GPUs nobody has an allocation for go to whoever can use
them, in order of arrival, unless the objective counts their price.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.placement import Placement
from dally.core.plan import Demand, Migrate, Plan, Preempt, Start
from dally.core.policy import View
from dally.core.states import State
from dally.core.topology import Topology
from dally.policies.placing import place_best_fit, place_within

Floats = NDArray[np.float64]
Column = tuple[str, bool]  # GPU type; whether the gang is near each other there


@dataclass(frozen=True, slots=True)
class Columns:
    """Ways to run a gang: one per GPU type, and with placement sensitivity a second one, spread."""

    all: tuple[Column, ...]
    kinds: tuple[str, ...]
    kind_of: tuple[int, ...]

    @classmethod
    def of(cls, topology: Topology, placement_sensitive: bool) -> Columns:
        kinds = topology.gpu_types
        ways = [(kind, near) for kind in kinds for near in ((True, False) if placement_sensitive else (True,))]
        return cls(tuple(ways), kinds, tuple(kinds.index(kind) for kind, _ in ways))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kind if near else f"{kind} spread" for kind, near in self.all)


class Standings:
    """Allocation and time received of every job, in arrays that one sort per round reads."""

    def __init__(self, columns: int) -> None:
        self.ids: list[str] = []
        self.index: dict[str, int] = {}
        self.gpus: list[int] = []
        self.share = np.zeros((0, columns))  # X
        self.received = np.zeros((0, columns))  # seconds since the last allocation
        self.runs = np.zeros((0, columns), dtype=bool)  # whether it makes progress there at all

    def add(self, job_id: str, gpus: int, share: Floats, runs: NDArray[np.bool_]) -> None:
        place = len(self.ids)
        if place == len(self.share):
            more = max(16, place)
            blank = np.zeros((more, self.share.shape[1]))
            self.share, self.received = np.vstack([self.share, blank]), np.vstack([self.received, blank])
            self.runs = np.vstack([self.runs, blank.astype(bool)])
        self.ids.append(job_id)
        self.index[job_id] = place
        self.gpus.append(gpus)
        self.share[place], self.received[place], self.runs[place] = share, 0.0, runs

    def remove(self, job_ids: set[str]) -> None:
        """Those who have gone; the others keep their order."""
        keep = [place for place, job_id in enumerate(self.ids) if job_id not in job_ids]
        self.ids, self.gpus = [self.ids[p] for p in keep], [self.gpus[p] for p in keep]
        self.index = {job_id: place for place, job_id in enumerate(self.ids)}
        self.share, self.received, self.runs = self.share[keep], self.received[keep], self.runs[keep]

    def order(self, half_round: float, conserving: bool) -> list[int]:
        """(job, column) cells as job × columns + column, the most behind first.

        Time received counts from half a round up: who has had none is first among its like, but a sliver of an
        allocation does not count as infinitely far behind.
        """
        count = len(self.ids)
        behind = self.share[:count] / (self.received[:count] + half_round)
        behind = np.where(self.runs[:count], behind, -1.0).ravel()
        order = np.argsort(-behind, kind="stable")
        wanted = int(np.count_nonzero(behind >= 0.0 if conserving else behind > 0.0))
        found: list[int] = order[:wanted].tolist()
        return found


def choose(standings: Standings, columns: Columns, order: list[int], room: list[int],
           settled: dict[str, int]) -> dict[str, int]:  # fmt: skip
    """Who runs in which column: down the order, each job once, what does not fit is skipped; `settled` stay anyway."""
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
    waiting = len(ids) - len(chosen)
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
            if total == 0 or waiting == 0:
                break
    return chosen


def room_of(view: View, columns: Columns, running: dict[str, int]) -> list[int]:
    """GPUs of each type that are up and not being vacated: the free ones and those jobs hold."""
    pools, machines, job_of = view.free.pools, view.topology.machines, view.job
    room = {kind: pools[kind].total for kind in columns.kinds}
    for job_id in running:
        placement = job_of(job_id).placement
        if placement is not None:
            room[machines[placement.slices[0][0]].gpu_type] += placement.gpus
    return list(room.values())


def kind_index(view: View, columns: Columns, job: ActiveJob) -> int:
    assert job.placement is not None
    return columns.kinds.index(view.topology.machines[job.placement.slices[0][0]].gpu_type)


def still_loading(view: View, running: dict[str, int], now: float) -> dict[str, int]:
    """Jobs that have not made progress yet on the GPUs they were given: to take those now would make them pay the
    loading again, and with rounds shorter than that nobody would ever get anywhere."""
    return {job_id: column for job_id, column in running.items()
            if (job := view.job(job_id)).progress_from > job.last_change and job.progress_from >= now
            and job.placement is not None}  # fmt: skip


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
        for job_id in running:
            job = view.job(job_id)
            if job.state is not State.RUNNING or job.placement is None:
                continue
            column = chosen.get(job_id)
            if column is None:
                plan.append(Preempt(job_id))
                leaving.append(job)
            elif self._stays(view, job, column):
                after[job_id] = column
            else:
                moving.append((-job.gpus, job.number, job_id))
                leaving.append(job)
        for job_id in chosen:
            job = view.job(job_id)
            if job.state is State.WAITING:
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
        if view.topology.machines[job.placement.slices[0][0]].gpu_type != kind:
            return False
        return not (self.strict and near) or job.placement.level(view.topology) <= self._innermost(job.gpus, kind)

    def _place(self, free: FreeGpus, job: ActiveJob, column: int) -> Placement | None:
        kind, near = self.columns.all[column]
        if self.strict and near:
            level = self._innermost(job.gpus, kind)
            return place_within(free, free.pools[kind], job.gpus, level, tight=True)
        return place_best_fit(free, Demand(job.gpus, kind))

    def _innermost(self, gpus: int, kind: str) -> int:
        """The innermost level at which the empty cluster has room for the gang: what "consolidated" means for it."""
        key = (gpus, kind)
        if key not in self._levels:
            pool = FreeGpus(self.topology).pools[kind]
            fitting = [level for level in range(len(self.topology.levels)) if pool.domains_with(level, gpus)]
            self._levels[key] = min(fitting, default=len(self.topology.levels) - 1)
        return self._levels[key]
