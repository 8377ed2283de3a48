"""The real files kept beside the repository, read whole and compared with their synthetic likenesses."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dally.core.job import DurationMeans
from dally.traces import Trace, load_trace, synthesise

pytestmark = pytest.mark.reference

ROOT = Path(os.environ.get("DALLY_REFERENCE", Path(__file__).resolve().parents[3] / "shared"))


def read(*parts: str) -> Trace:
    file = ROOT.joinpath(*parts)
    if not file.exists():
        pytest.skip(f"reference file {'/'.join(parts)} is not beside the repository")
    return load_trace(file)


def test_philly_reads_whole() -> None:
    trace = read("traces", "philly_82k.csv")
    assert len(trace) == 82_247
    assert not trace.dropped
    assert not trace.repaired
    assert max(job.gpus for job in trace.jobs) == 128
    assert sum(job.gpus == 1 for job in trace.jobs) == 76_627
    assert trace.origin == "2017-09-04T10:30:41"


def test_openb_accounts_for_every_pod() -> None:
    trace = read("traces", "openb_pods.csv")
    assert len(trace) + sum(trace.dropped.values()) == 8152
    assert trace.dropped == {"no GPUs asked for": 1088}
    assert trace.repaired["a share of a GPU: given a whole one"] == 3078


@pytest.mark.parametrize(("file", "jobs"), [("sense_500jobs_0start0arrival-withBert.json", 500),
                                            ("sense_500jobs_poisson_1proc-week.json", 411)])  # fmt: skip
def test_dallys_lists_read_whole(file: str, jobs: int) -> None:
    trace = read("traces", "dally", file)
    assert len(trace) == jobs
    assert not trace.dropped
    assert all(truth.means is DurationMeans.ONE_GPU for truth in trace.truths)


def test_tiresias_and_gavel_read_whole() -> None:
    tiresias, gavel = read("reference", "tiresias", "jobs_480.csv"), read("reference", "gavel", "jobs_96.trace")
    assert (len(tiresias), len(gavel)) == (480, 96)
    assert (tiresias.jobs[1].submit_time, tiresias.truths[1].duration) == (66.0, 13401.0)
    assert (gavel.truths[0].steps, gavel.truths[0].duration) == (925982.0, None)


def quantiles(trace: Trace) -> np.ndarray:
    return np.quantile([truth.duration or 0.0 for truth in trace.truths], [0.1, 0.25, 0.5, 0.75, 0.9, 0.95])


def test_synthetic_philly_has_the_durations_of_the_real_one() -> None:
    ratio = quantiles(synthesise("philly", jobs=82_247, seed=1)) / quantiles(read("traces", "philly_82k.csv"))
    assert (np.abs(ratio - 1) < 0.2).all(), ratio


def test_synthetic_dally_has_the_durations_of_the_real_one() -> None:
    real = read("traces", "dally", "sense_500jobs_poisson_1proc-week.json")
    ratio = quantiles(synthesise("dally-poisson", jobs=20_000, seed=1)) / quantiles(real)
    assert (np.abs(ratio - 1) < 0.1).all(), ratio
