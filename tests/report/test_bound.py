"""One bound for all runs of a comparison, and the alarm when a run is below it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Pairwise, Played, Timed, at, cluster, job, play
from dally.cli.main import main
from dally.core import plan as pl
from dally.core.errors import PlanError, UserError
from dally.core.job import Job
from dally.core.sharing import Share
from dally.network.model import Floor
from dally.network.simple import Ideal
from dally.policies.options import all_policies
from dally.report.alarm import allowance_text, below_bound
from dally.report.bound import bound_of, bounds_of
from dally.report.compared import ReportRun
from dally.report.html import render_report
from dally.report.metrics import Summary, summarise
from dally.simulator.run import Run
from random_worlds import an_experiment

HERE = at((0, 0b1))
ONE_GPU = cluster(1, 1)


def one_after_the_other() -> Played:
    return play([job("a", 1, 100), job("b", 1, 100)], ONE_GPU, "fifo", interference=Pairwise(1.25))


def packed() -> Played:
    plan = [pl.Start("a", HERE), pl.Start("b", HERE, None, Share(beside="a"))]
    return play([job("a", 1, 100), job("b", 1, 100)], ONE_GPU, Timed({0.0: plan}), interference=Pairwise(1.25))


def test_a_run_that_packs_nobody_is_measured_by_what_the_others_may_do() -> None:
    alone, together = one_after_the_other().run, packed().run
    assert bound_of(alone, ONE_GPU).makespan == pytest.approx(200)
    first, second = bounds_of([alone, together], ONE_GPU)
    assert first == second and first.packed == pytest.approx(1.6) and not first.resized
    figures = [summarise(run, ONE_GPU, first) for run in (alone, together)]
    multiples = [each.makespan_over_bound for each in figures]
    assert multiples == [pytest.approx(1.6), pytest.approx(1.0)]  # in the order of their makespans
    assert "a GPU doing the work of 1.60" in allowance_text(first)
    assert allowance_text(bound_of(alone, ONE_GPU)) == ""


def test_resizing_in_one_run_is_allowed_in_the_bound_of_all() -> None:
    topology = cluster(1, 4)
    specs = [job("a", 1, 100, limits=(1, 4))]
    whole = play(specs, topology, Timed({0.0: [pl.Start("a", HERE)]})).run
    agenda = {0.0: [pl.Start("a", HERE)], 1.0: [pl.Resize("a", at((0, 0b1111)))]}
    grown = play(specs, topology, Timed(agenda)).run
    bounds = bounds_of([whole, grown], topology)
    assert bounds[0] == bounds[1] and bounds[0].resized and bounds[0].makespan == pytest.approx(25)
    assert bound_of(whole, topology).makespan == pytest.approx(100)


def test_packing_alone_leaves_elastic_jobs_at_their_own_size() -> None:
    plan = [pl.Start("a", HERE), pl.Start("b", HERE, None, Share(beside="a"))]
    specs = [job("a", 1, 100, limits=(1, 4)), job("b", 1, 100)]
    run = play(specs, cluster(1, 4), Timed({0.0: plan}), interference=Pairwise(1.25)).run
    assert bound_of(run, cluster(1, 4)).makespan == pytest.approx(100)


def test_a_job_that_may_use_any_gpu_type_in_one_run_may_in_the_bound_of_all() -> None:
    topology = cluster(1, 2)
    free = play([job("a", 1, 100), job("b", 1, 100)], topology, "fifo").run
    trace = free.workload.trace
    tied = [replace(each, gpu_type="gpu") for each in trace.jobs]
    slower = {name: 2 * seconds for name, seconds in free.workload.least_run_time.items()}
    pinned = replace(free.workload, trace=replace(trace, jobs=tied), least_run_time=slower)
    other = Run("other", free.ledger, pinned, 1, 0.1, True, 0.0)
    assert bounds_of([other, free], topology)[0] == bounds_of([free], topology)[0]


def wrong(run: Run, factor: float) -> Run:
    """The same run with a floor that is too high."""
    least = {name: factor * seconds for name, seconds in run.workload.least_run_time.items()}
    run.workload = replace(run.workload, least_run_time=least)
    return run


def test_a_run_below_its_bound_is_named_with_the_figure_and_the_job() -> None:
    run = wrong(one_after_the_other().run, 1.5)
    said = below_bound(run, summarise(run, ONE_GPU))
    assert said.startswith("fifo did what is proved impossible") and "below the lower bound of 5 min" in said
    assert "the first is a: 100 s, at least 150 s" in said


def test_a_single_job_that_is_too_early_is_seen_although_the_averages_are_not_below() -> None:
    topology = cluster(1, 1)
    run = play([job("a", 1, 10), *(job(f"b{i}", 1, 100) for i in range(5))], topology, "fifo").run
    least = run.workload.least_run_time | {"a": 10.5}
    run.workload = replace(run.workload, least_run_time={**dict.fromkeys(least, 1.0), "a": 10.5})
    summary = summarise(run, topology)
    assert (summary.avg_jct_over_bound or 0) > 1 and (summary.makespan_over_bound or 0) > 1
    assert "1 of its jobs ended sooner than any placement allows" in below_bound(run, summary)


def test_a_run_at_its_bound_raises_no_alarm() -> None:
    run = one_after_the_other().run
    assert below_bound(run, summarise(run, ONE_GPU)) == ""


def test_the_page_says_first_what_is_impossible_and_draws_no_such_bar_silently() -> None:
    run = wrong(one_after_the_other().run, 1.5)
    summary = summarise(run, ONE_GPU)
    summary = replace(summary, alarm=below_bound(run, summary))
    assert Summary.from_dict(json.loads(json.dumps(summary.as_dict()))).alarm == summary.alarm
    page = render_report([ReportRun("fifo", summary, run.ledger, ONE_GPU)], title="t", baseline=None, notes=())
    assert page.index("did what is proved impossible") < page.index("<nav")
    assert "nothing can be left of the dashed line" not in page and "(impossible)" in page


@pytest.mark.parametrize("command", [("simulate", "--policy", "fifo"), ("compare", "--policies", "fifo,las", "--workers", "1")])
def test_the_command_line_ends_with_exit_code_3(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_much(self: Ideal, job: Job, gpus: int) -> Floor:
        return Floor(2.0)

    name, *options = command
    arguments = [name, "--trace", "synth:philly", "--jobs", "20", "--cluster", "2x4", "--network", "ideal", *options]
    with pytest.raises(SystemExit) as fine:
        main([*arguments, "--quiet"])
    assert fine.value.code == 0
    monkeypatch.setattr(Ideal, "fastest_step", too_much)
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--quiet", "--out", str(tmp_path)])
    assert ended.value.code == 3
    assert "dally: fifo did what is proved impossible" in capsys.readouterr().err
    assert "proved impossible" in (tmp_path / "report.html").read_text()
    assert "proved impossible" in (tmp_path / "summary.json").read_text()


SPEC = {"scenario": {"trace": "synth:philly", "jobs": 20, "cluster": "2x4", "network": "ideal"}, "policies": ["fifo"]}
PAPER = ("--network", "ideal", "--jobs", "20", "--clusters", "1x2x8", "--workloads", "batch", "--fabrics", "dally")


@pytest.mark.parametrize(("command", "page"), [
    (("sweep", "SPEC", "--workers", "1", "--out", "OUT"), "report.html"),
    (("compare", "-t", "synth:philly", "--jobs", "20", "-c", "2x4", "--network", "ideal", "-p", "fifo", "--seeds", "2",
      "--workers", "1", "--out", "OUT"), "report.html"),
    (("sensitivity", "-t", "synth:philly", "--jobs", "20", "-c", "2x4", "--network", "ideal", "-p", "fifo", "--models",
      "none", "--fabrics", "none", "--workers", "1"), None),
    (("reproduce", "dally", *PAPER, "--policies", "fifo,dally[timers=auto]", "--workers", "1", "--out", "OUT"), "index.html"),
])  # fmt: skip
def test_sweeps_sensitivities_and_reproductions_raise_the_same_alarm(
    command: tuple[str, ...], page: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "spec.yaml").write_text(json.dumps(SPEC))
    words = [{"SPEC": str(tmp_path / "spec.yaml"), "OUT": str(tmp_path / "out")}.get(word, word) for word in command]
    monkeypatch.setattr(Ideal, "fastest_step", lambda self, job, gpus: Floor(2.0))
    with pytest.raises(SystemExit) as ended:
        main([*words, "--quiet"])
    assert ended.value.code == 3
    assert "fifo did what is proved impossible" in capsys.readouterr().err
    assert page is None or "proved impossible" in (tmp_path / "out" / page).read_text()


@pytest.mark.parametrize("policy", [name for name, _ in all_policies()])
@given(seed=st.integers(0, 2**48))
@settings(max_examples=6)
def test_no_small_run_over_any_network_is_below_its_bound(policy: str, seed: int) -> None:
    experiment = an_experiment(random.Random(seed))
    calls = iter(range(100))
    try:
        run = experiment.run(policy, progress=lambda now, ended, jobs: next(calls, None) is not None)
    except (PlanError, UserError):
        return  # the draw is not one this policy can run
    assert below_bound(run, summarise(run, experiment.topology)) == ""
