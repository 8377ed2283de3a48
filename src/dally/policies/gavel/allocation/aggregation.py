"""Identical jobs are one row of the program: fewer variables, the same optimum.

Jobs that agree in every coefficient (gang, throughputs, value, push, floor) and are in no pair may be exchanged in
any solution. The average of a solution over all such exchanges is feasible, since the constraints are convex, and
as good, since the objective is linear in X and t. So there is an optimum that treats them alike, and a row that
stands for n of them with n times the GPUs and n times the value finds it. This holds for every objective here that
is a linear program or a sequence of them. Jobs of first come, first served differ in value and are hardly ever
merged; AlloX and the isolated split do not use this program.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from dally.policies.gavel.allocation.grid import Ints
from dally.policies.gavel.allocation.kinds import Kinds, first_of, lines, name_of
from dally.policies.gavel.allocation.program import Program, Solution
from dally.policies.gavel.allocation.solver import Solver


def solve(program: Program, solver: Solver, aggregate: bool = True) -> Solution:
    """The optimum of a program, through its merged form when that is smaller."""
    if not aggregate:
        return solver.solve(program)
    kinds = solver.kinds
    if kinds is None or not kinds.are_of(program):
        kinds = solver.kinds = Kinds(program)
    if not kinds.alike:
        return solver.solve(program)
    merged, group, count = merge(program, kinds)
    found = solver.solve(merged)
    duals, lost = (found.duals / count)[group], (found.lost / count[:, None])[group]
    return Solution(found.alone[group], found.together, found.level, duals, lost, found.pair_lost, found.objective)


def merge(program: Program, kinds: Kinds | None = None) -> tuple[Program, Ints, Ints]:
    """The program with one row per kind of job, the row of each job, and how many jobs each row stands for."""
    kinds = kinds or Kinds(program)
    if kinds.asked_alike(program):
        assert program.push is not None and program.floor is not None
        merged = Program(
            kinds.names,
            program.pairs,
            program.members,
            program.column_type,
            program.capacity,
            kinds.gpus,
            kinds.gain,
            kinds.nothing,
            kinds.nothing,
            program.pair_gain,
            program.pair_value,
            program.pull,
            program.push[kinds.first],
            program.floor[kinds.first],
            program.level_limit,
        )
        return merged, kinds.group, kinds.count
    return _merge_asked(program, kinds)


def _merge_asked(program: Program, kinds: Kinds) -> tuple[Program, Ints, Ints]:
    """Where not all jobs of a kind are asked for the same: a row for all that are."""
    passing = [program.value, program.least]
    if program.push is not None and program.floor is not None:
        passing += [program.push[:, None], program.floor[:, None]]
    alone = np.ones(len(program.jobs), dtype=bool)
    alone[program.members.ravel()] = False
    groups: dict[object, int] = {}
    group = np.empty(len(program.jobs), dtype=np.int64)
    asked = zip(kinds.lines, lines(passing), alone.tolist(), strict=True)
    for place, (always, now, free) in enumerate(asked):
        group[place] = groups.setdefault((always, now) if free else place, len(groups))
    count = np.bincount(group, minlength=len(groups))
    first = first_of(group, len(groups))
    # Rows are named after what lasts, so that the solver knows them again when weights and floors have moved.
    seen: dict[bytes, int] = {}
    names: list[Hashable] = []
    for key, place in zip(groups, first.tolist(), strict=True):
        if isinstance(key, tuple):
            seen[key[0]] = seen.get(key[0], 0) + 1
            names.append((name_of(key[0]), seen[key[0]]))
        else:
            names.append(program.jobs[place])
    merged = replace(
        program,
        jobs=tuple(names),
        members=group[program.members],
        gpus=program.gpus[first] * count,
        gain=program.gain[first],
        value=program.value[first] * count[:, None],
        least=program.least[first],
        push=None if program.push is None else program.push[first],
        floor=None if program.floor is None else program.floor[first],
    )
    return merged, group, count
