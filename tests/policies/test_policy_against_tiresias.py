"""Job by job against the results of the released Tiresias simulator."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from builders import cluster, play
from dally.core.job import Job, Truth
from dally.traces.trace import Trace


@pytest.mark.reference
@pytest.mark.parametrize(("policy", "file"), [
    ("fifo[placement=any]", "fifo"), ("smallest[placement=any]", "sjf"), ("srtf[placement=any]", "shortest"),
])  # fmt: skip
def test_every_job_completes_when_the_released_simulator_says(policy: str, file: str, tiresias: Path) -> None:
    with (tiresias / "jobs_480.csv").open() as lines:
        rows = sorted(csv.DictReader(lines), key=lambda row: float(row["submit_time"]))
    jobs = [Job(r["job_id"], float(r["submit_time"]), int(r["num_gpu"]), model=r["model_name"]) for r in rows]
    trace = Trace("480 jobs", "tiresias", jobs, [Truth(float(r["duration"])) for r in rows])
    played = play(trace, cluster(1, 32, 4), policy)
    with (tiresias / "n32g4" / f"{file}.csv").open() as lines:
        expected = {row["job_id"]: float(row["JCT"]) for row in csv.DictReader(lines)}
    assert len(expected) == len(jobs)
    assert played.jcts() == expected
