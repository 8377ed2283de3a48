"""The released simulator's rules: against its results, and rule by rule on small cases."""

from __future__ import annotations

import csv
import os
import random
from pathlib import Path

import numpy as np
import pytest

from builders import mixed_cluster
from dally.catalog.clusters import load_cluster
from dally.catalog.throughputs import Throughputs, read_throughputs
from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.policies.gavel import central
from dally.policies.gavel.allocation.problem import JobRow
from dally.policies.gavel.released_objectives import objective
from dally.policies.gavel.released_order import ranked
from dally.policies.options import make_policy
from dally.simulator.experiment import Experiment
from dally.simulator.run import Run
from dally.traces import load_trace
from dally.traces.trace import Trace

REFERENCE = Path(os.environ.get("DALLY_REFERENCE", Path(__file__).parents[4] / "shared")) / "reference/gavel"

# options → results of the released simulator; largest relative errors allowed of average JCT and makespan, and how
# many of the 96 jobs end within a second of when they ended there. Interior points agree to about 1e-5; where two
# jobs of one type tie, that decides who goes first, and from there on single jobs differ while averages do not.
RUNS = [
    ("objective=fifo", "fifo_perf", 0.0001, 96),
    ("objective=makespan", "min_total_duration_perf", 0.005, 90),
    ("objective=max-min-fairness", "max_min_fairness_perf", 0.02, 15),
    ("objective=max-min-fairness,aware=false", "max_min_fairness", 0.02, 10),
    ("objective=finish-time-fairness", "finish_time_fairness_perf", 0.02, 10),
]


@pytest.mark.reference
@pytest.mark.parametrize(("options", "results", "error", "same"), RUNS)
def test_the_reference_runs_are_matched(options: str, results: str, error: float, same: int) -> None:
    if not REFERENCE.is_dir():
        pytest.skip("the reference results kept beside the repository are not there")
    experiment = Experiment(load_trace(str(REFERENCE / "jobs_96.trace")), load_cluster("v100=8,p100=16,k80=24"),
                            "ideal", "0", throughputs=read_throughputs(REFERENCE / "throughputs.json"))  # fmt: skip
    rows = experiment.run(f"gavel[{options},variant=released]").ledger.rows
    with (REFERENCE / f"jobs_96-8_16_24-{results}.csv").open() as file:
        known = {row["job_id"]: (float(row["jct"]), float(row["end"])) for row in csv.DictReader(file)}
    assert {row.job_id for row in rows if row.outcome == "finished"} == set(known)
    average = sum(row.jct or 0.0 for row in rows) / len(rows)
    assert average == pytest.approx(sum(jct for jct, _ in known.values()) / len(known), rel=error)
    assert max(row.end or 0.0 for row in rows) == pytest.approx(max(end for _, end in known.values()), rel=error)
    assert sum(abs((row.jct or 0.0) - known[row.job_id][0]) < 1.0 for row in rows) >= same


def table(**rates: dict[tuple[str, int], float]) -> Throughputs:
    return Throughputs("table", rates, {}, {})


def released(jobs: list[tuple[float, int, float]], options: str = "objective=fifo",
             cost: str = "0", **gpus: tuple[int, ...]) -> Run:  # fmt: skip
    """(arrival, gang, steps) of job type `a`: 1 step a second and GPU on V100, half that on K80."""
    made = [Job(f"j{i}", at, gang, model="a", declared_steps=steps) for i, (at, gang, steps) in enumerate(jobs)]
    trace = Trace("t", "made", made, [Truth(None, steps=steps) for _, _, steps in jobs])
    rates = table(V100={("a", g): 1.0 * g for g in (1, 2, 4)}, K80={("a", g): 0.5 * g for g in (1, 2, 4)})
    cluster = mixed_cluster(**(gpus or {"V100": (2,), "K80": (2,)}))
    return Experiment(trace, cluster, "ideal", cost, throughputs=rates).run(f"gavel[{options},variant=released]")


def ends(run: Run) -> list[float]:
    return [pytest.approx(row.end) for row in run.ledger.rows]


def test_an_arrival_waits_for_the_boundary_and_for_the_next_allocation() -> None:
    # the first allocation is at 0, the second at 360, since the released code takes a last reset at 0 for none
    run = released([(0.0, 1, 1000.0), (10.0, 1, 100.0), (400.0, 1, 100.0)])
    assert run.ledger.rows[1].first_start == pytest.approx(360.0)
    assert run.ledger.rows[2].first_start is not None
    assert run.ledger.rows[2].first_start >= 720.0


def test_a_round_ends_when_its_last_job_does() -> None:
    # both jobs of the first round are through at 100 s, and the next round begins then
    run = released([(0.0, 1, 100.0), (0.0, 1, 50.0), (20.0, 1, 100.0)])
    assert ends(run) == [100.0, 50.0, 200.0]


def test_steps_that_do_not_fit_whole_into_a_round_are_lost_to_it() -> None:
    made = [Job("j", 0.0, 1, model="a", declared_steps=101.0), Job("k", 0.0, 1, model="a", declared_steps=101.0)]
    trace = Trace("t", "made", made, [Truth(None, steps=101.0)] * 2)
    rates = table(V100={("a", 1): 0.1402777})  # 50.5 steps in a round: 50 count, in 356.4 s
    experiment = Experiment(trace, mixed_cluster(V100=(2,)), "ideal", "0", throughputs=rates)
    run = experiment.run("gavel[objective=fifo,variant=released]")
    assert ends(run) == [101 / 0.1402777] * 2


def test_jobs_with_fewer_steps_left_than_gpus_are_not_lost() -> None:
    run = released([(0.0, 4, 1443.0), (0.0, 4, 2.0), (0.0, 2, 1.0)], V100=(4,), K80=(4,))
    assert [row.outcome for row in run.ledger.rows] == ["finished"] * 3


@pytest.mark.parametrize("cost", ["0", "30s"])
@pytest.mark.parametrize("name", ["fifo", "max-min-fairness", "makespan", "finish-time-fairness"])
@pytest.mark.parametrize("aware", ["true", "false"])
def test_everybody_gets_through_under_every_objective(name: str, aware: str, cost: str) -> None:
    jobs = [(37.0 * i, (1, 2, 1, 4)[i % 4], 200.0 + 431.0 * (i % 5)) for i in range(14)]
    run = released(jobs, f"objective={name},aware={aware}", cost, V100=(4,), K80=(2, 4))
    assert {row.outcome for row in run.ledger.rows} == {"finished"}


def test_an_objective_the_released_variant_does_not_have_is_named() -> None:
    with pytest.raises(UserError, match=r"variant=released has no objective 'cost'"):
        make_policy("gavel[objective=cost,variant=released]")


def rows_of(*jobs: tuple[int, tuple[float, ...], float]) -> list[JobRow]:
    return [JobRow(f"j{i}", gpus, rates, steps) for i, (gpus, rates, steps) in enumerate(jobs)]


def test_max_min_fairness_takes_the_middle_of_its_optima() -> None:
    """Two equal jobs on two equal GPUs of each of two types: no reason to treat anybody differently."""
    found = objective("max-min-fairness", True)(rows_of((1, (2.0, 1.0), 10.0), (1, (2.0, 1.0), 10.0)), (1, 1))
    assert found == pytest.approx(np.full((2, 2), 0.5), abs=1e-4)


def test_max_min_fairness_reaches_the_optimum_of_the_linear_program() -> None:
    from dally.policies.gavel.allocation.max_min_fairness import max_min_fairness
    from dally.policies.gavel.allocation.problem import Problem

    jobs = rows_of((1, (10.0, 4.0, 1.0), 9.0), (2, (7.0, 6.0, 2.0), 9.0), (4, (3.0, 2.5, 0.4), 9.0),
                   (1, (1.0, 1.0, 1.0), 9.0))  # fmt: skip
    workers = (4, 2, 3)
    found = objective("max-min-fairness", True)(jobs, workers)
    best = max_min_fairness(Problem(tuple(jobs), ("V100", "P100", "K80"), workers)).objective
    equal = np.array(workers) / sum(workers)
    reached = [job.gpus * float(np.dot(job.throughput, line)) / float(np.dot(job.throughput, equal))
               for job, line in zip(jobs, found, strict=True)]  # fmt: skip
    assert min(reached) == pytest.approx(best, rel=1e-5)
    assert (np.array([job.gpus for job in jobs]) @ found <= np.array(workers) + 1e-6).all()
    assert (found.sum(axis=1) <= 1 + 1e-6).all()


def ranked_one_by_one(promised: list[float], times: list[float], deficits: list[float], of_all: float, runs: list[bool], only_promised: bool) -> list[int]:
    """As the released code has it: a priority per job, and a sort that keeps the order of arrival among equals."""
    entries = []
    for place, (part, time) in enumerate(zip(promised, times, strict=True)):
        share = time / of_all if of_all > 0 else 0.0
        priority = 0.0 if part == 0 else part / share if share > 0 else part * 1e9
        if runs[place] and (priority > 0 or not only_promised):
            entries.append((priority, deficits[place], part, place))
    return [entry[3] for entry in sorted(entries, key=lambda entry: entry[:3], reverse=True)]


@pytest.mark.parametrize("only_promised", [True, False])
def test_a_round_is_dealt_in_the_order_of_looking_at_every_job(only_promised: bool) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        count, some = chance.randrange(1, 40), (0.0, 0.25, 1 / 3, 1.0)  # few values: ties are what may go wrong
        promised, times = chance.choices(some, k=count), chance.choices((0.0, 180.0, 540.0, 500.1), k=count)
        deficits, runs = chance.choices((-7.5, 0.0, 3.0), k=count), chance.choices((True, True, False), k=count)
        of_all = chance.choice((0.0, sum(times), 10_000.0))
        found = ranked(np.array(promised), np.array(times), np.array(deficits), of_all, np.array(runs), only_promised=only_promised)
        assert found == ranked_one_by_one(promised, times, deficits, of_all, runs, only_promised), seed
        few = ranked(np.array(promised), np.array(times), np.array(deficits), of_all, np.array(runs), only_promised=only_promised, few=3)
        assert few == found[: len(few)] and len(few) >= min(3, len(found)), seed


@pytest.mark.parametrize("name", ["max-min-fairness", "makespan", "finish-time-fairness"])
def test_jobs_of_one_kind_share_an_inverse_and_not_a_bit_changes_by_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(name)
    kinds = [(chance.choice((1, 2, 4)), tuple(chance.uniform(0.5, 20.0) for _ in range(3)), 3600.0) for _ in range(7)]
    jobs = rows_of(*chance.choices(kinds, k=90), (1, (2.0, 1.0, 0.0), 1234.5))
    together = objective(name, True)(jobs, (8, 16, 24))
    monkeypatch.setattr(central, "_first_alike", lambda local: np.arange(len(local)))
    assert (objective(name, True)(jobs, (8, 16, 24)) == together).all()


def test_makespan_is_bisected_to_five_per_cent() -> None:
    jobs = rows_of((1, (10.0, 4.0), 40_000.0), (1, (6.0, 5.0), 9_000.0), (2, (8.0, 1.0), 20_000.0))
    workers = (2, 2)
    found = objective("makespan", True)(jobs, workers)
    took = max(job.steps_left / float(np.dot(job.throughput, line)) for job, line in zip(jobs, found, strict=True))
    from dally.policies.gavel.allocation.makespan import makespan
    from dally.policies.gavel.allocation.problem import Problem

    least = makespan(Problem(tuple(jobs), ("V100", "K80"), workers)).objective
    assert least * (1 - 1e-6) <= took <= 1.06 * least
