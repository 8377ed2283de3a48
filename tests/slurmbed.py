"""A real Slurm of the tests' own: a test bed under a name that nobody else has, gone when they end."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dally.live.testbed import system
from dally.live.testbed.bed import Bed, bring_up
from dally.live.testbed.clusters import read_bed_cluster

_number = itertools.count()


def why_no_bed() -> str | None:
    """In one sentence, for `pytest.skip`; None: a bed can be made."""
    trouble = system.why_not()
    if trouble is not None:
        return trouble
    name = f"dally-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None if made.returncode == 0 else f"network namespaces cannot be made here: {made.stderr.strip()}"


def need_bed() -> None:
    trouble = why_no_bed()
    if trouble is not None:
        pytest.skip(trouble)


def new_name() -> str:
    return f"t{os.getpid()}-{next(_number)}"


@contextmanager
def bed(cluster: str = "2x2x2", rates: dict[str, float] | None = None, conf: Sequence[str] = ()) -> Iterator[Bed]:
    """A bed of that cluster. Rates are bytes per second by level (`rack`: nodes' links, `cluster`: racks' uplinks)."""
    need_bed()
    folder = Path(tempfile.mkdtemp(prefix="dally-bed-"))
    rates = {"rack": 200e6 / 8, "cluster": 50e6 / 8} if rates is None else rates
    topology, text, _ = read_bed_cluster(cluster)
    made = bring_up(new_name(), topology, text, folder / "bed", rates, conf)
    try:
        yield made
    finally:
        made.down()
        shutil.rmtree(folder)


def until(met: Callable[[], object], patience: float = 60.0) -> None:
    """Wait for something that must come; what it is stands in the assertion's traceback."""
    end = time.monotonic() + patience
    while not met():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.1)


def job_state(bed: Bed, job: str) -> str:
    """Slurm's own word for it."""
    shown = bed.client("scontrol", "show", "job", "-o", job)
    return dict(word.partition("=")[::2] for word in shown.split())["JobState"]


def gpus_used(bed: Bed) -> dict[str, int]:
    """By node, in Slurm's own books."""
    return {state.name: state.gpus_used for state in bed.states()}
