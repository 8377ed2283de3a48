"""Running the program as a person does, and the small traces it is run on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Dally = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def dally(tmp_path: Path) -> Dally:
    """`dally("simulate", "--trace", …)` in an empty folder, as a process of its own."""

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        import os

        return subprocess.run([sys.executable, "-m", "dally.cli.main", *arguments], capture_output=True, text=True,
                              cwd=tmp_path, input=stdin, env={**os.environ, **environment}, timeout=120)  # fmt: skip

    return run


@pytest.fixture
def small_trace(tmp_path: Path) -> Path:
    """Twenty jobs in the format of the Tiresias simulator."""
    rows = [f"{i},{(1, 2, 4, 8)[i % 4]},{i * 7},100,resnet50,{60 + 37 * i % 400},7" for i in range(20)]
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n" + "\n".join(rows) + "\n")
    return path
