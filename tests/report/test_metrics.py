"""Every figure of the summary, against a run computed by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dally.core.job import Job, Truth
from dally.core.ledger import Ledger
from dally.core.topology import Level, MachineSpec, Topology, build_topology, regular
from dally.network.simple import Ideal
from dally.policies.options import make_policy
from dally.report.bound import Bound, bound_of
from dally.report.columns import percentile
from dally.report.metrics import Summary, summarise, write_jobs_csv, write_summary
from dally.simulator.costs import make_cost
from dally.simulator.run import Run, simulate
from dally.simulator.workload import prepare
from dally.traces.trace import Trace

ISSUE_KEYS = {
    "policy", "jobs", "finished", "failed", "avg_jct", "median_jct", "p95_jct", "p99_jct", "makespan",
    "avg_queueing", "p95_queueing", "comm_share", "comm_seconds", "gpu_utilization", "preemptions", "migrations",
    "lost_gpu_seconds", "events", "lower_bound",
}  # fmt: skip


@pytest.fixture
def summary(hand_run: Run, two_machines: Topology) -> Summary:
    return summarise(hand_run, two_machines)


def test_every_job_is_counted_once_by_how_it_ended(summary: Summary) -> None:
    ended = (summary.finished, summary.failed, summary.cancelled, summary.rejected, summary.unfinished)
    assert ended == (2, 1, 1, 1, 0)
    assert sum(ended) == summary.jobs == 5


def test_jct_statistics_are_over_finished_jobs_with_linear_percentiles(summary: Summary) -> None:
    # JCTs are 10 (a) and 26 − 5 = 21 (b)
    assert summary.avg_jct == summary.median_jct == 15.5
    assert summary.p95_jct == pytest.approx(10 + 0.95 * 11)
    assert summary.p99_jct == pytest.approx(10 + 0.99 * 11)


def test_queueing_is_the_time_without_gpus_including_after_a_preemption(summary: Summary) -> None:
    # a: 0; b: 5…10 and 15…20
    assert summary.avg_queueing == 5
    assert summary.p95_queueing == pytest.approx(9.5)


def test_makespan_ends_with_the_last_finished_job_not_with_a_later_failure(summary: Summary) -> None:
    assert summary.makespan == 26


def test_communication_is_weighted_by_gpus_and_leaves_out_loading(summary: Summary) -> None:
    # a: ¼ of 10 − 2 s on 2 GPUs; b: ½ of 5 and of 6 − 1 s on 4; e ran 6 s on 1
    assert summary.comm_seconds == pytest.approx(2 + 5)
    assert summary.comm_share == pytest.approx((2 * 2 + 5 * 4) / (10 * 2 + 11 * 4 + 6 * 1))


def test_lost_gpu_time_is_loading_leaving_and_work_done_again(summary: Summary) -> None:
    assert summary.lost_gpu_seconds == pytest.approx((2 * 2 + 1 * 4) + 1 * 4 + 3)


def test_utilisation_counts_work_that_counted_within_the_makespan(summary: Summary) -> None:
    # e runs after the makespan; checkpoints being saved are not held by a job
    assert summary.gpu_utilization == pytest.approx((10 * 2 + 11 * 4 - 8 - 3) / (4 * 26))


def test_the_bound_is_over_finished_jobs_and_below_what_was_reached(summary: Summary) -> None:
    bound = summary.lower_bound
    assert bound.avg_jct is not None and bound.makespan is not None
    assert bound.avg_jct * (1 + 1e-6) >= (8 + 10) / 2 and bound.avg_jct <= 15.5
    assert bound.makespan * (1 + 1e-6) >= 15 and bound.makespan <= 26
    assert summary.avg_jct_over_bound == pytest.approx(15.5 / bound.avg_jct)
    assert summary.makespan_over_bound == pytest.approx(26 / bound.makespan)


def test_a_bound_passed_in_is_used_as_it_is(hand_run: Run, two_machines: Topology) -> None:
    assert summarise(hand_run, two_machines, Bound(5.0, 13.0)).avg_jct_over_bound == pytest.approx(3.1)
    assert bound_of(hand_run, two_machines) == summarise(hand_run, two_machines).lower_bound


def test_the_summary_has_the_keys_people_rely_on_and_reads_back(summary: Summary, tmp_path: Path) -> None:
    write_summary(summary, tmp_path / "summary.json")
    values = json.loads((tmp_path / "summary.json").read_text())
    assert values.keys() >= ISSUE_KEYS
    assert values["lower_bound"].keys() == {"avg_jct", "makespan", "packed", "resized"}
    assert Summary.from_dict(values) == summary


def test_several_summaries_are_written_as_a_list(summary: Summary, tmp_path: Path) -> None:
    write_summary([summary, summary], tmp_path / "summary.json")
    assert [each["policy"] for each in json.loads((tmp_path / "summary.json").read_text())] == ["hand", "hand"]


def test_a_run_in_which_nothing_finished_has_no_figures_instead_of_nan(
    hand_run: Run, two_machines: Topology, tmp_path: Path
) -> None:
    empty = Run("idle", Ledger(two_machines), hand_run.workload, 0, 0.0, False, 0.0)
    summary = summarise(empty, two_machines)
    assert (summary.avg_jct, summary.makespan, summary.comm_share, summary.gpu_utilization) == (None,) * 4
    assert summary.lower_bound == Bound(None, None)
    write_summary(summary, tmp_path / "summary.json")  # would refuse NaN


def test_jobs_csv_has_one_row_per_job_and_leaves_empty_what_never_happened(
    hand_run: Run, two_machines: Topology, tmp_path: Path
) -> None:
    write_jobs_csv(hand_run, two_machines, tmp_path / "jobs.csv")
    rows = {row["job_id"]: row for row in csv.DictReader((tmp_path / "jobs.csv").open())}
    assert list(rows) == ["a", "b", "c", "d", "e"]
    b = rows["b"]
    assert [float(b[key]) for key in ("submit_time", "start_time", "end_time", "jct", "queueing", "running")] == [
        5, 10, 26, 21, 10, 11]  # fmt: skip
    assert (b["gpus"], b["placement_level"], b["preemptions"], b["outcome"]) == ("4", "rack", "1", "finished")
    assert rows["a"]["placement_level"] == "machine"
    assert (rows["c"]["start_time"], rows["c"]["end_time"], rows["c"]["outcome"]) == ("", "", "rejected")


def test_a_job_bound_to_few_gpus_of_its_type_raises_the_bound(two_machines: Topology) -> None:
    """Two jobs that both need the one machine of type x cannot run at once, though the cluster has room."""
    levels = two_machines.levels
    cluster = build_topology(levels, [MachineSpec(("r", "m0"), 2, "x"), MachineSpec(("r", "m1"), 2, "y")])
    network, cost = Ideal(), make_cost("0")
    bounds = {}
    for wanted in ("x", None):
        jobs = [Job("a", 0, 2, gpu_type=wanted), Job("b", 0, 2, gpu_type=wanted)]
        workload = prepare(Trace("t", "none", jobs, [Truth(100.0), Truth(100.0)]), cluster, network)
        run = simulate(workload, cluster, make_policy("fifo"), network, cost)
        summary = summarise(run, cluster)
        assert summary.makespan == (200 if wanted else 100)
        bounds[wanted] = summary.lower_bound.makespan
    assert bounds == {"x": pytest.approx(200), None: pytest.approx(100)}


@pytest.mark.reference
def test_figures_agree_with_the_released_tiresias_simulator(tiresias: Path) -> None:
    rows = sorted(csv.DictReader((tiresias / "jobs_480.csv").open()), key=lambda row: float(row["submit_time"]))
    jobs = [Job(row["job_id"], float(row["submit_time"]), int(row["num_gpu"])) for row in rows]
    truths = [Truth(float(row["duration"])) for row in rows]
    cluster = regular((1, 32, 4), (Level("machine"), Level("rack"), Level("cluster")))
    network = Ideal()
    workload = prepare(Trace("jobs_480", "csv", jobs, truths), cluster, network)
    run = simulate(workload, cluster, make_policy("fifo[placement=any]"), network, make_cost("0"))
    summary = summarise(run, cluster, Bound(1.0, 1.0))
    expected = [float(row["JCT"]) for row in csv.DictReader((tiresias / "n32g4" / "fifo.csv").open())]
    assert summary.avg_jct == pytest.approx(sum(expected) / len(expected), rel=1e-12)
    assert summary.p95_jct == pytest.approx(np.percentile(expected, 95), rel=1e-12)
    ends = [float(row["end_time"]) for row in csv.DictReader((tiresias / "n32g4" / "fifo.csv").open())]
    assert summary.makespan == max(ends)


@pytest.mark.parametrize("percent", [10, 50, 95, 99])
def test_a_percentile_is_numpys_to_the_last_bit(percent: float) -> None:
    draw = np.random.default_rng(4)
    for count in (1, 2, 3, 7, 40, 401):
        values = np.exp(draw.normal(size=count) * 5)
        assert percentile(values, percent) == float(np.percentile(values, percent))
