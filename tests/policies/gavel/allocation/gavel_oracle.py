"""The same problems, written down a second time in cvxpy and solved by another solver (Clarabel)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
from hypothesis import strategies as st

from dally.policies.gavel.allocation.problem import Allocation, JobRow, PairRow, Problem


class Stated:
    """Variables, limits and effective throughputs of a problem."""

    def __init__(self, problem: Problem, unit: Any = 1.0) -> None:
        """`unit` stands for 1 in the limits: a variable makes them homogeneous, for ratios (Charnes and Cooper)."""
        self.problem = problem
        columns = range(len(problem.types))
        fits = [[job.gpus <= problem.workers[problem.column_type[c]] for c in columns] for job in problem.jobs]
        rates = [
            [rate if fit else 0.0 for rate, fit in zip(job.throughput, row, strict=True)]
            for job, row in zip(problem.jobs, fits, strict=True)
        ]
        self.runs = [m for m in range(len(problem.jobs)) if any(rates[m])]
        self.rates = {m: np.array(rates[m]) for m in self.runs}
        self.fastest = {m: max(rates[m]) for m in self.runs}
        x = {m: cp.Variable(len(problem.types), nonneg=True) for m in self.runs}
        self.limits: list[Any] = [x[m][c] == 0 for m in self.runs for c in columns if rates[m][c] == 0]
        time = {m: cp.sum(x[m]) for m in self.runs}
        self.thr: dict[int, Any] = {m: self.rates[m] @ x[m] for m in self.runs}
        used: list[Any] = [0.0 for _ in problem.workers]
        self.spent: Any = 0.0
        rows = [(problem.jobs[m].gpus, x[m]) for m in self.runs]
        for pair in problem.pairs:
            if pair.first in x and pair.second in x:
                y = cp.Variable(len(problem.types), nonneg=True)
                for c in columns:
                    rate = pair.throughput_first[c], pair.throughput_second[c]
                    if not (min(rate) > 0 and rates[pair.first][c] > 0 and rates[pair.second][c] > 0):
                        self.limits.append(y[c] == 0)
                for m, own in ((pair.first, pair.throughput_first), (pair.second, pair.throughput_second)):
                    time[m] = time[m] + cp.sum(y)
                    self.thr[m] = self.thr[m] + np.array(own) @ y
                rows.append((problem.jobs[pair.first].gpus, y))
        for gpus, row in rows:
            for c in columns:
                kind = problem.column_type[c]
                used[kind] = used[kind] + gpus * row[c]
                self.spent = self.spent + gpus * problem.prices[kind] * row[c]
        self.limits += [time[m] <= unit for m in self.runs]
        for total, count in zip(used, problem.workers, strict=True):
            if not isinstance(total, float):
                self.limits.append(total <= count * problem.share * unit)

    def equal_share(self, m: int) -> float:
        total = sum(self.problem.workers)
        share = 0.0
        for kind, count in enumerate(self.problem.workers):
            own = [r for r, k in zip(self.rates[m], self.problem.column_type, strict=True) if k == kind]
            share += count / total * max(own, default=0.0)
        return share

    def isolated(self, m: int) -> float:
        job, count = self.problem.jobs[m], len(self.problem.jobs)
        parts = [n / count / job.gpus for n in self.problem.workers]
        size = max(1.0, sum(parts))
        rate = 0.0
        for kind, part in enumerate(parts):
            own = [r for r, k in zip(self.rates[m], self.problem.column_type, strict=True) if k == kind]
            rate += part / size * max(own, default=0.0)
        return rate

    def best(self, goal: Any, extra: list[Any] | None = None) -> float | None:
        """The optimum, or nothing if infeasible."""
        asked = cp.Problem(goal, self.limits + (extra or []))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked.solve(solver=cp.CLARABEL)
        if asked.status not in ("optimal", "optimal_inaccurate"):
            return None
        return float(asked.value)


def max_min(problem: Problem) -> float:
    s, jobs = Stated(problem), problem.jobs
    terms = [s.thr[m] * (jobs[m].gpus / jobs[m].weight / s.equal_share(m)) for m in s.runs]
    return s.best(cp.Maximize(cp.min(cp.hstack(terms)))) or 0.0


def fifo(problem: Problem) -> float:
    s = Stated(problem)
    order = sorted(s.runs, key=lambda m: problem.jobs[m].arrived)
    terms = [s.thr[m] / s.fastest[m] * (len(order) - place) for place, m in enumerate(order)]
    return s.best(cp.Maximize(cp.sum(cp.hstack(terms)))) or 0.0


def sjf(problem: Problem) -> float:
    """Each job in turn as the one that decides."""
    times = []
    for m in Stated(problem).runs:
        s = Stated(problem)
        times.append(problem.jobs[m].steps_left / (s.best(cp.Maximize(s.thr[m])) or np.inf))
    return min(times)


def makespan(problem: Problem) -> float:
    s = Stated(problem)
    longest = max(problem.jobs[m].steps_left / s.fastest[m] for m in s.runs)
    terms = [s.thr[m] * (longest / problem.jobs[m].steps_left) for m in s.runs if problem.jobs[m].steps_left]
    return longest / (s.best(cp.Maximize(cp.min(cp.hstack(terms)))) or np.inf)


def finish_time_fairness(problem: Problem) -> float:
    s, terms = Stated(problem), []
    for m in s.runs:
        job = problem.jobs[m]
        alone = job.isolated_so_far + job.steps_left / s.isolated(m)
        at_best = job.steps_left / s.fastest[m]
        terms.append(job.elapsed / alone + at_best / alone * cp.inv_pos(s.thr[m] / s.fastest[m]))
    return s.best(cp.Minimize(cp.max(cp.hstack(terms)))) or 0.0


def throughput(problem: Problem) -> float:
    s = Stated(problem)
    return s.best(cp.Maximize(cp.sum(cp.hstack([s.thr[m] for m in s.runs])))) or 0.0


def cost_ratio(problem: Problem, deadlines: tuple[int, ...] = ()) -> float:
    """Σ thr with Σ cost = 1, everything scaled by a variable."""
    unit, jobs = cp.Variable(nonneg=True), problem.jobs
    s = Stated(problem, unit)
    met = [s.thr[m] >= jobs[m].steps_left / (jobs[m].slo or np.inf) * unit for m in deadlines]
    total = cp.sum(cp.hstack([s.thr[m] for m in s.runs]))
    return s.best(cp.Maximize(total), [*met, s.spent == 1.0]) or 0.0


def feasible(problem: Problem, allocation: Allocation) -> None:
    """Every job has a row, nobody has more than all of its time, no type more than its GPUs, no gang too large."""
    jobs = {job.id: job for job in problem.jobs}
    time = dict.fromkeys(jobs, 0.0)
    used = [0.0] * len(problem.workers)
    assert {row for row in allocation.fractions if len(row) == 1} == {(job.id,) for job in problem.jobs}
    for row, parts in allocation.fractions.items():
        for column, part in enumerate(parts):
            kind = problem.column_type[column]
            assert 0 <= part <= 1
            used[kind] += part * jobs[row[0]].gpus
            if part > 0:
                assert all(jobs[name].gpus <= problem.workers[kind] for name in row)
                assert all(jobs[name].throughput[column] > 0 for name in row)
            for name in row:
                time[name] += part
    assert all(spent <= 1 + 1e-9 for spent in time.values())
    assert all(u <= n * problem.share + 1e-9 * (1 + n) for u, n in zip(used, problem.workers, strict=True))


RATES = st.floats(0.05, 20.0) | st.sampled_from([0.0, 1.0, 2.0])


@st.composite
def problems(draw: Callable[..., Any], most: int = 6, pairs: bool = True, small: bool = False) -> Problem:
    """Problems with at least one job that can run."""
    types = draw(st.integers(1, 3))
    workers = [draw(st.integers(0, 6)) for _ in range(types)]
    workers[0] = max(workers[0], draw(st.integers(1, 4)))
    kinds = list(range(types)) + [draw(st.integers(0, types - 1))] * draw(st.integers(0, 1))  # an unconsolidated one
    jobs = []
    for number in range(draw(st.integers(1, most))):
        rates = [draw(RATES) for _ in kinds]
        gpus = 1 if small or number == 0 else draw(st.sampled_from([1, 1, 2, 4, 8]))
        if number == 0:
            rates[0] = max(rates[0], 0.5)
        jobs.append(
            JobRow(
                id=f"job{number}",
                gpus=gpus,
                throughput=tuple(rates),
                steps_left=draw(st.floats(1.0, 1e4)),
                elapsed=draw(st.floats(0.0, 1e4)),
                isolated_so_far=draw(st.floats(0.0, 1e3)),
                arrived=draw(st.integers(0, 3)),
                weight=draw(st.sampled_from([0.5, 1.0, 1.0, 3.0])),
                entity=draw(st.sampled_from(["a", "b"])),
                slo=draw(st.none() | st.floats(10.0, 1e4)),
            )
        )
    shared = []
    for first in range(len(jobs)):
        for second in range(first + 1, len(jobs)):
            if pairs and jobs[first].gpus == jobs[second].gpus and draw(st.booleans()):
                factor = draw(st.floats(0.2, 1.0)), draw(st.floats(0.2, 1.0))
                rates = [[r * f for r in jobs[m].throughput] for m, f in zip((first, second), factor, strict=True)]
                shared.append(PairRow(first, second, tuple(rates[0]), tuple(rates[1])))
    return Problem(
        jobs=tuple(jobs),
        types=tuple(f"column{c}" for c in range(len(kinds))),
        workers=tuple(workers),
        column_type=tuple(kinds),
        prices=tuple(draw(st.floats(0.2, 4.0)) for _ in workers),
        pairs=tuple(shared),
        entity_weights={"a": 1.0, "b": 2.0},
    )


def lexicographic(problem: Problem, inside: str | None = None) -> dict[str, float]:
    """Normalised throughputs after water-filling, bottlenecks found by asking for each job whether it can rise.

    Without `inside`, jobs have their own weights; with it, entities share theirs as the paper says.
    """
    s, jobs = Stated(problem), problem.jobs
    level = dict.fromkeys(s.runs, 0.0)
    frozen: set[int] = set()
    u = {m: s.thr[m] * (jobs[m].gpus / s.equal_share(m)) for m in s.runs}
    for _ in range(10 * len(s.runs)):  # a last digit may ask for one more turn at the same level
        if len(frozen) == len(s.runs):
            break
        weight = _shares(problem, s.runs, frozen, inside)
        least = {m: level[m] * (1 - 1e-8) - 1e-8 for m in s.runs}  # no solver meets its own last digit
        kept = [u[m] >= least[m] for m in s.runs]
        t = cp.Variable()
        rise = s.best(cp.Maximize(t), [*kept, *(u[m] >= least[m] + weight[m] * t for m in weight)]) or 0.0
        for m in weight:
            level[m] += weight[m] * max(0.0, rise)
        kept = [u[m] >= level[m] * (1 - 1e-8) - 1e-8 for m in s.runs]
        for m in weight:
            if (s.best(cp.Maximize(u[m]), kept) or 0.0) <= level[m] * (1 + 1e-5) + 1e-6:
                frozen.add(m)
    assert len(frozen) == len(s.runs)
    return {jobs[m].id: level[m] for m in s.runs}


def _shares(problem: Problem, runs: list[int], frozen: set[int], inside: str | None) -> dict[int, float]:
    jobs = problem.jobs
    free = [m for m in runs if m not in frozen]
    if inside is None:
        return {m: jobs[m].weight for m in free}
    shares: dict[int, float] = {}
    for entity in {jobs[m].entity for m in free}:
        own = sorted((m for m in free if jobs[m].entity == entity), key=lambda m: jobs[m].arrived)
        weight = (problem.entity_weights or {}).get(entity or "", 1.0)
        if inside == "fifo":
            shares[own[0]] = weight
        else:
            total = sum(jobs[m].weight for m in own)
            shares.update({m: weight * jobs[m].weight / total for m in own})
    return shares


def normalised(problem: Problem, rates: dict[str, float]) -> dict[str, float]:
    """s·thr/thr(X^eq) of the jobs that can run."""
    s, jobs = Stated(problem), problem.jobs
    return {jobs[m].id: jobs[m].gpus * rates[jobs[m].id] / s.equal_share(m) for m in s.runs}


def per_price(problem: Problem) -> float:
    """The released code's Σ thr / price."""
    cheap = [
        replace(
            job,
            throughput=tuple(
                rate / problem.prices[kind] for rate, kind in zip(job.throughput, problem.column_type, strict=True)
            ),
        )
        for job in problem.jobs
    ]
    pairs = []
    for pair in problem.pairs:
        rates = [
            tuple(rate / problem.prices[kind] for rate, kind in zip(own, problem.column_type, strict=True))
            for own in (pair.throughput_first, pair.throughput_second)
        ]
        pairs.append(replace(pair, throughput_first=rates[0], throughput_second=rates[1]))
    return throughput(replace(problem, jobs=tuple(cheap), pairs=tuple(pairs)))
