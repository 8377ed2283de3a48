"""From the jobs there are to an allocation of GPU time: builds the problem, calls the objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from dally.core.active import ActiveJob
from dally.core.policy import View
from dally.policies.gavel.allocation.problem import Allocation, Fractions, JobRow, PairRow, Problem, Row
from dally.policies.gavel.columns import Columns
from dally.policies.gavel.known import Known
from dally.policies.gavel.memory import Isolated, PaperMemory
from dally.policies.gavel.prices import parse_pairs, prices_of

if TYPE_CHECKING:
    from dally.policies.gavel.pairs import Partners

COUNTS_MONEY = ("cost", "cost-slo")
COMPARES_WITH_ALONE = "finish-time-fairness"
_OTHERWISE = (*COUNTS_MONEY, "isolated", "allox")  # objectives that do not like throughput above all
_TIMELESS = ("max-min-fairness", "fifo", "throughput", "hierarchical", "isolated")  # no matter what a job has done
_SLIVER: Final = 1e-6  # of its time; less is the solver's last digits


class Wishes(Protocol):
    """The options this part reads."""

    @property
    def objective(self) -> str: ...
    @property
    def aware(self) -> bool: ...
    @property
    def optimum(self) -> str: ...
    @property
    def inside(self) -> str: ...
    @property
    def weights(self) -> str: ...
    @property
    def prices(self) -> str: ...
    @property
    def cost_form(self) -> str: ...
    @property
    def round(self) -> float: ...


class Member(NamedTuple):
    """A job that may share its GPUs."""

    known: Known
    job: ActiveJob


class Allotter:
    """One objective for one cluster. What it keeps from one allocation to the next is in the memory: isolated progress,
    where the solver ended, notes."""

    def __init__(self, options: Wishes, columns: Columns, workers: tuple[int, ...]) -> None:
        self.options, self.columns, self.workers = options, columns, workers
        self.entity_weights = parse_pairs(options.weights, "weights") or None
        said = parse_pairs(options.prices, "prices")
        self.unpriced: list[str] = []
        self.prices: tuple[float, ...] = ()
        if options.objective in COUNTS_MONEY:
            self.prices, self.unpriced = prices_of(columns.kinds, said)
        self.partners: Partners | None = None  # with space sharing: who may run beside whom
        width = len(columns.all)
        self._all_of_it: list[Fractions] = [tuple([float(place == column) for place in range(width)])
                                            for column in range(width)]  # fmt: skip
        self._models: list[object] = []  # of the solver, empty
        self.together: dict[Row, Fractions] = {}  # time the last allocation gives to pairs

    def allocate(self, view: View, memory: PaperMemory, jobs: Sequence[Known], now: float) -> list[Fractions]:
        """Fractions of time, one row per job in order, one entry per column; those of pairs are in `together`."""
        self.together = {}
        if self.options.aware and self.options.objective not in _OTHERWISE:
            fastest = self._fastest(jobs)
            if fastest is not None:
                if self.options.objective == COMPARES_WITH_ALONE:
                    for known in jobs:
                        self._book_isolated(memory, known, view.job(known.id), now, len(jobs))
                return [self._all_of_it[column] for column in fastest]
        rows = self._rows_of(view, memory, jobs, now)
        pairs: tuple[PairRow, ...] = ()
        if self.partners is not None:
            pairs = self.partners.rows(view, memory, [Member(known, view.job(known.id)) for known in jobs])
        problem = Problem(tuple(rows), self.columns.names, self.workers, self.columns.kind_of, self.prices, pairs,
                          entity_weights=self.entity_weights)  # fmt: skip
        found = self._solve(problem, memory)
        unheard = [note for note in found.notes if note not in memory.notes]
        if unheard:
            memory.notes = (*memory.notes, *unheard)
        if pairs:
            self.together = {row: x for row, x in found.fractions.items() if len(row) == 2 and max(x) > _SLIVER}
        return [found.fractions[(row.id,)] for row in rows]

    def _fastest(self, jobs: Sequence[Known]) -> list[int] | None:
        """Where every job is fastest, if the GPUs there suffice for all of the time: nobody can have more, so this is
        the optimum of every objective that likes throughput, and no program is solved."""
        room, kind_of = list(self.workers), self.columns.kind_of
        found: list[int] = []
        alike = len(kind_of) == 1
        for known in jobs:
            rates = known.rates
            best = rates[0] if alike else max(rates)
            column = 0 if alike else rates.index(best)
            kind = kind_of[column]
            room[kind] -= known.gpus
            if room[kind] < 0 or best <= 0:
                return None
            found.append(column)
        return found

    def _rows_of(self, view: View, memory: PaperMemory, jobs: Sequence[Known], now: float) -> list[JobRow]:
        """As the objective sees them. Where it looks at nothing that passes with time, a row made once is good until
        the job's rates are others."""
        timeless, count = self.options.objective in _TIMELESS, len(jobs)
        rows: list[JobRow] = []
        for known in jobs:
            row = known.row
            if row is None or not timeless or row.throughput is not known.rates:  # objects
                row = known.row = self._row(memory, known, view.job(known.id), now, count)
            rows.append(row)
        return rows

    def _book_isolated(self, memory: PaperMemory, known: Known, job: ActiveJob, now: float, count: int) -> float:
        """Steps left; books how long the finished ones would have taken alone on 1/M of the cluster, if that counts."""
        left = known.left(job, now, max(known.rates) * 360.0)
        if self.options.objective != COMPARES_WITH_ALONE:
            return left
        before = memory.isolated.get(known.id, Isolated())
        so_far = before.so_far
        if before.rate > 0:
            so_far += max(0.0, before.left - left) / before.rate
        share = [n / count / known.gpus for n in self.workers]
        scale = 1.0 / max(1.0, sum(share))
        rate = sum(known.rates[self.columns.kind_of.index(kind)] * part * scale for kind, part in enumerate(share))
        memory.isolated[known.id] = Isolated(left, rate, so_far)
        return left

    def _row(self, memory: PaperMemory, known: Known, job: ActiveJob, now: float, count: int) -> JobRow:
        left = self._book_isolated(memory, known, job, now, count)
        isolated = memory.isolated.get(job.id)
        total = known.total if known.total is not None else left + known.done(job, now)
        deadline = job.job.deadline
        return JobRow(
            job.id, job.gpus, known.rates, left, max(total, left), now - job.job.submit_time, job.job.submit_time,
            float(job.job.priority) if job.job.priority > 0 else 1.0, job.job.tenant,
            None if deadline is None else self._time_left(deadline - now, left / max(*known.rates, 1e-300)),
            0.0 if isolated is None else isolated.so_far,
        )  # fmt: skip

    def _time_left(self, until_deadline: float, quickest: float) -> float:
        """To a deadline, less the two rounds by which what is dealt out may lag behind what was allocated, and a tenth
        for the allocations in between: exactly enough is too late. Never less than the job needs at its fastest, as
        long as that is in time."""
        wanted = 0.9 * (until_deadline - 2.0 * self.options.round)
        return min(max(wanted, 1.001 * quickest), until_deadline)

    def _solve(self, problem: Problem, memory: PaperMemory) -> Allocation:
        from dally.policies.gavel.allocation.allox import allox
        from dally.policies.gavel.allocation.isolated import isolated
        from dally.policies.gavel.allocation.objectives import OBJECTIVES
        from dally.policies.gavel.allocation.solver import Solver
        from dally.policies.gavel.released_objectives import in_the_middle

        name, aware = self.options.objective, self.options.aware
        if name == "isolated":
            return isolated(problem)
        if name == "allox":  # it knows jobs of one GPU only; gangs get their part of the cluster
            alone = replace(problem, jobs=tuple(job for job in problem.jobs if job.gpus == 1))
            shared = isolated(problem)
            ones = {row.id for row in alone.jobs}
            running = {job: self.columns.kind_of[column] for job, column in memory.running.items() if job in ones}
            matched = allox(alone, running=running, aware=aware)
            return Allocation({**shared.fractions, **matched.fractions}, matched.objective, matched.notes)
        if self.options.optimum == "central" and name in ("max-min-fairness", "makespan", "finish-time-fairness"):
            central = in_the_middle(problem, name, aware)
            if central is not None:
                return central
        solve: Callable[..., Allocation] = OBJECTIVES[name]
        more: dict[str, Any] = {}
        if name == "hierarchical":
            more["inside"] = self.options.inside
        elif name in COUNTS_MONEY:
            more["form"] = self.options.cost_form
        elif name == "max-min-fairness" and self.options.optimum == "filled":
            more["fill"] = True
        solver = Solver(memory.warmth, self._models)
        found = solve(problem, aware=aware, solver=solver, **more)
        memory.warmth = solver.warmth()
        solver.give_back()
        return found
