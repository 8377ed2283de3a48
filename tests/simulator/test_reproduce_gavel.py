"""Gavel's comparison run again: the workload is the paper's, and knowing GPU types pays."""

from __future__ import annotations

import pytest

from dally.simulator.reproduce import gavel as paper


def test_the_workload_comes_at_the_rate_asked_for_or_all_at_once() -> None:
    setting = paper.Setting(jobs=400, seed=3)
    trace = setting.workload(2.0)
    assert len(trace) == 400
    assert trace.jobs[-1].submit_time / 3600 == pytest.approx(200, rel=0.15)
    assert {job.submit_time for job in setting.workload(None).jobs} == {0.0}
    assert sum(job.gpus == 1 for job in trace.jobs) / 400 == pytest.approx(0.7, abs=0.08)


def test_a_trace_of_ones_own_keeps_its_arrivals() -> None:
    own = paper.Setting(jobs=20).workload(1.0)
    setting = paper.Setting(trace=own)
    assert setting.workload(7.0) is own
    assert {job.submit_time for job in setting.workload(None).jobs} == {0.0}


def test_knowing_gpu_types_shortens_completion_times() -> None:
    _, (aware, blind) = paper.against_load(paper.Setting(jobs=24), 2.0, [paper.FAIR], workers=1)
    assert paper.average_jct(blind) > 1.2 * paper.average_jct(aware)


def test_entities_get_work_in_proportion_to_their_weights_while_all_have_jobs() -> None:
    experiment, run = paper.hierarchy(paper.Setting(jobs=180), workers=1)
    first = paper.shares_over_time(experiment, run)[0]
    assert first["c"] > 1.2 * first["b"] > 1.2 * 1.2 * first["a"]
    assert sum(first.values()) == pytest.approx(1.0)


def test_deadlines_are_multiples_of_the_run_time() -> None:
    setting = paper.Setting(jobs=30)
    trace = paper.with_deadlines(setting.workload(2.0), 0)
    assert {job.slo for job in trace.jobs} == {1.2, 2.0, 10.0}
    workload = setting.experiment(trace).check()
    assert all(job.deadline is not None and job.deadline > job.submit_time for job in workload.trace.jobs)
