"""HiGHS, asked directly: a model is built once, then changed, and solved again from its last basis.

What arrives is added in a batch. What leaves is closed first (its columns fixed at 0, its floor lifted), which
keeps the basis as it is. Changed bounds and costs are sent in one call each. When more than a few coefficients
changed, or many jobs left, the model is passed again whole, with the old basis. A cold start of a large model uses
the interior-point method with crossover.

Where an optimum is not unique, a warm start may end in another vertex of it than a cold start does. So a solver serves
one allocation, which may be many programs; what the next one starts from is handed on as plain data (`warmth`), and
the same program from the same start gives the same solution, whoever solved the one before.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from dally.policies.gavel.allocation.grid import Floats, Ints
from dally.policies.gavel.allocation.kinds import Kinds
from dally.policies.gavel.allocation.matrix import (
    Layout,
    column_bounds,
    costs,
    entries,
    missing,
    only_asks_otherwise,
    places,
    row_bounds,
    rows_per_job,
    same_frame,
    same_rows,
)
from dally.policies.gavel.allocation.program import Program, Solution
from dally.policies.gavel.allocation.warmth import COLD, Basis, Warmth

INTERIOR_FROM = 2000  # columns; below, a cold simplex is faster than the interior-point method and its crossover
PARKED = 0.1  # of the jobs and pairs; beyond, the model is passed again without those that left
FEW = 64  # jobs and pairs whose columns changed: cheaper changed one by one
DEVEX = 1  # HiGHS' number of it; steepest-edge weights for a warm basis cost more than the whole re-solve
TOLERANCE = 1e-9


Model = Any  # highspy.Highs, whose published types lack half of the methods used here


class SolverError(RuntimeError):
    """HiGHS found no optimum of a program that always has one."""


class Solver:
    """One model kept warm. Give it one program after another; they may differ in anything."""

    def __init__(self, warmth: Warmth = COLD, models: list[Model] | None = None) -> None:
        """`models` that served others before, to be used again: making one costs as much as a small program."""
        self._from = warmth
        self._models = [] if models is None else models
        self._model: Model | None = None
        self._warm = False  # whether the model has been told to start from a basis
        self._held: Program | None = None
        self._layout = Layout(*(np.zeros(0, dtype=np.int64),) * 3)
        self._beside: Solver | None = None
        self.kinds: Kinds | None = None  # of the jobs of the last program, to merge the next
        self._parked = 0  # jobs and pairs that left but still have closed columns
        self.guess = warmth.guess  # where a search for a level ended last: a place to begin the next
        self.runs = 0  # how often HiGHS was asked
        self.iterations = 0  # simplex iterations in all

    @property
    def beside(self) -> Solver:
        """A second model, for an objective that asks two kinds of question; each stays near its own last answer."""
        if self._beside is None:
            self._beside = Solver(Warmth(None, self._from.beside), self._models)
        return self._beside

    def give_back(self) -> None:
        """The models are empty again, and this solver is done."""
        for solver in (self, self._beside):
            if solver is not None and solver._model is not None:
                solver._model.clearModel()
                self._models.append(solver._model)
                solver._model = solver._held = None
                solver._warm = False

    def warmth(self) -> Warmth:
        """Where this one has got to, for the next to start from."""
        beside = self._from.beside if self._beside is None else self._beside.warmth().basis
        return Warmth(self.guess, self._basis(), beside)

    @property
    def columns(self) -> int:
        """Of the model, those of jobs that left included."""
        return int(self._model.getNumCol()) if self._model is not None else 0

    def solve(self, program: Program) -> Solution:
        if self._model is None:
            self._model = self._models.pop() if self._models else quiet_model()
        if self._held is None or not same_frame(self._held, program):
            self._pass(self._model, program)
            if self._held is None and self._from.basis is not None:
                self._start_from(self._model, program, self._from.basis)
        else:
            self._follow(self._model, self._held, program)
        self._held = program
        self._run(self._model)
        return self._read(self._model, program)

    def _pass(self, model: Model, program: Program) -> None:
        """The whole model, as if there had been no other."""
        layout = self._layout = Layout.in_order(program)
        self._parked = 0
        jobs, pairs = np.arange(len(program.jobs)), np.arange(len(program.pairs))
        starts, rows, values = entries(program, layout, jobs, pairs)
        if program.push is not None:
            pushed = np.flatnonzero(program.push)
            rows = np.concatenate([layout.job_row[pushed] + 1, rows])
            values = np.concatenate([-program.push[pushed], values])
            starts = starts + len(pushed)
        lower, upper = column_bounds(program, jobs, pairs)
        row_lower, row_upper = row_bounds(program, jobs)
        kinds, free = len(program.capacity), program.levelled
        model.passModel(
            1 + len(lower),
            kinds + len(row_lower),
            len(values),
            1,  # by column
            1,  # minimise
            0.0,
            np.concatenate([[-program.pull], costs(program, jobs, pairs)]),
            np.concatenate([[-np.inf if free else 0.0], lower]),
            np.concatenate([[program.level_limit if free else 0.0], upper]),
            np.concatenate([np.full(kinds, -np.inf), row_lower]),
            np.concatenate([program.capacity, row_upper]),
            np.concatenate([[0], starts[:-1]]).astype(np.int32),
            rows.astype(np.int32),
            values,
            np.zeros(1 + len(lower), dtype=np.int32),
        )

    def _follow(self, model: Model, held: Program, program: Program) -> None:
        if only_asks_otherwise(held, program):
            self._ask(model, held, program, np.arange(len(program.jobs)), np.arange(len(held.jobs)))
            return
        was, pair_was = places(held.jobs, program.jobs), places(held.pairs, program.pairs)
        if same_rows(held, program):  # as between the programs of one allocation
            self._change(model, held, program, was, pair_was)
            return
        stay, pair_stay = was >= 0, pair_was >= 0
        changed = np.zeros(len(was), dtype=bool)
        changed[stay] = (held.gain[was[stay]] != program.gain[stay]).any(axis=1)
        resized = np.zeros(len(was), dtype=bool)
        resized[stay] = held.gpus[was[stay]] != program.gpus[stay]
        paired = np.zeros(len(was), dtype=bool)
        paired[program.members.ravel()] = True
        changed |= resized & paired  # the pairs' columns would have to change too
        pairs_changed = np.zeros(len(pair_was), dtype=bool)
        new_gain, old_gain = program.pair_gain[pair_stay], held.pair_gain[pair_was[pair_stay]]
        pairs_changed[pair_stay] = (new_gain != old_gain).any(axis=(1, 2))
        crowded = self._parked > PARKED * (len(program.jobs) + len(program.pairs)) + FEW
        touched = np.count_nonzero(changed | resized) + np.count_nonzero(pairs_changed)
        if crowded or touched > FEW:
            self._pass_again(model, program, was, pair_was)
            return
        # A job or pair with other coefficients leaves and comes again; so does a pair whose member did.
        was[changed] = -1
        pair_was[pairs_changed | (was[program.members] < 0).any(axis=1)] = -1
        self._park(model, held, was, pair_was)
        self._add(model, program, was, pair_was)
        self._change(model, held, program, was, pair_was)

    def _start_from(self, model: Model, program: Program, basis: Basis) -> None:
        """The basis another solver ended with; what is new is idle."""
        if basis.frame != _frame(program):
            return
        width = len(program.column_type)
        idle = "l" * width + "b" * rows_per_job(program)
        jobs = [basis.jobs.get(_name(key), idle) for key in program.jobs]
        pairs = [basis.pairs.get(_name(key), idle[:width]) for key in program.pairs]
        status = _statuses()
        columns = "".join([basis.level, *(each[:width] for each in jobs), *pairs])
        rows = "".join([basis.kinds, *(each[width:] for each in jobs)])
        _set_basis(model, [status[letter] for letter in columns], [status[letter] for letter in rows])

    def _basis(self) -> Basis | None:
        """The last solution's, by the names of jobs and pairs."""
        if self._model is None or self._held is None:
            return self._from.basis
        found, held, layout = self._model.getBasis(), self._held, self._layout
        if not found.valid:
            return None
        letter = {status: letter for letter, status in _statuses().items()}
        columns = "".join([letter[status] for status in found.col_status])
        rows = "".join([letter[status] for status in found.row_status])
        width, height = len(held.column_type), rows_per_job(held)
        firsts = zip(layout.job_column.tolist(), layout.job_row.tolist(), strict=True)
        jobs = {_name(key): columns[column : column + width] + rows[row : row + height]
                for key, (column, row) in zip(held.jobs, firsts, strict=True)}  # fmt: skip
        pairs = {_name(key): columns[column : column + width]
                 for key, column in zip(held.pairs, layout.pair_column.tolist(), strict=True)}  # fmt: skip
        return Basis(_frame(held), columns[0], rows[: len(held.capacity)], jobs, pairs)

    def _pass_again(self, model: Model, program: Program, was: Ints, pair_was: Ints) -> None:
        """The whole model, starting from the basis of what was there before."""
        from highspy import HighsBasisStatus as Status

        basis, old, width = model.getBasis(), self._layout, len(program.column_type)
        valid, column_status, row_status = basis.valid, list(basis.col_status), list(basis.row_status)
        self._pass(model, program)
        if not valid:
            return
        new_columns = column_status[:1]
        for first in np.concatenate([_or_none(old.job_column, was), _or_none(old.pair_column, pair_was)]).tolist():
            new_columns += column_status[first : first + width] if first >= 0 else [Status.kLower] * width
        new_rows = row_status[: len(program.capacity)]
        per_job = rows_per_job(program)
        for first in _or_none(old.job_row, was).tolist():
            new_rows += row_status[first : first + per_job] if first >= 0 else [Status.kBasic] * per_job
        _set_basis(model, new_columns, new_rows)

    def _park(self, model: Model, held: Program, was: Ints, pair_was: Ints) -> None:
        """Close the columns of what left and lift its floor; the basis stays one."""
        gone, pairs_gone = missing(len(held.jobs), was), missing(len(held.pairs), pair_was)
        if not len(gone) + len(pairs_gone):
            return
        layout = self._layout
        first = np.concatenate([layout.job_column[gone], layout.pair_column[pairs_gone]])
        columns = (first[:, None] + np.arange(len(held.column_type))).ravel()
        nothing = np.zeros(len(columns))
        model.changeColsBounds(len(columns), columns.astype(np.int32), nothing, nothing)
        if held.levelled and len(gone):
            rows = (layout.job_row[gone] + 1).astype(np.int32)
            model.changeRowsBounds(len(rows), rows, np.full(len(rows), -np.inf), np.full(len(rows), np.inf))
        self._parked += len(gone) + len(pairs_gone)

    def _add(self, model: Model, program: Program, was: Ints, pair_was: Ints) -> None:
        new, new_pairs = np.flatnonzero(was < 0), np.flatnonzero(pair_was < 0)
        layout, width, per_job = self._layout, len(program.column_type), rows_per_job(program)
        next_column, next_row = model.getNumCol(), model.getNumRow()
        layout.job_column, layout.job_row = _or_none(layout.job_column, was), _or_none(layout.job_row, was)
        layout.pair_column = _or_none(layout.pair_column, pair_was)
        layout.job_column[new] = next_column + width * np.arange(len(new))
        layout.pair_column[new_pairs] = next_column + width * (len(new) + np.arange(len(new_pairs)))
        layout.job_row[new] = next_row + per_job * np.arange(len(new))
        if len(new):
            lower, upper = row_bounds(program, new)
            level = np.zeros((len(new), per_job))
            if program.push is not None:
                level[:, 1] = -program.push[new]
            filled = level.ravel() != 0
            starts = (np.cumsum(filled) - filled).astype(np.int32)
            numbers = np.zeros(np.count_nonzero(filled), dtype=np.int32)  # the level is column 0
            model.addRows(len(lower), lower, upper, len(numbers), starts, numbers, level.ravel()[filled])
        if len(new) + len(new_pairs):
            begins, rows, values = entries(program, layout, new, new_pairs)
            low, high = column_bounds(program, new, new_pairs)
            begins, rows = begins[:-1].astype(np.int32), rows.astype(np.int32)
            model.addCols(len(low), costs(program, new, new_pairs), low, high, len(values), begins, rows, values)

    def _change(self, model: Model, held: Program, program: Program, was: Ints, pair_was: Ints) -> None:
        """What differs in the rows and columns that stayed: limits, values, floors, pushes."""
        layout = self._layout
        stay, pair_stay = np.flatnonzero(was >= 0), np.flatnonzero(pair_was >= 0)
        old, pair_old = was[stay], pair_was[pair_stay]
        if (held.capacity != program.capacity).any():
            kinds = np.arange(len(program.capacity), dtype=np.int32)
            model.changeRowsBounds(len(kinds), kinds, np.full(len(kinds), -np.inf), program.capacity)
        if held.pull != program.pull:
            model.changeColCost(0, -program.pull)
        if program.levelled and held.level_limit != program.level_limit:
            model.changeColBounds(0, -np.inf, program.level_limit)
        _change_costs(model, held.value[old], program.value[stay], layout.job_column[stay])
        if len(pair_stay):
            pair_value = program.pair_value[pair_stay]
            _change_costs(model, held.pair_value[pair_old], pair_value, layout.pair_column[pair_stay])
        moved = stay[(held.least[old] != program.least[stay]).any(axis=1)]
        if len(moved):
            low, high = column_bounds(program, moved, np.zeros(0, dtype=np.int64))
            where = (layout.job_column[moved][:, None] + np.arange(len(program.column_type))).ravel()
            model.changeColsBounds(len(where), where.astype(np.int32), low, high)
        for i in stay[held.gpus[old] != program.gpus[stay]].tolist():
            for column, kind in enumerate(program.column_type.tolist()):
                model.changeCoeff(kind, int(layout.job_column[i]) + column, float(program.gpus[i]))
        self._ask(model, held, program, stay, old)

    def _ask(self, model: Model, held: Program, program: Program, stay: Ints, old: Ints) -> None:
        """Other pushes and floors of those who stayed."""
        if held.push is None or held.floor is None or program.push is None or program.floor is None:
            return
        layout = self._layout
        pushed = stay[held.push[old] != program.push[stay]]
        # All in column 0; even thousands of calls cost less than a new basis would.
        for row, push in zip((layout.job_row[pushed] + 1).tolist(), program.push[pushed].tolist(), strict=True):
            model.changeCoeff(row, 0, -push)
        raised = stay[held.floor[old] != program.floor[stay]]
        if len(raised):
            where = (layout.job_row[raised] + 1).astype(np.int32)
            model.changeRowsBounds(len(where), where, program.floor[raised], np.full(len(where), np.inf))

    def _run(self, model: Model) -> None:
        from highspy import HighsModelStatus

        warm = bool(model.getBasis().valid)
        if not (warm and self._warm):  # else the model has been told
            large = model.getNumCol() >= INTERIOR_FROM
            model.setOptionValue("simplex_dual_edge_weight_strategy", DEVEX if warm else -1)
            model.setOptionValue("dual_simplex_cost_perturbation_multiplier", 0.0 if warm else 1.0)
            model.setOptionValue("solver", "ipm" if large and not warm else "simplex")
            self._warm = warm
        for attempt in ("as it is", "from nothing"):
            if attempt == "from nothing":
                model.clearSolver()
                self._warm = False
                model.setOptionValue("simplex_dual_edge_weight_strategy", -1)
                model.setOptionValue("dual_simplex_cost_perturbation_multiplier", 1.0)
                model.setOptionValue("solver", "simplex")
            model.run()
            self.runs += 1
            self.iterations += max(0, model.getInfoValue("simplex_iteration_count")[1])
            if model.getModelStatus() == HighsModelStatus.kOptimal:
                return
        raise SolverError(f"no optimum: {model.modelStatusToString(model.getModelStatus())}")

    def _read(self, model: Model, program: Program) -> Solution:
        solution, layout = model.getSolution(), self._layout
        columns = np.array(solution.col_value)
        width = np.arange(len(program.column_type))
        own, shared = layout.job_column[:, None] + width, layout.pair_column[:, None] + width
        reduced = np.maximum(np.array(solution.col_dual), 0.0)
        duals = np.zeros(len(program.jobs))
        if program.levelled:
            duals = np.maximum(np.array(solution.row_dual)[layout.job_row + 1], 0.0)
        return Solution(
            alone=columns[own],
            together=columns[shared],
            level=float(columns[0]),
            duals=duals,
            lost=reduced[own],
            pair_lost=reduced[shared],
            objective=-float(model.getObjectiveValue()),
        )


def _or_none(first: Ints, was: Ints) -> Ints:
    """Where the first row or column was; −1 for what is new."""
    if not len(first):
        return np.full(len(was), -1)
    return np.where(was >= 0, first[was], -1)


def _change_costs(model: Model, old: Floats, new: Floats, first: Ints) -> None:
    changed = np.argwhere(old != new)
    if len(changed):
        where = (first[changed[:, 0]] + changed[:, 1]).astype(np.int32)
        model.changeColsCost(len(where), where, -new[changed[:, 0], changed[:, 1]])


def _frame(program: Program) -> tuple[int, ...]:
    return rows_per_job(program), len(program.capacity), *program.column_type.tolist()


@lru_cache(maxsize=4096)
def _name(key: Hashable) -> str:
    """Of a row, as text: a job's id, those of a pair, or what a row that stands for many jobs is called."""
    return key if isinstance(key, str) else "+".join(map(str, key)) if isinstance(key, tuple) else str(key)


@cache
def _statuses() -> dict[str, Any]:
    from highspy import HighsBasisStatus as Status

    return {"l": Status.kLower, "b": Status.kBasic, "u": Status.kUpper, "z": Status.kZero, "n": Status.kNonbasic}


def _set_basis(model: Model, columns: list[Any], rows: list[Any]) -> None:
    """A basis that may have too few or too many members after a deletion; HiGHS completes it."""
    from highspy import HighsBasis
    from highspy import HighsBasisStatus as Status

    basis = HighsBasis()
    basis.col_status, basis.row_status = columns, rows
    basis.valid = True
    basis.alien = columns.count(Status.kBasic) + rows.count(Status.kBasic) != len(rows)
    model.setBasis(basis)


def quiet_model() -> Model:
    import highspy

    model: Model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)  # the same answer on every machine
    model.setOptionValue("simplex_scale_strategy", 0)  # the program's rows are scaled already
    model.setOptionValue("primal_feasibility_tolerance", TOLERANCE)
    model.setOptionValue("dual_feasibility_tolerance", TOLERANCE)
    return model
