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
from hashlib import blake2b

import numpy as np

from dally.policies.gavel.allocation.grid import Floats, Ints
from dally.policies.gavel.allocation.program import Program, Solution
from dally.policies.gavel.allocation.solver import Solver


def solve(program: Program, solver: Solver, aggregate: bool = True) -> Solution:
    """The optimum of a program, through its merged form when that is smaller."""
    if not aggregate:
        return solver.solve(program)
    lasting = _lines(_lasting(program))
    if len(set(lasting)) == len(lasting):  # no two alike
        return solver.solve(program)
    merged, group, count = merge(program, lasting)
    found = solver.solve(merged)
    duals, lost = (found.duals / count)[group], (found.lost / count[:, None])[group]
    return replace(found, alone=found.alone[group], duals=duals, lost=lost)


def merge(program: Program, lasting: list[bytes] | None = None) -> tuple[Program, Ints, Ints]:
    """The program with one row per kind of job, the row of each job, and how many jobs each row stands for."""
    passing = [program.value, program.least]
    if program.push is not None and program.floor is not None:
        passing += [program.push[:, None], program.floor[:, None]]
    alone = np.ones(len(program.jobs), dtype=bool)
    alone[program.members.ravel()] = False
    groups: dict[object, int] = {}
    group = np.empty(len(program.jobs), dtype=np.int64)
    lines = zip(lasting or _lines(_lasting(program)), _lines(passing), alone.tolist(), strict=True)
    for place, (always, now, free) in enumerate(lines):
        group[place] = groups.setdefault((always, now) if free else place, len(groups))
    count = np.bincount(group, minlength=len(groups))
    first = np.empty(len(groups), dtype=np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # the earliest is written last
    # Rows are named after what lasts, so that the solver knows them again when weights and floors have moved.
    seen: dict[bytes, int] = {}
    names: list[Hashable] = []
    for key, place in zip(groups, first.tolist(), strict=True):
        if isinstance(key, tuple):
            seen[key[0]] = seen.get(key[0], 0) + 1
            names.append((blake2b(key[0], digest_size=9).hexdigest(), seen[key[0]]))
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


def _lasting(program: Program) -> list[Floats]:
    """What a job is for as long as it lives."""
    return [program.gpus[:, None], program.gain]


def _lines(parts: list[Floats]) -> list[bytes]:
    """One string of bytes per row; −0.0 and 0.0 are one number."""
    table = np.concatenate(parts, axis=1) + 0.0
    width, text = table.shape[1] * table.itemsize, table.tobytes()
    return [text[start : start + width] for start in range(0, len(text), width)]
