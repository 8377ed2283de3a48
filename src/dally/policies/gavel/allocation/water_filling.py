"""Water-filling (section 4.3): raise all levels together, freeze who cannot rise, go on with the others.

Who cannot rise is read off the dual solution instead of the paper's mixed-integer program: a job whose floor has a
positive dual is at its level in every optimum, so freezing it there is safe. A dual solution may miss some of the
bottlenecked jobs; the next solution then stops at the same level and names others, so the end is the same.

Jobs also stop because they already run all the time in the best column that is left to them: by complementary
slackness a fraction with a positive reduced cost is zero in every optimum, and all later levels are such optima, so
the column is closed to the job from then on. With static weights that needs no
solution of its own: a job asks for min(push·t, cap), and the largest feasible t is found by cuts. A dual
solution y of the program "maximise τ with q_m ≥ τ·r_m(t)" proves Σ y·q ≤ τ·Σ y·r(t) for all allocations, hence
Σ y·r(t*) cannot exceed it; its root in t is the next, smaller candidate.
"""

from __future__ import annotations

import numpy as np

from dally.core.records import dataclass
from dally.policies.gavel.allocation.aggregation import solve
from dally.policies.gavel.allocation.grid import Flags, Floats, Grid, within_limits
from dally.policies.gavel.allocation.program import Solution, levelled
from dally.policies.gavel.allocation.solver import Solver

PART = 1e-7  # of the largest contribution to the dual, below which a dual counts as zero
CLOSE = 1e-9  # relative: levels that are the same
ROUNDS = 200  # cuts for one level; a handful is usual


@dataclass(frozen=True, slots=True)
class Level:
    """One stop of the water: what was found, and who is stuck there."""

    found: Solution
    height: float  # t; infinite if everybody runs all the time in the best column
    stuck: Flags


def fill_up(cells: Grid, push: Floats, solver: Solver, aggregate: bool = True) -> Solution:
    """The lexicographically largest sorted vector of q_m / push_m, with weights that do not change."""
    open_alone = cells.rate > 0
    open_together = np.asarray((cells.pair_rate > 0).all(axis=1))
    floor = np.zeros(len(push))
    active = np.ones(len(push), dtype=bool)
    found: Solution | None = None
    while active.any():
        cap = np.maximum(most(cells, open_alone, open_together), floor)
        level = _next_level(cells, push, cap, floor, active, solver, aggregate)
        found = level.found
        newly = active & level.stuck
        floor = np.where(newly, np.minimum(push * level.height, cap), floor)
        floor = attainable(cells, found, floor)
        active &= ~newly
        worst = PART * max(found.lost.max(initial=0.0), found.pair_lost.max(initial=0.0))
        open_alone &= found.lost <= worst
        open_together &= found.pair_lost <= worst
    assert found is not None
    return found


def most(cells: Grid, alone: Flags | None = None, together: Flags | None = None) -> Floats:
    """The largest q of each job in the columns that are open: 1 in its best, or more if faster in company."""
    rate = cells.rate if alone is None else np.where(alone, cells.rate, 0.0)
    cap = np.asarray(rate.max(axis=1, initial=0.0) / cells.best)
    if len(cells.members):
        shared = cells.pair_rate if together is None else np.where(together[:, None, :], cells.pair_rate, 0.0)
        np.maximum.at(cap, cells.members, (shared / cells.best[cells.members][:, :, None]).max(axis=2))
    return cap


def attainable(cells: Grid, found: Solution, floor: Floats) -> Floats:
    """The floors without the solver's last digits: a solution within all limits reaches them."""
    alone, together = within_limits(cells, found.alone, found.together)
    reached = cells.throughput(alone, together) / cells.best
    return np.asarray(np.maximum(0.0, np.minimum(floor, reached * (1 - CLOSE) - CLOSE)))


def bottlenecks(duals: Floats, push: Floats) -> Flags:
    """Jobs whose floor holds the level down. Σ dual·push is 1 at an optimum."""
    part = duals * push
    return np.asarray(part > PART * part.max(initial=0.0))


def _next_level(
    cells: Grid,
    push: Floats,
    cap: Floats,
    floor: Floats,
    active: Flags,
    solver: Solver,
    aggregate: bool,
) -> Level:
    height = float((cap / push)[active].max())  # everybody saturated: an upper bound
    guess, first = solver.guess, bool(active.all())
    if first and guess is not None and guess < height:
        # Where the water stopped last time. If no dual bounds the level above it, it stops there again.
        asked = np.minimum(push * guess, cap)
        found = solve(levelled(cells, asked, floor), solver, aggregate)
        height = min(height, _root(found.duals, push, cap, float(found.level * (found.duals @ asked))))
        if found.level >= 1 - CLOSE and height <= guess * (1 + CLOSE):
            return _stop(found, guess, asked, active, active & (cap <= push * guess * (1 + CLOSE)))
    else:
        # Without caps first: one program, and enough unless only jobs that run all the time stop the others.
        asked = np.where(active, push, 0.0)
        found = solve(levelled(cells, asked, floor), solver, aggregate)
        stuck = active & bottlenecks(found.duals, asked)
        saturated = active & (cap <= push * found.level * (1 + CLOSE))
        if (stuck & ~saturated).any() or saturated.sum() == active.sum():
            solver.guess = None if first else guess
            return Level(found, found.level, stuck | saturated)
    for _ in range(ROUNDS):
        asked = np.where(active, np.minimum(push * height, cap), 0.0)
        found = solve(levelled(cells, asked, floor), solver, aggregate)
        saturated = active & (cap <= push * height * (1 + CLOSE))
        if found.level >= 1 - CLOSE:
            if first:
                solver.guess = height if saturated.any() else None
            return _stop(found, height, asked, active, saturated)
        lower = _root(found.duals * active, push, cap, float(found.level * (found.duals @ asked)))
        if not lower < height * (1 - CLOSE):  # no further: the last digits disagree
            break
        height = lower
    stuck = active & (bottlenecks(found.duals, asked) | saturated)
    return Level(found, height * found.level, stuck)


def _stop(found: Solution, height: float, asked: Floats, active: Flags, saturated: Flags) -> Level:
    """The level is reached: stuck are those who run all the time, and those the others cannot do without."""
    stuck = saturated | (active & bottlenecks(found.duals, np.where(saturated, 0.0, asked)))
    return Level(found, height, stuck if stuck.any() else active)


def _root(duals: Floats, push: Floats, cap: Floats, total: float) -> float:
    """The largest t with Σ dual·min(push·t, cap) ≤ total: piecewise linear, so exact."""
    used = np.flatnonzero(duals > 0)
    order = used[np.argsort((cap / push)[used], kind="stable")]
    ends = (cap / push)[order]
    slope = np.concatenate([np.cumsum((duals * push)[order][::-1])[::-1], [0.0]])
    full = np.concatenate([[0.0], np.cumsum((duals * cap)[order])])
    # With the first i jobs full, the sum at t is full[i] + slope[i]·t.
    at_ends = full[:-1] + slope[:-1] * ends
    place = int(np.searchsorted(at_ends, total, side="left"))
    if place >= len(order):
        return float("inf")
    return float(max(0.0, (total - full[place]) / slope[place]))
