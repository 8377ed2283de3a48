"""What the report says and draws, before any browser: sentences, curves, the Gantt picture."""

from __future__ import annotations

import base64
import pickle
from dataclasses import replace

import numpy as np
import pytest

from dally.core.errors import UserError
from dally.core.ledger import ALONE, Ledger
from dally.core.placement import Placement
from dally.core.topology import Level, MachineSpec, Topology, build_topology, regular
from dally.report.columns import segment_columns
from dally.report.compared import DemandClasses, ReportRun, compare
from dally.report.findings import findings, verdict
from dally.report.gantt import HEAT_BINS, MOST_BARS, detail_machines, gantt, heat, picture_rows
from dally.report.gantt import _bit_runs as bit_runs
from dally.report.markup import why_cards
from dally.report.metrics import summarise
from dally.report.series import bin_means, cdf, gains, level_shares, time_edges
from dally.report.wording import time_text
from dally.simulator.run import Run


def test_a_run_travels_between_processes(few_runs: list[ReportRun]) -> None:
    back = pickle.loads(pickle.dumps(few_runs[0]))
    assert back.summary == few_runs[0].summary
    assert np.array_equal(back.segments.start, few_runs[0].segments.start)


def test_the_level_of_every_stretch_is_what_the_placement_says(hand_run: Run, two_machines: Topology) -> None:
    columns = segment_columns(hand_run.ledger, two_machines)
    expected = [segment.placement.level(two_machines) for segment in hand_run.ledger.segments]
    assert columns.level.tolist() == expected == [0, 1, 1, 0]


def test_levels_inside_a_machine_are_told_apart() -> None:
    levels = (Level("island"), Level("machine"), Level("cluster"))
    topology = build_topology(levels, [MachineSpec((f"m{i}",), 4, islands=(2, 2)) for i in range(2)])

    ledger = Ledger(topology)
    for slices in ([(0, 0b0011)], [(0, 0b0110)], [(0, 0b1), (1, 0b1)]):
        ledger.segments.put(0, 0.0, 1.0, Placement.of(slices), ALONE)
    assert segment_columns(ledger, topology).level.tolist() == [0, 1, 2]


def test_the_winner_among_those_told_the_same_is_named_with_the_runner_up_the_factor_and_the_bound(few_runs: list[ReportRun]) -> None:
    sentence = " ".join(verdict(compare(few_runs, "fifo")))
    best = next(run for run in few_runs if run.name == "srtf")
    assert sentence.startswith(f"Told exact durations, srtf is alone, with an average JCT of {time_text(best.summary.avg_jct)}")
    assert "Told nothing, las wins" in sentence and "the runner-up, fifo" in sentence and "lower bound" in sentence
    assert sentence.endswith("(one run of each: no interval).")
    (two,) = verdict(compare([few_runs[0], few_runs[2]], "fifo"))
    assert two.startswith("las wins with an average JCT of") and "the runner-up, fifo" in two


def test_equal_runs_are_a_tie_and_one_run_wins_nothing(hand_run: Run, two_machines: Topology) -> None:
    summary = summarise(hand_run, two_machines)
    runs = [ReportRun(name, summary, hand_run.ledger, two_machines) for name in ("x", "y")]
    assert verdict(compare(runs, None))[0].startswith("It is a tie: all 2 policies")
    assert "Every job finishes as under x, within 5 %." in dict(findings(compare(runs, None)))["y"]
    assert why_cards(compare(runs, None), findings(compare(runs, None))).count("#1 ·") == 2
    assert verdict(compare(runs[:1], None))[0].startswith("x finishes 2 jobs with an average JCT of 15.5 s")


def test_a_run_that_was_stopped_never_wins(few_runs: list[ReportRun]) -> None:
    stopped = pickle.loads(pickle.dumps(few_runs[1]))
    stopped.name = "stopped"
    stopped.summary = replace(stopped.summary, avg_jct=1.0, complete=False)
    assert compare([*few_runs, stopped], None).ranked[-1].name == "stopped"


def test_the_saving_of_a_policy_splits_into_waiting_and_running(few_runs: list[ReportRun]) -> None:
    comparison = compare(few_runs, "fifo")
    told = dict(findings(comparison))
    assert set(told) == {run.name for run in few_runs}
    paired = comparison.paired["srtf"]
    saved = float((paired.base_jct - paired.jct).mean())
    assert any(f"saves {time_text(saved)}: waiting shrinks" in sentence for sentence in told["srtf"])
    assert any("preemption" in sentence and "GPU-hours" in sentence for sentence in told["srtf"])
    assert told["fifo"][0] == "The baseline of every comparison here."


def test_shares_of_gained_and_lost_add_up(few_runs: list[ReportRun]) -> None:
    for gain in gains(compare(few_runs, "fifo")):
        assert sum(gain["bands"]) == pytest.approx(1, abs=1e-4)
        assert gain["jobs"] == few_runs[0].summary.finished


def test_jobs_are_paired_by_name_where_the_runs_hold_different_jobs(few_runs: list[ReportRun]) -> None:
    other = pickle.loads(pickle.dumps(few_runs[1]))
    other.jobs.job_id[0] = "somebody else"
    paired = compare([few_runs[0], other], "fifo").paired["srtf"]
    assert len(paired.job_id) == few_runs[0].summary.finished - 1
    assert "somebody else" not in paired.job_id
    whole = compare(few_runs[:2], "fifo").paired["srtf"]
    assert paired.jct.sum() == pytest.approx(whole.jct.sum() - few_runs[1].jobs.jct[0])


@pytest.mark.parametrize(("names", "baseline", "said"), [
    (("a", "b"), "c", "the baseline 'c' is not one of the runs: a, b"),
    (("a", "a"), None, "two runs of the report are called 'a'"),
    ((), None, "at least one run"),
])  # fmt: skip
def test_a_comparison_that_makes_no_sense_is_refused(
    few_runs: list[ReportRun], names: tuple[str, ...], baseline: str | None, said: str
) -> None:
    runs = []
    for name in names:
        run = pickle.loads(pickle.dumps(few_runs[0]))
        run.name = name
        runs.append(run)
    with pytest.raises(UserError, match=said):
        compare(runs, baseline)


def test_many_sizes_of_job_share_doubling_classes() -> None:
    few, many = np.array([1, 2, 8]), np.arange(1, 40)
    assert DemandClasses.of(few).names == ("1", "2", "8")
    classes = DemandClasses.of(many)
    assert classes.names == ("1", "2", "3–4", "5–8", "9–16", "17–32", "33–64")
    assert [classes.names[k] for k in classes.index(np.array([1, 3, 16, 17, 39]))] == [
        "1", "3–4", "9–16", "17–32", "33–64"]  # fmt: skip


def test_a_cdf_keeps_all_of_few_values_and_both_ends_of_many() -> None:
    x, y = cdf(np.array([3.0, 1.0, 2.0]))
    assert (x.tolist(), y.tolist()) == ([1, 2, 3], [1 / 3, 2 / 3, 1])
    values = np.random.default_rng(1).exponential(size=50_000)
    x, y = cdf(values)
    assert len(x) <= 500 and x[0] == values.min() and x[-1] == values.max() and y[-1] == 1
    assert np.all(np.diff(x) >= 0)
    assert y == pytest.approx([np.mean(values <= each) for each in x])


def test_means_over_bins_keep_the_area_under_the_curve(few_runs: list[ReportRun]) -> None:
    run = few_runs[1]
    edges = time_edges(compare(few_runs, None), 50)
    area = float((bin_means(run.timeline, run.timeline.busy, edges) * np.diff(edges)).sum())
    assert area == pytest.approx(float(run.jobs.running @ run.jobs.gpus))


def test_the_heat_map_holds_the_gpu_time_of_every_machine(many_runs: list[ReportRun]) -> None:
    run = many_runs[2]
    rows = picture_rows(run.topology)
    edges = time_edges(compare(many_runs, None), 60)
    shares = heat(run.segments, rows, edges)
    assert shares.min() >= -1e-9 and shares.max() <= 1 + 1e-9
    held = np.zeros(len(run.topology.machines))
    for index, segment in enumerate(run.segments.slice_segment):
        length = run.segments.end[segment] - run.segments.start[segment]
        held[run.segments.slice_machine[index]] += length * run.segments.slice_gpus[index]
    width = edges[1] - edges[0]
    assert shares.sum(axis=1) * rows.gpus * width == pytest.approx(held)


def test_few_stretches_are_drawn_one_by_one_many_as_a_heat_map_that_says_so(
    few_runs: list[ReportRun], many_runs: list[ReportRun]
) -> None:
    few, many = gantt(compare(few_runs, None)), gantt(compare(many_runs, None))
    assert few["mode"] == "bars" and "Every stretch of running is drawn" in few["said"]
    held = sum((end - start) * count for start, end, count in zip(
        *(few["runs"][0]["bars"][key] for key in ("start", "end", "count")), strict=True))  # fmt: skip
    assert held == pytest.approx(float(few_runs[0].jobs.running @ few_runs[0].jobs.gpus), rel=1e-5)
    assert many["mode"] == "heat" and "heat map" in many["said"]
    for drawn in many["runs"]:
        assert len(base64.b64decode(drawn["heat"])) == HEAT_BINS * len(drawn["rows"]["names"])
        bars = drawn["detail"]["bars"]
        assert 0 < len(set(zip(bars["job"], bars["start"], bars["row"], strict=True))) <= MOST_BARS
        assert max(bars["start"]) <= many["window"][1] and min(bars["end"]) >= many["window"][0]


def test_a_large_cluster_is_drawn_by_rack_with_whole_racks_in_the_sample() -> None:
    topology = regular((20, 15, 8), (Level("machine"), Level("rack"), Level("cluster")))
    rows = picture_rows(topology)
    assert (rows.level, len(rows.names), rows.gpus.tolist()) == ("rack", 20, [120] * 20)
    assert rows.of_machine[[0, 14, 15, 299]].tolist() == [0, 0, 1, 19]
    assert detail_machines(topology) == 45
    assert detail_machines(regular((4, 100, 8), (Level("machine"), Level("rack"), Level("cluster")))) == 48
    assert detail_machines(regular((2, 8), (Level("machine"), Level("cluster")))) == 2


def test_runs_of_neighbouring_gpus_become_one_bar() -> None:
    assert bit_runs(0b1101_1100) == [(2, 3), (6, 2)]
    assert bit_runs((1 << 80) - 1) == [(0, 80)]


def test_level_shares_add_up(many_runs: list[ReportRun]) -> None:
    for run in many_runs:
        assert level_shares(run).sum() == pytest.approx(1)
