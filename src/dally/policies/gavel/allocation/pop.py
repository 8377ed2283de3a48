"""POP (SOSP'21): the jobs are split at random into k parts, each part gets 1/k of the GPUs, and each is solved
alone.

k problems of 1/k the size are faster than one, and when jobs are many and small against the cluster the parts look
alike, so little is lost. The result is feasible but not optimal; the benchmark says by how much. Pairs of jobs that
fall into different parts are not used. Not the default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from dally.core.errors import UserError
from dally.policies.gavel.allocation.problem import Allocation, Fractions, Problem, Row
from dally.policies.gavel.allocation.solver import Solver


def partitioned(
    problem: Problem,
    objective: Callable[[Problem, Solver], Allocation],
    *,
    parts: int,
    seed: int,
    combine: Callable[[Sequence[float]], float] = min,
    solvers: Sequence[Solver] | None = None,
) -> Allocation:
    """`objective` for each part, put together. `combine` makes one objective of theirs: min, max or sum.

    Give the same list of solvers again to start each part from its last basis; that helps only if the jobs fall
    into the same parts, which they do as long as none leaves and new ones come last.
    """
    if parts < 1:
        raise UserError(f"allocation: the number of parts must be at least 1, not {parts}")
    fractions: dict[Row, Fractions] = {(job.id,): (0.0,) * len(problem.types) for job in problem.jobs}
    notes: list[str] = []
    reached: list[float] = []
    for number, part in enumerate(split(problem, parts, seed)):
        answer = objective(part, solvers[number] if solvers else Solver())
        fractions.update(answer.fractions)
        notes.extend(answer.notes)
        if part.jobs:
            reached.append(answer.objective)
    return Allocation(fractions, combine(reached) if reached else 0.0, tuple(notes))


def split(problem: Problem, parts: int, seed: int) -> list[Problem]:
    """Every k jobs in a row are dealt to the k parts at random: equal sizes, stable when jobs are appended."""
    rng = Random(seed)
    part_of: list[int] = []
    while len(part_of) < len(problem.jobs):
        hand = list(range(parts))
        rng.shuffle(hand)
        part_of.extend(hand)
    problems = []
    for part in range(parts):
        places = [place for place in range(len(problem.jobs)) if part_of[place] == part]
        new = {old: place for place, old in enumerate(places)}
        pairs = tuple(
            replace(pair, first=new[pair.first], second=new[pair.second])
            for pair in problem.pairs
            if pair.first in new and pair.second in new
        )
        jobs = tuple(problem.jobs[place] for place in places)
        problems.append(replace(problem, jobs=jobs, pairs=pairs, share=problem.share / parts))
    return problems
