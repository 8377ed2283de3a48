"""The task of one profiled run, as the launcher writes it and every process reads it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from dally.core.records import dataclass

VARIABLE = "DALLY_PROFILE_TASK"  # path of the task; also the mark by which processes of a run are known
LAUNCHER = "DALLY_PROFILE_LAUNCHER"  # process id of who started the ranks


@dataclass(frozen=True, slots=True)
class Task:
    """What to measure in one run. `data`: synthetic, real (cached) or cold."""

    folder: str  # where each rank writes its record
    data: str = "synthetic"
    warmup: int = 5
    steps: int = 20
    repeats: int = 3
    batch: int | None = None  # samples per process that synthetic data are cut or repeated to
    anatomy: int = 0  # steps in which layers are timed one by one
    silent: bool = False  # also time steps in which gradients are not exchanged
    trace: str | None = None  # where rank 0 writes a Chrome trace of two steps
    gather: bool = False  # every rank gets the windows of all: for ranks that share no disk
    checkpoint: bool = False  # also time saving and loading a checkpoint

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def read_task() -> Task | None:
    """The task of this process; None where nobody profiles it."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    return Task(**json.loads(Path(path).read_text()))
