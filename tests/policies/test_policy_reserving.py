"""EASY and conservative backfill: whom a job may pass, against schedulers of their own that count GPUs, or machines."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import RACKS, Spec, cluster, job, play
from dally.core import plan as pl
from dally.core.topology import MachineSpec, Topology, build_topology
from dally.policies.reserving import Profile

GPUS = 8
ONE = cluster(GPUS)
MACHINES, EACH = 3, 4
THREE = cluster(MACHINES, EACH)


def told(spec: Spec, limit: float) -> Spec:
    return Spec(replace(spec.job, declared_duration=limit), spec.truth)


def shaped(spec: Spec, limit: float, nodes: int, among: str | None = None) -> Spec:
    return Spec(replace(spec.job, declared_duration=limit, nodes=nodes, among=among), spec.truth)


def starts(jobs: list[Spec], kind: str, topology: Topology = ONE) -> dict[str, float]:
    played = play(jobs, topology, kind if "[" in kind else f"fifo[backfill={kind}]")
    return {entry.job: time for time, entry in played.of(pl.Start)}  # type: ignore[union-attr]


def test_easy_lets_a_short_job_pass_and_a_long_one_not() -> None:
    jobs = [told(job("runs", 6, 100), 100), told(job("first", 8, 10, 1), 10), told(job("long", 2, 150, 2), 150),
            told(job("short", 2, 90, 3), 90)]  # fmt: skip
    assert starts(jobs, "easy") == {"runs": 0, "short": 3, "first": 100, "long": 110}
    assert starts(jobs, "any")["first"] == 190 and starts(jobs, "true") == starts(jobs, "any")
    assert starts(jobs, "false")["short"] == 110


def test_easy_lets_a_long_job_have_what_the_first_leaves_over() -> None:
    jobs = [told(job("runs", 6, 100), 100), told(job("first", 6, 10, 1), 10), told(job("beside", 2, 500, 2), 500)]
    assert starts(jobs, "easy")["beside"] == 2


def test_easy_delays_the_second_of_the_queue_where_conservative_does_not() -> None:
    # `late` fits beside `first`, and keeps `second` waiting: EASY has promised nothing to it
    jobs = [told(job("runs", 4, 100), 100), told(job("first", 6, 100, 1), 100), told(job("second", 8, 10, 2), 10),
            told(job("late", 2, 400, 3), 400)]  # fmt: skip
    easy, careful = starts(jobs, "easy"), starts(jobs, "conservative")
    assert easy["late"] == 3 and easy["second"] == 403
    assert careful["second"] == 200 and careful["late"] == 210


def reference(rows: list[tuple[int, int, int, int]], conservative: bool) -> list[int]:
    """Second by second, in the plainest words there are: (submission, GPUs, duration, limit) → starts."""
    begun: dict[int, int] = {}
    for now in range(10_000):
        if len(begun) == len(rows):
            break
        free = GPUS - sum(rows[i][1] for i, start in begun.items() if now < start + rows[i][2])
        # GPUs that are spoken for in each second to come, by those who run and those who have a reservation
        spoken = [sum(rows[i][1] for i, start in begun.items() if now < start + rows[i][2]
                      and (second == now or second < start + rows[i][3])) for second in range(now, now + 3000)]
        blocked = False
        for index in (i for i in range(len(rows)) if i not in begun and rows[i][0] <= now):
            _, gpus, _, limit = rows[index]
            wait = 0
            while any(used + gpus > GPUS for used in spoken[wait : wait + limit]):
                wait += 1
            if wait == 0 and gpus <= free:
                begun[index] = now
                free -= gpus
            elif blocked and not conservative:
                continue
            blocked = blocked or wait > 0
            for second in range(wait, wait + limit):
                spoken[second] += gpus
    return [begun[i] for i in range(len(rows))]


@pytest.mark.parametrize("kind", ["easy", "conservative"])
@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 20), st.integers(1, GPUS), st.integers(1, 30), st.integers(0, 20)),
                     min_size=1, max_size=9))  # fmt: skip
def test_whole_runs_are_those_of_the_plain_rule(kind: str, rows: list[tuple[int, int, int, int]]) -> None:
    ordered = sorted((submit, gpus, seconds, seconds + more) for submit, gpus, seconds, more in rows)
    jobs = [told(job(f"j{i}", gpus, seconds, submit), limit) for i, (submit, gpus, seconds, limit) in enumerate(ordered)]
    found = starts(jobs, kind)
    assert [found[f"j{i}"] for i in range(len(ordered))] == reference(ordered, kind == "conservative")


@pytest.mark.parametrize("kind", ["easy", "conservative"])
@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 20), st.integers(1, GPUS), st.integers(1, 30), st.integers(0, 20)),
                     min_size=1, max_size=9))  # fmt: skip
def test_slurm_by_the_book_is_the_plain_rule_in_minutes(kind: str, rows: list[tuple[int, int, int, int]]) -> None:
    ordered = sorted((submit, gpus, length, length + more) for submit, gpus, length, more in rows)
    jobs = [told(job(f"j{i}", gpus, 60.0 * length, 60.0 * submit), 60.0 * limit)
            for i, (submit, gpus, length, limit) in enumerate(ordered)]  # fmt: skip
    found = starts(jobs, f"slurm[textbook={kind}]")
    assert [found[f"j{i}"] / 60 for i in range(len(ordered))] == reference(ordered, kind == "conservative")


def test_a_profile_finds_the_first_gap_that_is_long_enough() -> None:
    profile = Profile(0.0, 2, [(10.0, 2), (20.0, 4), (5.0, 0)])
    assert profile.earliest(2, 100) == 0 and profile.earliest(3, 1) == 10 and profile.earliest(8, 1) == 20
    assert profile.earliest(9, 1) == math.inf
    profile.take(10.0, 5.0, 4)
    assert profile.earliest(2, 11) == 15 and profile.earliest(2, 10) == 0 and profile.earliest(4, 5) == 15


# --- gangs of so many machines: a number of free GPUs is no place -------------------------------------------------------


@pytest.mark.parametrize("kind", ["easy", "conservative"])
def test_a_reservation_is_for_a_machine_that_holds_the_gang(kind: str) -> None:
    # One GPU is free on each of two machines: two in all, and no place for `pair`, which will be there at 100. By
    # numbers it would be due at once and keep both for itself until then.
    jobs = [shaped(job("a", 3, 100), 100, 1), shaped(job("b", 3, 200), 200, 1), shaped(job("pair", 2, 10, 3), 10, 1),
            shaped(job("long", 1, 400, 4), 400, 1), shaped(job("wide", 2, 400, 5), 400, 2),
            shaped(job("late", 1, 400, 6), 400, 1)]  # fmt: skip
    found = starts(jobs, kind, cluster(2, 4))
    assert found["pair"] == 100 and found["long"] == 4 and found["late"] == (6 if kind == "easy" else 110), found
    if kind == "conservative":
        assert found["wide"] == 100, "promised as soon as both machines have a GPU left over"


@pytest.mark.parametrize("kind", ["easy", "conservative"])
def test_who_waits_for_one_set_of_machines_keeps_nobody_from_another(kind: str) -> None:
    topology = build_topology(RACKS, [MachineSpec(("r0", f"n{i}"), 4, sets=("a" if i < 1 else "b",)) for i in range(2)])
    jobs = [shaped(job("a1", 2, 100), 100, 1, "a"), shaped(job("b1", 2, 50), 50, 1, "b"),
            shaped(job("a2", 4, 10, 1), 10, 1, "a"), shaped(job("b2", 4, 10, 2), 10, 1, "b"),
            shaped(job("b3", 2, 300, 3), 300, 1, "b"), shaped(job("b4", 2, 40, 4), 40, 1, "b")]  # fmt: skip
    assert starts(jobs, kind, topology) == {"a1": 0, "b1": 0, "a2": 100, "b4": 4, "b2": 50, "b3": 60}


def reference_of_machines(rows: list[tuple[int, int, int, int, int]], conservative: bool) -> list[int]:
    """The same second by second with machines: (submission, machines, GPUs on each, duration, limit) → starts."""
    begun: dict[int, tuple[int, list[int]]] = {}
    for now in range(10_000):
        if len(begun) == len(rows):
            break
        free = [[EACH] * MACHINES for _ in range(3000)]  # by second from now on
        for index, (start, where) in begun.items():
            if now < start + rows[index][3]:
                # who has ended by its limit is gone in the next second, and not in this one
                for second in range(max(1, start + rows[index][4] - now)):
                    for machine in where:
                        free[second][machine] -= rows[index][2]
        blocked = False
        for index in (i for i in range(len(rows)) if i not in begun and rows[i][0] <= now):
            _, nodes, each, _, limit = rows[index]
            wait = 0
            while len(roomy := [m for m in range(MACHINES)
                                if all(then[m] >= each for then in free[wait : wait + limit])]) < nodes:  # fmt: skip
                wait += 1
                if wait and blocked and not conservative:
                    break
            if len(roomy) < nodes:
                continue
            if wait == 0:
                begun[index] = now, roomy[:nodes]
            elif blocked and not conservative:
                continue
            blocked = blocked or wait > 0
            for second in range(wait, wait + limit):
                for machine in roomy[:nodes]:
                    free[second][machine] -= each
    return [begun[i][0] for i in range(len(rows))]


@pytest.mark.parametrize("kind", ["easy", "conservative"])
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 20), st.integers(1, MACHINES), st.integers(1, EACH), st.integers(1, 30),
                               st.integers(0, 20)), min_size=1, max_size=9))  # fmt: skip
def test_whole_runs_of_shapes_are_those_of_the_plain_rule(kind: str, rows: list[tuple[int, int, int, int, int]]) -> None:
    ordered = sorted((submit, nodes, each, seconds, seconds + more) for submit, nodes, each, seconds, more in rows)
    jobs = [shaped(job(f"j{i}", nodes * each, seconds, submit), limit, nodes)
            for i, (submit, nodes, each, seconds, limit) in enumerate(ordered)]  # fmt: skip
    found = starts(jobs, kind, THREE)
    assert [found[f"j{i}"] for i in range(len(ordered))] == reference_of_machines(ordered, kind == "conservative")
