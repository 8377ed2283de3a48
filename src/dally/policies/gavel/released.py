"""The released simulator's rounds, rule by rule, to check ours against its results.

A round of 360 s gives each chosen job as many whole steps as fit into it; it ends when its last job has done them.
Arrivals wait for the boundary. The allocation is solved anew at a boundary when jobs came or went, at least 1920 s
after the last time; then everybody's received time starts again from half a round. Priority is allocation over
share received; each GPU type in turn, V100 first, takes jobs in that order and skips what does not fit. A job that
came after the last allocation keeps its place in the order and gets nothing.

The original counts whole steps only: what a job could do in the rest of a step is lost to it. Here a job runs on
between rounds and is that little ahead; where that would end it earlier than the original ends it, it starts later
by as much.

Not taken over: jobs with fewer steps left than GPUs fail there five times and are dropped; here they run to their
end. And where nothing runs because nobody has an allocation, the original jumps to the next arrival, or solves at
once if there is none to come, which a scheduler cannot know; here the allocation is solved when 1920 s have
passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.journal import Entry
from dally.core.plan import Demand, Migrate, Plan, Preempt, Start, WakeAt
from dally.core.policy import View
from dally.core.states import ENDED, State
from dally.policies.gavel.allocation.problem import JobRow
from dally.policies.gavel.central import Floats
from dally.policies.gavel.chance import Chance
from dally.policies.gavel.columns import gpu_type_of
from dally.policies.gavel.known import Known
from dally.policies.gavel.memory import Isolated, ReleasedMemory, Span, Standing, Turn
from dally.policies.gavel.reasons import explain_waiting
from dally.policies.gavel.released_objectives import blind_fifo, isolated, objective
from dally.policies.gavel.released_order import FEW, Rows
from dally.policies.placing import place_consolidated

_ORDER = ("V100", "P100", "K80")  # the types the released code knows, in its order; others follow in the cluster's
_AWAY = ENDED | {State.HELD}
_PATIENCE: Final = 1.0  # seconds a boundary waits for a job that should have ended, if rounding made it late


class ReleasedRounds:
    """The plans that make the cluster follow the state the released scheduler would be in: a `ReleasedMemory`."""

    def __init__(self, name: str, aware: bool, length: float, reallocate: float) -> None:
        self.solve = objective(name, aware)
        self.fifo, self.aware = name == "fifo", aware
        self.length, self.reallocate = length, reallocate
        self._shuffler = Chance(5)  # the released default: seed 0, plus 5
        self._chooser = Chance(0)

    def new_memory(self) -> ReleasedMemory:
        return ReleasedMemory()

    def notes(self, memory: ReleasedMemory) -> tuple[str, ...]:
        return ()

    def attach(self, view: View, memory: ReleasedMemory) -> None:
        kinds = view.topology.gpu_types
        self._kinds = tuple(sorted(kinds, key=lambda k: (_ORDER.index(k) if k in _ORDER else len(_ORDER))))
        self._workers = tuple(view.topology.capacity(kind) for kind in self._kinds)
        self._known: dict[str, Known] = {}
        self._rows = Rows(len(self._kinds), lambda job_id: self.known(view, job_id))
        if memory.kinds != self._kinds:
            self._translate(memory)

    def _translate(self, memory: ReleasedMemory) -> None:
        """The cluster's GPU types are others than when this was written: figures move to those of today. The round is
        over, and time is allocated anew."""
        half, was = self.length / 2.0, memory.kinds
        places = [was.index(kind) if kind in was else None for kind in self._kinds]

        def moved(figures: Sequence[float], new: float) -> tuple[float, ...]:
            return tuple(new if place is None else figures[place] for place in places)

        for job_id, standing in list(memory.jobs.items()):
            time, deficit = moved(standing.time, half), moved(standing.deficit, 0.0)
            memory.jobs[job_id] = standing._replace(time=time, deficit=deficit)
        for job_id, share in list(memory.allocation.items()):
            memory.allocation[job_id] = moved(share, 0.0)
        memory.worker_time = moved(memory.worker_time, half * len(memory.jobs))
        memory.turns.clear()
        memory.places.clear()
        memory.round = None
        memory.kinds, memory.changed = self._kinds, bool(was)

    def known(self, view: View, job_id: str) -> Known:
        found = self._known.get(job_id)
        if found is None:
            ways = tuple((kind, True) for kind in self._kinds)
            found = self._known[job_id] = Known(view, view.job(job_id), ways, only_where_it_fits=False)
        return found

    def hear(self, view: View, memory: ReleasedMemory, entries: Sequence[Entry]) -> None:
        for entry in entries:
            kind = type(entry)
            if kind is ev.Measured:
                continue
            if isinstance(entry, (ev.Arrived, ev.Released)):
                job = view.job(entry.job.id if isinstance(entry, ev.Arrived) else entry.job)
                if job.state not in ENDED:
                    memory.came[job.id] = True
            elif kind is ev.MachinesChanged:
                memory.changed = True

    def plan(self, view: View, memory: ReleasedMemory, now: float) -> Plan:
        plan: Plan = []
        current = memory.round
        if current is not None and now < current.end:
            plan += self._starts(view, memory, now, current, [])  # those who were chosen and could not start before
        elif current is not None and self._wait_for_rounding(view, memory, now, current):
            memory.late = max(1e-6, 10 * memory.late)
            plan.append(WakeAt(now + memory.late))
        else:
            memory.late = 0.0
            plan += self._boundary(view, memory, now)
        return plan + explain_waiting(view, plan)

    def _wait_for_rounding(self, view: View, memory: ReleasedMemory, now: float, current: Span) -> bool:
        """Whether a job that should have ended by now is late by a rounding."""
        if now >= current.end + _PATIENCE:
            return False
        for job_id, turn in memory.turns.items():
            known, job = self.known(view, job_id), view.job(job_id)
            due = known.total is not None and memory.jobs[job_id].done + turn.steps >= known.total
            running = job.state is State.RUNNING and job.progress_from <= now
            if due and running and known.left(job, now) / known.rates[turn.kind] < _PATIENCE:
                return True
        return False

    # --- boundaries ---------------------------------------------------------------------------------------

    def _boundary(self, view: View, memory: ReleasedMemory, now: float) -> Plan:
        at = now if memory.round is None else memory.round.end  # the released clock; ours may be a rounding later
        if memory.round is not None:
            self._account(view, memory, now, memory.round)
        memory.round = None
        for job_id in memory.came:
            if view.job(job_id).state not in _AWAY and job_id not in memory.jobs:
                self._admit(view, memory, job_id, now)
        memory.came.clear()
        job_of = view.job
        there: list[ActiveJob] = []
        away: list[str] = []
        for job_id in memory.jobs:
            job = job_of(job_id)
            if job.state is State.RUNNING or job.state is State.WAITING or job.state not in _AWAY:
                there.append(job)
            else:
                away.append(job_id)
        for job_id in away:
            del memory.jobs[job_id]
            self._known.pop(job_id, None)
            memory.changed = True
        if memory.changed and (at - memory.last_reset >= self.reallocate or memory.last_reset == 0):
            self._reset(memory, at)
            self._allocate(view, memory, at, now)
        chosen = self._choose(view, memory, there)
        turns = {job_id: self._turn(view, memory, job_id, kind, at, now) for job_id, kind in chosen.items()}
        memory.turns.clear()
        memory.turns.update(turns)
        stops = self._stops(memory, there, now)
        if not turns:
            again = memory.last_reset + self.reallocate
            return stops + ([WakeAt(again if again > now else now + self.length)] if memory.jobs else [])
        memory.round = Span(at, max(turn.end for turn in turns.values()))
        return stops + self._starts(view, memory, now, memory.round, stops)

    def _admit(self, view: View, memory: ReleasedMemory, job_id: str, now: float) -> None:
        half, kinds = self.length / 2.0, len(self._kinds)
        done = self.known(view, job_id).done(view.job(job_id), now)  # more than nothing if it was found running
        memory.jobs[job_id] = Standing((half,) * kinds, (0.0,) * kinds, done)
        memory.changed = True

    def _account(self, view: View, memory: ReleasedMemory, now: float, current: Span) -> None:
        """Book the round: whole steps, and time from the end of the last round even if the cluster idled since."""
        since = memory.round_end or 0.0
        worker_time = list(memory.worker_time)
        booked: dict[str, Standing] = {}
        for job_id, turn in memory.turns.items():
            standing = memory.jobs[job_id]
            time = list(standing.time)
            took = turn.end - since
            time[turn.kind] += took
            worker_time[turn.kind] += took
            done = standing.done + turn.steps
            job = view.job(job_id)
            if job.state not in ENDED:  # preemption cost, faults or a wrong estimate: it is behind
                behind = self.known(view, job_id).done(job, now)
                if behind < done - 1e-6 * max(1.0, done):
                    done = behind
            booked[job_id] = Standing(tuple(time), standing.deficit, done, standing.isolated)
        memory.jobs.update(booked)
        memory.worker_time = tuple(worker_time)
        memory.round_end = current.end

    def _reset(self, memory: ReleasedMemory, at: float) -> None:
        """Deficits are what the allocation promised since the last reset minus what was received."""
        half, elapsed = self.length / 2.0, at - memory.last_reset
        blank = (half,) * len(self._kinds)
        jobs, standings = memory.jobs, list(memory.jobs.values())
        if standings:
            rows = self._rows
            rows.read(memory)
            deficits = rows.deficits + (rows.promised * elapsed - (rows.times - half))
            jobs.update(zip(jobs, [Standing(blank, deficit, standing.done, standing.isolated) for deficit, standing
                                   in zip(map(tuple, deficits.tolist()), standings, strict=True)],
                            strict=True))  # fmt: skip
        memory.worker_time = (half * len(memory.jobs),) * len(self._kinds)
        memory.last_reset = at
        memory.changed = False

    def _allocate(self, view: View, memory: ReleasedMemory, at: float, now: float) -> None:
        rows: list[JobRow] = []
        progress: list[float] = []
        for job_id, standing in memory.jobs.items():
            known, active, before = self.known(view, job_id), view.job(job_id), standing.isolated
            left, so_far = self._left(known, active, standing, now), before.so_far
            job = active.job
            if before.rate:
                so_far += (before.left - left) / before.rate
            progress.append(so_far)
            rows.append(JobRow(job_id, known.gpus, known.rates, left, elapsed=at - job.submit_time,
                               weight=float(job.priority) if job.priority > 0 else 1.0,
                               isolated_so_far=max(0.0, so_far)))  # fmt: skip
        memory.allocation.clear()
        if not rows:
            return
        found, alone = self._solve(memory, rows), isolated(rows, self._workers)
        rates = (np.array([row.throughput for row in rows]) * alone).T
        booked = {}
        for row, rate, so_far in zip(rows, sum(rates, np.zeros(len(rows))).tolist(), progress, strict=True):
            standing = memory.jobs[row.id]
            isolated_from_now = Isolated(row.steps_left, max(rate, 0.0), so_far)
            booked[row.id] = Standing(standing.time, standing.deficit, standing.done, isolated_from_now)
        memory.jobs.update(booked)
        memory.allocation.update({row.id: tuple(line) for row, line in zip(rows, found.tolist(), strict=True)})

    def _solve(self, memory: ReleasedMemory, rows: list[JobRow]) -> Floats:
        if not self.fifo or self.aware:
            return self.solve(rows, self._workers)
        self._chooser = self._chooser.after(memory.drawn)
        found = blind_fifo(rows, self._workers, memory.places, self._chooser)
        memory.drawn = self._chooser.drawn
        return found

    def _left(self, known: Known, job: ActiveJob, standing: Standing, now: float) -> float:
        """Steps to go; of a job that has done more than it was to need, or of which nobody says, as many again as it
        has done."""
        done = known.done(job, now)
        if known.total is None or done > known.total * (1.0 + 1e-9):
            return max(done, max(known.rates) * self.length, 1.0)
        return max(known.total - standing.done, 1.0 if known.step != 1.0 else 1e-9)

    def _choose(self, view: View, memory: ReleasedMemory, there: list[ActiveJob]) -> dict[str, int]:
        """Who of those who are there runs on which type in the round to come."""
        order = list(range(len(self._kinds)))
        if not self.aware:
            self._shuffler = self._shuffler.after(memory.shuffled)
            self._shuffler.shuffle(order)
            memory.shuffled = self._shuffler.drawn
        allocation, ids = memory.allocation, list(memory.jobs)
        left = list(self._workers)
        chosen = self._kept(view, there)  # ours: the original knows no jobs that must not be preempted
        for job_id, kind in chosen.items():
            left[kind] -= view.job(job_id).gpus
        rows = self._rows
        rows.read(memory)
        taken = [job_id in chosen for job_id in ids]
        for kind in order:
            received = memory.worker_time[kind]
            places = rows.ranked(kind, received, only_promised=self.fifo, few=FEW)
            took, room = _filled(places, rows.gpus, taken, left[kind])
            if room and len(ids) > 2 * FEW:  # whoever did not fit before does not fit now
                places = rows.ranked(kind, received, only_promised=self.fifo)
                took += _filled(places, rows.gpus, taken, room)[0]
            for place in took:
                if ids[place] in allocation:
                    chosen[ids[place]] = kind
        return chosen

    def _kept(self, view: View, there: list[ActiveJob]) -> dict[str, int]:
        """Jobs that keep their GPUs until they end, and the type they have them of."""
        types = {job.id: gpu_type_of(view, job) for job in there if not job.job.preemptible}
        return {job_id: self._kinds.index(kind) for job_id, kind in types.items() if kind is not None}

    def _turn(self, view: View, memory: ReleasedMemory, job_id: str, kind: int, at: float, now: float) -> Turn:
        """Whole steps of one round; the job starts later where it is ahead of them and would end too early."""
        known, job, standing = self.known(view, job_id), view.job(job_id), memory.jobs[job_id]
        rate = known.rates[kind]
        left = self._left(known, job, standing, now)
        steps = min(float(max(1, int(rate * self.length))), left) if known.step != 1.0 else \
            min(rate * self.length, left)  # fmt: skip
        start = at
        done = known.done(job, now)
        ahead = done - standing.done
        total = known.total
        if total is not None and ahead > 0 and (total - done) / rate <= self.length + _PATIENCE:
            start = at + ahead / rate
            standing_end = at + steps / rate
            start = min(start, standing_end)
        return Turn(kind, steps, at + steps / rate, start)

    # --- carrying it out ----------------------------------------------------------------------------------

    def _stops(self, memory: ReleasedMemory, there: list[ActiveJob], now: float) -> Plan:
        plan: Plan = []
        for job in there:
            if job.placement is not None and job.movable:
                turn = memory.turns.get(job.id)
                resized = job.placement.gpus != job.gpus  # by somebody else: it starts again in its own size
                if turn is None or turn.start_at > now + 1e-6 or resized:
                    plan.append(Preempt(job.id))
        return plan

    def _starts(self, view: View, memory: ReleasedMemory, now: float, current: Span, stops: Plan) -> Plan:
        """Everybody of the round on GPUs of its type: who is there stays, who is on another type moves."""
        plan: Plan = []
        stopped = {action.job for action in stops if isinstance(action, Preempt)}
        waking = current.end
        moves: list[tuple[int, str, bool]] = []
        starting, job_of = False, view.job
        for job_id, turn in memory.turns.items():
            job = job_of(job_id)
            starting |= job.state is State.STARTING
            if turn.start_at > now + 1e-6:
                waking = min(waking, turn.start_at)
            elif job.state is State.WAITING:
                moves.append((-job.gpus, job_id, False))
            elif job.movable and job_id not in stopped \
                    and gpu_type_of(view, job) != self._kinds[turn.kind]:  # fmt: skip
                moves.append((-job.gpus, job_id, True))
        if moves:
            plan += self._moved(view, memory, moves, stopped)
        # a round that begins late by a rounding may be as short as that: its last job ends any moment now
        # and where nothing is heard yet of a job that was to start, a round of its last step is not looked at anew
        plan.append(WakeAt(waking if waking > (now + _PATIENCE if starting else now) else now + _PATIENCE))
        return plan

    def _moved(self, view: View, memory: ReleasedMemory, moves: list[tuple[int, str, bool]],
               stopped: set[str]) -> Plan:  # fmt: skip
        """On GPUs that are free once those who stop or move have left theirs, the largest first."""
        plan: Plan = []
        with view.free.trial() as free:
            for _, job_id, running in moves:
                if running:
                    _give(free, view.job(job_id))
            for job_id in stopped:
                _give(free, view.job(job_id))
            for _, job_id, running in sorted(moves, key=lambda move: move[0]):
                job = view.job(job_id)
                demand = Demand(job.gpus, self._kinds[memory.turns[job_id].kind], job.demand.where)
                placement = place_consolidated(free, demand)
                if placement is None:  # machines are down, or GPUs still being vacated: tried again at the next event
                    if running:
                        plan.append(Preempt(job_id))
                    continue
                free.take(placement)
                plan.append(Migrate(job_id, placement) if running else Start(job_id, placement))
        return plan


def _filled(places: list[int], gpus: list[int], taken: list[bool], room: int) -> tuple[list[int], int]:
    """Who of these gets GPUs, in their order and whoever fits, and the GPUs that are left."""
    found: list[int] = []
    for place in places:
        if room == 0:
            break
        if not taken[place] and gpus[place] <= room:
            room -= gpus[place]
            taken[place] = True
            found.append(place)
    return found, room


def _give(free: FreeGpus, job: ActiveJob) -> None:
    assert job.placement is not None
    free.give(job.placement)
