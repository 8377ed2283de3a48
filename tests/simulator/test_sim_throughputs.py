"""A measured table of throughputs decides how fast jobs run on each GPU type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import mixed_cluster
from dally.catalog.throughputs import Throughputs
from dally.core.errors import PlanError, UserError
from dally.core.job import Job, Truth
from dally.simulator.experiment import Experiment
from dally.simulator.run import Run
from dally.traces.trace import Trace

TABLE = Throughputs(
    "table", {"V100": {("a", 1): 10.0, ("a", 2): 18.0, ("b", 1): 4.0}, "K80": {("a", 1): 2.0, ("a", 2): 0.0,
                                                                             ("b", 1): 2.0}}, {}, {})  # fmt: skip
MIXED = mixed_cluster(V100=(4,), K80=(4, 4))


def steps(*rows: tuple[str, int, float, str | None]) -> Trace:
    jobs = [Job(f"j{i}", 0.0, gpus, gpu_type=kind, model=model, declared_steps=count)
            for i, (model, gpus, count, kind) in enumerate(rows)]  # fmt: skip
    return Trace("t", "made", jobs, [Truth(None, steps=row[2]) for row in rows])


def run(trace: Trace, policy: str = "fifo", network: str = "ideal") -> Run:
    return Experiment(trace, MIXED, network, "0", throughputs=TABLE).run(policy)


def test_a_job_takes_its_steps_over_the_rate_of_the_gpu_type_it_is_on() -> None:
    rows = run(steps(("a", 1, 1000.0, "V100"), ("a", 1, 1000.0, "K80"))).ledger.rows
    assert [row.jct for row in rows] == pytest.approx([100.0, 500.0])


def test_a_job_that_does_not_run_everywhere_is_kept_where_it_runs_by_policies_that_do_not_look() -> None:
    rows = run(steps(*(("a", 2, 1800.0, None) for _ in range(4)))).ledger.rows
    assert sorted(row.jct or 0.0 for row in rows) == pytest.approx([100.0, 100.0, 200.0, 200.0])


def test_a_job_type_that_is_not_in_the_table_is_named() -> None:
    with pytest.raises(UserError, match=r"trace t, job j0: table has no speed for job type 'c' on 1 GPUs"):
        run(steps(("c", 1, 10.0, None)))


def test_steps_alone_need_throughputs_where_the_network_model_has_no_real_steps() -> None:
    with pytest.raises(UserError, match="needs throughputs"):
        Experiment(steps(("a", 1, 10.0, None)), MIXED, "ideal").check()


def test_without_a_table_steps_are_timed_by_the_catalog_and_depend_on_the_gpu_type() -> None:
    trace = steps(("resnet50", 1, 1000.0, "V100"), ("resnet50", 1, 1000.0, "K80"))
    fast, slow = Experiment(trace, MIXED, "analytic", "0").run("fifo").ledger.rows
    assert fast.jct is not None and slow.jct is not None
    assert slow.jct > 2 * fast.jct


def test_distance_slows_a_tabled_job_only_where_a_network_model_is_asked_for() -> None:
    spread = Trace("t", "made", [Job("j", 0.0, 4, gpu_type="K80", model="a")], [Truth(None, steps=800.0)])
    table = replace(TABLE, alone={**TABLE.alone, "K80": {("a", 4): 8.0}})
    for network, took in (("ideal", 100.0), ("level-penalty[machine=1,rack=2,cluster=3]", 200.0)):
        made = Experiment(spread, MIXED, network, "0", throughputs=table).run("fifo[placement=spread]")
        assert made.ledger.rows[0].jct == pytest.approx(took)


def test_a_plan_that_puts_a_job_where_it_does_not_run_is_an_error() -> None:
    from dally.simulator.tabled import Tabled

    experiment = Experiment(steps(("a", 2, 10.0, None)), MIXED, "ideal", throughputs=TABLE)
    network = experiment.make_network(MIXED)
    assert isinstance(network, Tabled)
    from dally.core.placement import Placement

    with pytest.raises(PlanError, match="K80 GPUs"):
        network.moved([], [(experiment.trace.jobs[0], Placement.of([(1, 3)]))], 0.0)


def test_an_slo_that_is_a_multiple_becomes_a_deadline_and_misses_are_counted() -> None:
    from dally.catalog.prices import dollars_per_hour
    from dally.report.metrics import summarise

    jobs = [Job("on-time", 0.0, 1, gpu_type="V100", model="a", slo=2.0), Job("late", 0.0, 1, gpu_type="K80", model="a",
                                                                             deadline=400.0)]  # fmt: skip
    trace = Trace("t", "made", jobs, [Truth(None, steps=1000.0), Truth(None, steps=1000.0)])
    made = run(trace)
    assert [job.deadline for job in made.workload.trace.jobs] == pytest.approx([200.0, 400.0])
    summary = summarise(made, MIXED)
    assert (summary.deadlines, summary.deadlines_missed) == (2, 1)
    fast, slow = dollars_per_hour("V100"), dollars_per_hour("K80")
    assert fast is not None and slow is not None
    assert summary.cost_dollars == pytest.approx((100 * fast + 500 * slow) / 3600)
