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

import random
from dataclasses import dataclass, field

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.plan import Demand, Migrate, Plan, Preempt, Start, WakeAt
from dally.core.policy import View
from dally.core.states import ENDED, State
from dally.core.topology import Topology
from dally.policies.gavel.allocation.problem import JobRow
from dally.policies.gavel.known import Known
from dally.policies.gavel.reasons import explain_waiting
from dally.policies.gavel.released_objectives import isolated, objective
from dally.policies.placing import place_consolidated

_ORDER = ("V100", "P100", "K80")  # the types the released code knows, in its order; others follow in the cluster's
_PATIENCE = 1.0  # seconds a boundary waits for a job that should have ended, if rounding made it late


@dataclass(slots=True)
class _Standing:
    """One job as the released scheduler keeps it."""

    known: Known
    submit: float
    weight: float
    time: list[float]  # seconds per GPU type since the last reset, from half a round up
    deficit: list[float]
    done: float = 0.0  # whole steps it is credited with
    isolated_so_far: float = 0.0
    isolated_rate: float | None = None  # at the last allocation
    left_then: float = 0.0


@dataclass(slots=True)
class _Turn:
    """A job's part of a round."""

    kind: int
    steps: float
    end: float
    start_at: float


@dataclass(slots=True)
class _Round:
    start: float
    end: float
    turns: dict[str, _Turn] = field(default_factory=dict)


class ReleasedRounds:
    """The state the released scheduler would be in, and the plans that make the cluster follow it."""

    notes: tuple[str, ...] = ()

    def __init__(self, name: str, aware: bool, length: float, reallocate: float) -> None:
        self.solve = objective(name, aware)
        self.fifo, self.aware = name == "fifo", aware
        self.length, self.reallocate = length, reallocate
        self._jobs: dict[str, _Standing] = {}
        self._came: list[str] = []
        self._allocation: dict[str, tuple[float, ...]] = {}
        self._worker_time: list[float] = []
        self._last_reset = 0.0
        self._changed = False
        self._round: _Round | None = None
        self._round_end: float | None = None  # of the last round there was
        self._late = 0.0
        self._kinds: tuple[str, ...] = ()
        self._shuffler = random.Random(5)  # the released default: seed 0, plus 5

    def plan(self, view: View, now: float) -> Plan:
        if not self._kinds:
            self._start(view.topology)
        for event in view.news:
            if isinstance(event, ev.Arrived) and view.job(event.job.id).state is State.WAITING:
                self._came.append(event.job.id)
        plan: Plan = []
        current = self._round
        if current is not None and now < current.end:
            plan += self._within(view, now, current)
        elif current is not None and self._wait_for_rounding(view, now, current):
            plan.append(WakeAt(now + self._late))
        else:
            self._late = 0.0
            plan += self._boundary(view, now)
        return plan + explain_waiting(view, plan)

    def _start(self, topology: Topology) -> None:
        kinds = topology.gpu_types
        self._kinds = tuple(sorted(kinds, key=lambda k: (_ORDER.index(k) if k in _ORDER else len(_ORDER))))
        self._workers = tuple(topology.capacity(kind) for kind in self._kinds)
        self._worker_time = [0.0] * len(kinds)

    def _wait_for_rounding(self, view: View, now: float, current: _Round) -> bool:
        """Whether a job that should have ended by now is late by a rounding."""
        for job_id, turn in current.turns.items():
            standing = self._jobs[job_id]
            if standing.known.total is not None and standing.done + turn.steps >= standing.known.total:
                job = view.job(job_id)
                if job.state is State.RUNNING and now < current.end + _PATIENCE:
                    rate = standing.known.rates[turn.kind]
                    if job.progress_from <= now and standing.known.left(job, now) / rate < _PATIENCE:
                        self._late = max(1e-6, 10 * self._late)
                        return True
        return False

    # --- boundaries ---------------------------------------------------------------------------------------

    def _boundary(self, view: View, now: float) -> Plan:
        at = now if self._round is None else self._round.end  # the released clock; ours may be a rounding later
        if self._round is not None:
            self._account(view, now, self._round)
        self._round = None
        for job_id in self._came:
            if view.job(job_id).state not in ENDED:
                self._admit(view, view.job(job_id))
        self._came = []
        for job_id in [j for j in self._jobs if view.job(j).state in ENDED]:
            del self._jobs[job_id]
            self._changed = True
        if self._changed and (at - self._last_reset >= self.reallocate or self._last_reset == 0):
            self._reset(at)
            self._allocate(view, at, now)
        chosen = self._choose()
        turns = {job_id: self._turn(view, job_id, kind, at, now) for job_id, kind in chosen.items()}
        stops = self._stops(view, turns, now)
        if not turns:
            again = self._last_reset + self.reallocate
            return stops + ([WakeAt(again if again > now else now + self.length)] if self._jobs else [])
        end = max(turn.end for turn in turns.values())
        self._round = _Round(at, end, turns)
        return stops + self._starts(view, now, self._round, stops)

    def _admit(self, view: View, job: ActiveJob) -> None:
        known = Known(view, job, tuple((kind, True) for kind in self._kinds), only_where_it_fits=False)
        half = self.length / 2.0
        weight = float(job.job.priority) if job.job.priority > 0 else 1.0
        self._jobs[job.id] = _Standing(known, job.job.submit_time, weight, [half] * len(self._kinds),
                                       [0.0] * len(self._kinds))  # fmt: skip
        self._changed = True

    def _account(self, view: View, now: float, current: _Round) -> None:
        """Book the round: whole steps, and time from the end of the last round even if the cluster idled since."""
        since = self._round_end or 0.0
        for job_id, turn in current.turns.items():
            standing = self._jobs[job_id]
            took = turn.end - since
            standing.time[turn.kind] += took
            self._worker_time[turn.kind] += took
            standing.done += turn.steps
            job = view.job(job_id)
            if job.state not in ENDED:  # preemption cost, faults or a wrong estimate: it is behind
                behind = standing.known.done(job, now)
                if behind < standing.done - 1e-6 * max(1.0, standing.done):
                    standing.done = behind
        self._round_end = current.end

    def _reset(self, at: float) -> None:
        """Deficits are what the allocation promised since the last reset minus what was received."""
        half, elapsed = self.length / 2.0, at - self._last_reset
        kinds = range(len(self._kinds))
        for job_id, standing in self._jobs.items():
            promised = self._allocation.get(job_id)
            for kind in kinds:
                due = promised[kind] * elapsed if promised is not None else 0.0
                standing.deficit[kind] += due - (standing.time[kind] - half)
                standing.time[kind] = half
        self._worker_time = [half * len(self._jobs)] * len(self._kinds)
        self._last_reset = at
        self._changed = False

    def _allocate(self, view: View, at: float, now: float) -> None:
        if not self._jobs:
            self._allocation = {}
            return
        rows = []
        for job_id, standing in self._jobs.items():
            left = self._left(view, job_id, now)
            if standing.isolated_rate:
                standing.isolated_so_far += (standing.left_then - left) / standing.isolated_rate
            standing.left_then = left
            rows.append(JobRow(job_id, standing.known.gpus, standing.known.rates, left, elapsed=at - standing.submit,
                               weight=standing.weight,
                               isolated_so_far=max(0.0, standing.isolated_so_far)))  # fmt: skip
        found = self.solve(rows, self._workers)
        alone = isolated(rows, self._workers)
        for row, share in zip(rows, alone.tolist(), strict=True):
            rate = sum(a * b for a, b in zip(row.throughput, share, strict=True))
            self._jobs[row.id].isolated_rate = rate if rate > 0 else None
        self._allocation = {row.id: tuple(line) for row, line in zip(rows, found.tolist(), strict=True)}

    def _left(self, view: View, job_id: str, now: float) -> float:
        standing = self._jobs[job_id]
        if standing.known.total is None:
            return standing.known.left(view.job(job_id), now, max(standing.known.rates) * self.length)
        return max(standing.known.total - standing.done, 1.0 if standing.known.step != 1.0 else 1e-9)

    def _choose(self) -> dict[str, int]:
        """Who runs on which type in the round to come."""
        order = list(range(len(self._kinds)))
        if not self.aware:
            self._shuffler.shuffle(order)
        chosen: dict[str, int] = {}
        taken: set[str] = set()
        left = list(self._workers)
        for kind in order:
            time = self._worker_time[kind]
            entries = []
            for job_id, standing in self._jobs.items():
                promised = self._allocation.get(job_id)
                share = standing.time[kind] / time if time > 0 else 0.0
                if promised is None or promised[kind] == 0 or standing.known.rates[kind] <= 0:
                    priority = 0.0
                else:
                    priority = promised[kind] / share if share > 0 else promised[kind] * 1e9
                if (self.fifo and priority <= 0) or standing.known.rates[kind] <= 0:
                    continue
                fraction = 0.0 if promised is None else promised[kind]
                entries.append((priority, standing.deficit[kind], fraction, job_id, standing.known.gpus))
            entries.sort(key=lambda entry: entry[:3], reverse=True)
            for _, _, _, job_id, gpus in entries:
                if left[kind] == 0:
                    break
                if job_id not in taken and gpus <= left[kind]:
                    left[kind] -= gpus
                    taken.add(job_id)
                    if job_id in self._allocation:
                        chosen[job_id] = kind
        return chosen

    def _turn(self, view: View, job_id: str, kind: int, at: float, now: float) -> _Turn:
        """Whole steps of one round; the job starts later where it is ahead of them and would end too early."""
        standing, job = self._jobs[job_id], view.job(job_id)
        rate = standing.known.rates[kind]
        left = self._left(view, job_id, now)
        steps = min(float(max(1, int(rate * self.length))), left) if standing.known.step != 1.0 else \
            min(rate * self.length, left)  # fmt: skip
        start = at
        done = standing.known.done(job, now)
        ahead = done - standing.done
        total = standing.known.total
        if total is not None and ahead > 0 and (total - done) / rate <= self.length + _PATIENCE:
            start = at + ahead / rate
            standing_end = at + steps / rate
            start = min(start, standing_end)
        return _Turn(kind, steps, at + steps / rate, start)

    # --- carrying it out ----------------------------------------------------------------------------------

    def _stops(self, view: View, turns: dict[str, _Turn], now: float) -> Plan:
        plan: Plan = []
        for job_id in self._jobs:
            job = view.job(job_id)
            if job.state is State.RUNNING:
                turn = turns.get(job_id)
                if turn is None or turn.start_at > now + 1e-6:
                    plan.append(Preempt(job_id))
        return plan

    def _starts(self, view: View, now: float, current: _Round, stops: Plan) -> Plan:
        """Everybody of the round on GPUs of its type: who is there stays, who is on another type moves."""
        plan: Plan = []
        stopped = {action.job for action in stops if isinstance(action, Preempt)}
        waking = current.end
        moves: list[tuple[int, str, bool]] = []
        for job_id, turn in current.turns.items():
            job = view.job(job_id)
            if turn.start_at > now + 1e-6:
                waking = min(waking, turn.start_at)
            elif job.state is State.WAITING:
                moves.append((-job.gpus, job_id, False))
            elif job.state is State.RUNNING and job_id not in stopped and self._kind_of(view, job) != turn.kind:
                moves.append((-job.gpus, job_id, True))
        with view.free.trial() as free:
            for _, job_id, running in moves:
                if running:
                    _give(free, view.job(job_id))
            for job_id in stopped:
                _give(free, view.job(job_id))
            for _, job_id, running in sorted(moves, key=lambda move: move[0]):
                job = view.job(job_id)
                demand = Demand(job.gpus, self._kinds[current.turns[job_id].kind])
                placement = place_consolidated(free, demand)
                if placement is None:  # machines are down, or GPUs still being vacated: tried again at the next event
                    if running:
                        plan.append(Preempt(job_id))
                    continue
                free.take(placement)
                plan.append(Migrate(job_id, placement) if running else Start(job_id, placement))
        plan.append(WakeAt(waking))
        return plan

    def _within(self, view: View, now: float, current: _Round) -> Plan:
        """Inside a round only those start that were chosen and could not before."""
        return self._starts(view, now, current, []) if current.turns else []

    def _kind_of(self, view: View, job: ActiveJob) -> int:
        assert job.placement is not None
        return self._kinds.index(view.topology.machines[job.placement.slices[0][0]].gpu_type)


def _give(free: FreeGpus, job: ActiveJob) -> None:
    assert job.placement is not None
    free.give(job.placement)
