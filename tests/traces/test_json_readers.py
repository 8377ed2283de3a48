"""Readers of JSON traces: Philly's log and the job lists of Dally and Lucid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dally.core.job import DurationMeans, Ending
from dally.traces import Trace, load_trace


def read(tmp_path: Path, document: Any) -> Trace:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(document))
    return load_trace(file)


def attempt(start: str | None, end: str | None, *machines: tuple[str, int]) -> dict[str, Any]:
    def when(text: str | None) -> str | None:
        return f"2017-10-07 {text}" if text else None

    detail = [{"ip": ip, "gpus": [f"gpu{n}" for n in range(count)]} for ip, count in machines]
    return {"start_time": when(start), "end_time": when(end), "detail": detail}


def philly(jobid: str, status: str, submitted: str | None, *attempts: dict[str, Any]) -> dict[str, Any]:
    return {"status": status, "vc": "ee9e8c", "jobid": jobid, "user": "u", "attempts": list(attempts),
            "submitted_time": f"2017-10-07 {submitted}" if submitted else "None"}  # fmt: skip


def test_philly_attempts_add_up_and_leave_their_failure_points(tmp_path: Path) -> None:
    trace = read(tmp_path, [
        philly("a", "Pass", "01:00:00", attempt("01:00:10", "01:01:50", ("m1", 2)),
               attempt("01:02:00", "01:07:00", ("m2", 2), ("m3", 6))),
        philly("b", "Killed", "00:59:00", attempt("01:00:00", "01:00:30", ("m1", 1))),
    ])  # fmt: skip
    assert [job.id for job in trace.jobs] == ["b", "a"]
    assert trace.origin == "2017-10-07T00:59:00"
    job, truth = trace.jobs[1], trace.truths[1]
    assert (job.gpus, truth.duration, truth.failures) == (8, 400.0, (0.25,))
    assert truth.ran_on == (("m2", 2), ("m3", 6))
    assert truth.means is DurationMeans.AS_PLACED
    assert trace.truths[0].ending is Ending.CANCELLED


def test_philly_jobs_without_usable_attempts_are_dropped_by_reason(tmp_path: Path) -> None:
    trace = read(tmp_path, [
        philly("ok", "Failed", "01:00:00", attempt("01:00:00", None, ("m1", 1)),
               attempt("02:00:00", "02:00:09", ("m1", 1))),
        philly("none", "Killed", "01:00:00"),
        philly("open", "Failed", "01:00:00", attempt("01:00:00", None, ("m1", 1))),
        philly("reversed", "Failed", "01:00:00", attempt("01:00:00", "00:30:00", ("m1", 1))),
        philly("nowhere", "Pass", "01:00:00", attempt("01:00:00", "01:30:00")),
        philly("undated", "Pass", None, attempt("01:00:00", "01:30:00", ("m1", 1))),
        "not a job",
    ])  # fmt: skip
    assert [(job.id, truth.duration) for job, truth in zip(trace.jobs, trace.truths, strict=True)] == [("ok", 9.0)]
    assert trace.dropped == {
        "no attempt recorded: GPUs and run time unknown": 1,
        "no end time": 1,
        "ended before it started": 1,
        "no machines recorded: GPUs unknown": 1,
        "submission time missing or unreadable": 1,
        "entry that is not a job": 1,
    }
    assert trace.repaired == {"an attempt without usable times left out of the run time": 1}


def test_dally_lists_count_arrivals_from_their_own_zero_and_durations_on_one_gpu(tmp_path: Path) -> None:
    job = {"job_id": "396689", "user": "uL", "state": "COMPLETED", "priority": "1", "duration": "633257",
           "model": "BERT",
           "submit_time": "2020-03-26 13:42:30", "total_iterations": "826085656", "max_parallelism": "4",
           "arrival_time": "84725"}  # fmt: skip
    trace = read(tmp_path, [job, {**job, "job_id": "2", "arrival_time": "5"}, {**job, "max_parallelism": "0"}])
    assert [(j.id, j.submit_time, j.gpus, j.model) for j in trace.jobs] == [
        ("2", 5.0, 4, "BERT"), ("396689", 84725.0, 4, "BERT")]  # fmt: skip
    truth = trace.truths[0]
    assert (truth.duration, truth.steps, truth.means) == (633257.0, 826085656.0, DurationMeans.ONE_GPU)
    assert trace.dropped == {"no GPUs asked for": 1}


def test_lucid_lists_without_arrivals_use_the_wall_clock(tmp_path: Path) -> None:
    job = {"job_id": "1", "user": "u", "vc": "vcA", "gpu_num": "8", "state": "FAILED", "duration": "60", "model": "VGG",
           "submit_time": "2020-09-01 00:00:10"}  # fmt: skip
    trace = read(tmp_path, [job, {**job, "job_id": "2", "submit_time": "2020-09-01 00:00:00"}])
    assert [(j.id, j.submit_time, j.tenant) for j in trace.jobs] == [("2", 0.0, "vcA"), ("1", 10.0, "vcA")]
    assert (trace.truths[0].means, trace.truths[0].ending) == (DurationMeans.BEST_PLACEMENT, Ending.FAILED)
