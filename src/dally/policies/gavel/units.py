"""Rounds whose units are jobs or pairs: who is next, and how pairs get, keep and leave the same GPUs (section 5).

A unit that stays keeps its GPUs and nothing is done. A pair that forms does so where one of the two runs, if that is
a GPU type of its allocation, so that one job moves and not two; of a pair that parts one job keeps the GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.placement import Placement
from dally.core.plan import Migrate, Plan, Preempt, Start
from dally.core.policy import View
from dally.core.sharing import Share
from dally.core.states import State
from dally.policies.gavel.allocation.problem import Row
from dally.policies.gavel.columns import Columns, gpu_type_of
from dally.policies.gavel.job_standings import Standings
from dally.policies.gavel.rounds import Placer
from dally.policies.gavel.standings import PairStandings

Units = dict[Row, int]  # jobs that run as one, and their column


def choose(view: View, jobs: Standings, pairs: PairStandings, columns: Columns, cells: list[int], room: list[int],
           settled: Units, away: Iterable[str] = ()) -> Units:  # fmt: skip
    """Down the order, each job in one unit, what does not fit is skipped; `settled` stay anyway, and those sent
    `away` are not in it."""
    width, count, kind_of = len(columns.all), len(jobs.ids), columns.kind_of
    index, gpus = jobs.index, jobs.gpus
    taken = [view.job(job_id).state not in (State.WAITING, State.RUNNING) for job_id in jobs.ids]
    chosen, left = dict(settled), list(room)
    for row, column in settled.items():
        left[kind_of[column]] -= gpus[index[row[0]].place]
        for job_id in row:
            taken[index[job_id].place] = True
    for job_id in away:
        taken[index[job_id].place] = True
    total = sum(left)
    for cell in cells:
        unit, column = divmod(cell, width)
        row = (jobs.ids[unit],) if unit < count else pairs.rows[unit - count]
        places = [index[job_id].place for job_id in row]
        size = gpus[places[0]]
        if left[kind_of[column]] < size or any(taken[place] for place in places):
            continue
        for place in places:
            taken[place] = True
        left[kind_of[column]] -= size
        total -= size
        chosen[row] = column
        if total <= 0:
            break
    return chosen


def room_of(view: View, columns: Columns, running: Units) -> list[int]:
    """GPUs of each type that are up and not being vacated; those of a pair count once."""
    room = [view.free.pools[kind].total for kind in columns.kinds]
    for row in running:
        job = view.job(row[0])
        kind = gpu_type_of(view, job)
        if kind is not None:
            room[columns.kinds.index(kind)] += job.gpus
    return room


class UnitPlacer(Placer):
    """Turns a choice of units into starts, moves and stops on concrete GPUs."""

    def carry_units(self, view: View, running: Units, chosen: Units,
                    spare: Iterable[tuple[str, int]] = ()) -> tuple[Plan, Units]:  # fmt: skip
        """The plan, and which units run in which column once it is carried out. GPUs left over go to the first of the
        `spare` jobs that wait and find a place near enough."""
        held: dict[str, Placement] = {}
        fixed: dict[Row, None] = {}  # nobody may move one of them: they stay as they are
        for row in running:
            for job in map(view.job, row):
                if job.placement is None:
                    continue
                if not job.movable:
                    fixed[row] = None
                else:
                    held[job.id] = job.placement
        after: Units = {row: running[row] for row in fixed}
        for row in fixed:
            for job_id in row:
                held.pop(job_id, None)
        chosen = {row: column for row, column in chosen.items() if row not in fixed}
        homes = self._homes(view, chosen, held)
        wanted = {job_id for row in chosen for job_id in row}
        plan: Plan = [Preempt(job_id) for job_id in held if job_id not in wanted]
        moving: list[tuple[int, int, Row]] = []
        for row, column in chosen.items():
            home = homes.get(row)
            if home is None:
                first = view.job(row[0])
                moving.append((-first.gpus, first.number, row))
                continue
            after[row] = column
            there = next(job_id for job_id in row if held.get(job_id) == home)
            plan += [_go(view.job(job_id), home, there) for job_id in row if held.get(job_id) != home]
        if moving or spare:
            with view.free.trial() as free:
                for placement in dict.fromkeys(held.values()):
                    if placement not in homes.values():
                        free.give(placement)
                self._settle(view, free, [(row, chosen[row]) for _, _, row in sorted(moving)], held, plan, after)
                self._fill(view, free, spare, plan, after)
        return plan, after

    def _homes(self, view: View, chosen: Units, held: dict[str, Placement]) -> dict[Row, Placement]:
        """Units that find themselves, or one of their jobs, on GPUs they may have: those who stay as they are first."""
        homes: dict[Row, Placement] = {}
        claimed: set[Placement] = set()
        together: dict[Placement, list[str]] = {}
        for job_id, placement in held.items():
            together.setdefault(placement, []).append(job_id)
        for exactly in (True, False):
            for row, column in chosen.items():
                for job_id in () if row in homes else row:
                    here = held.get(job_id)
                    if here is None or here in claimed or (exactly and set(together[here]) != set(row)):
                        continue
                    if self._stays(view, view.job(job_id), column):
                        homes[row] = here
                        claimed.add(here)
                        break
        return homes

    def _settle(self, view: View, free: FreeGpus, moving: list[tuple[Row, int]], held: dict[str, Placement],
                plan: Plan, after: Units) -> None:  # fmt: skip
        """GPUs for those who have none to stay on. Where there is no place near enough, who runs stays where it was,
        alone if need be, and is stopped if that is taken."""
        stuck: list[tuple[Row, int]] = []
        for row, column in moving:
            placement = self._place(free, view.job(row[0]), column)
            if placement is None:
                stuck.append((row, column))
                continue
            free.take(placement)
            after[row] = column
            plan += [_go(view.job(job_id), placement, row[0]) for job_id in row]
        for row, column in stuck:
            here = [job_id for job_id in row if job_id in held]
            if len(here) == 2 and held[here[0]] == held[here[1]] and _is_free(free, held[here[0]]):
                free.take(held[here[0]])
                after[row] = column
                continue
            for job_id in here:
                if _is_free(free, held[job_id]):
                    free.take(held[job_id])
                    after[job_id,] = column
                else:
                    plan.append(Preempt(job_id))

    def _fill(self, view: View, free: FreeGpus, spare: Iterable[tuple[str, int]], plan: Plan, after: Units) -> None:
        running = {job_id for row in after for job_id in row}
        for job_id, column in spare:
            if free.total == 0:
                break
            job = view.job(job_id)
            if job.state is State.WAITING and job_id not in running:
                placement = self._place(free, job, column)
                if placement is not None:
                    free.take(placement)
                    running.add(job_id)
                    after[job_id,] = column
                    plan.append(Start(job_id, placement))


def _is_free(free: FreeGpus, placement: Placement) -> bool:
    return all(free.has(machine, mask) for machine, mask in placement.slices)


def _go(job: ActiveJob, placement: Placement, beside: str) -> Start | Migrate:
    """To these GPUs, and into the turn of the job that is there unless that is itself."""
    share = None if beside == job.id else Share(beside=beside)
    move = Migrate if job.placement is not None else Start
    return move(job.id, placement, share=share)
