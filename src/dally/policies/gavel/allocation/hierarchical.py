"""Fairness between entities, and fairness or first come, first served inside each (section 4.3):

    repeat: maximise t with  s_m · (thr(m, X)/thr(m, X^eq) − level_m) ≥ w_m·t  for the jobs in play
            and nobody below level_m; raise the levels by it; freeze the bottlenecked jobs

An entity's weight is shared by its jobs that are not frozen yet: in proportion to their own weights (fairness), or
all of it to the oldest one (FIFO). When a job is frozen, its weight goes to its siblings: the entity keeps its
share. Bottlenecked jobs are read off the duals (see `water_filling`), not off the paper's mixed-integer program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from dally.core.errors import UserError
from dally.policies.gavel.allocation.aggregation import solve
from dally.policies.gavel.allocation.grid import Flags, Floats, Grid, Ints, allocation, grid, within_limits
from dally.policies.gavel.allocation.problem import Allocation, Problem
from dally.policies.gavel.allocation.program import Solution, levelled, weighted
from dally.policies.gavel.allocation.solver import Solver
from dally.policies.gavel.allocation.water_filling import CLOSE, attainable, bottlenecks

Inside = Literal["fairness", "fifo"]


def hierarchical(
    problem: Problem,
    *,
    inside: Mapping[str | None, Inside] | Inside = "fairness",
    aware: bool = True,
    solver: Solver | None = None,
    aggregate: bool = True,
) -> Allocation:
    """`inside` is one rule for all entities, or one per entity (those not named: fairness).

    Jobs without an entity form one of weight 1. The objective is the first t: the level all entities reach.
    """
    cells = grid(problem, aware)
    entities = _entities(cells, inside)
    if not cells.ids:
        return allocation(cells, cells.rate, np.zeros((len(cells.pairs), len(cells.column_type))), 0.0)
    solver = solver or Solver()
    unit = cells.equal_share / (cells.gpus * cells.best)  # q per level and weight
    floor, frozen = np.zeros(len(unit)), np.zeros(len(unit), dtype=bool)
    first: float | None = None
    found: Solution | None = None
    while not frozen.all():
        push = _weights(entities, frozen) * unit
        found = solve(levelled(cells, push, floor), solver, aggregate)
        risen = max(0.0, found.level)
        first = risen if first is None else first
        floor = attainable(cells, found, floor + push * risen)
        stuck = (push > 0) & bottlenecks(found.duals, push)
        frozen |= stuck if stuck.any() else push > 0
        if risen * push.max() <= CLOSE and not _anybody(cells, floor, ~frozen, solver, aggregate):
            break
    assert found is not None and first is not None
    alone, together = within_limits(cells, found.alone, found.together)
    return allocation(cells, alone, together, first)


Entity = tuple[float, Inside, Ints, Floats]  # weight, rule, jobs by age, their weights


def _entities(cells: Grid, inside: Mapping[str | None, Inside] | Inside) -> list[Entity]:
    jobs = [cells.problem.jobs[i] for i in cells.index]
    weights = cells.problem.entity_weights or {}
    members: dict[str | None, list[int]] = {}
    for place in sorted(range(len(jobs)), key=lambda place: jobs[place].arrived):  # stable: ties by place
        members.setdefault(jobs[place].entity, []).append(place)
    entities: list[Entity] = []
    for name, places in members.items():
        rule = inside if isinstance(inside, str) else inside.get(name, "fairness")
        if rule not in ("fairness", "fifo"):
            raise UserError(f"allocation: inside entity {name!r} jobs share by 'fairness' or 'fifo', not {rule!r}")
        weight = weights.get(name, 1.0) if name is not None else 1.0
        entities.append((weight, rule, np.array(places), np.array([jobs[place].weight for place in places])))
    return entities


def _weights(entities: list[Entity], frozen: Flags) -> Floats:
    """What each job weighs in this round; 0 for those frozen or not yet in play."""
    weights = np.zeros(len(frozen))
    for weight, rule, places, own in entities:
        free = ~frozen[places]
        if not free.any():
            continue
        if rule == "fairness":
            weights[places[free]] = weight * own[free] / own[free].sum()
        else:
            weights[places[free][0]] = weight
    return weights


def _anybody(cells: Grid, floor: Floats, waiting: Flags, solver: Solver, aggregate: bool) -> bool:
    """Whether any job not yet frozen can gain at all; saves a queue of thousands one program each."""
    if not waiting.any():
        return False
    program = weighted(cells, np.where(waiting, 1.0 / cells.best, 0.0))
    program = replace(program, push=np.zeros(len(floor)), floor=floor, level_limit=0.0)
    return bool(solve(program, solver, aggregate).objective > floor[waiting].sum() + 1e-7)
