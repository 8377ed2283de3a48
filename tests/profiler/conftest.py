"""Profiles of small scripts on CPUs with gloo; where torch is absent these tests are skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("torch") is None:
        skip = pytest.mark.skip(reason="PyTorch is not installed: pip install dally[torch]")
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(skip)


def dally(*arguments: str | Path, code: int | None = 0, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """`dally …` as a person would call it."""
    done = subprocess.run(
        [sys.executable, "-m", "dally.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "160"},
    )
    assert code is None or done.returncode == code, done.stderr
    return done


def profiled(out: Path, *arguments: str | Path, code: int | None = 0) -> dict:
    """A quick profile as JSON."""
    quick = ("--steps", "5", "--repeats", "2", "--quiet", "--out", out)
    dally("profile", "run", *quick, *arguments, code=code)
    return json.loads(dally("profile", "show", out, "--json").stdout)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per class with small random images."""
    root = tmp_path_factory.mktemp("images")
    for label in range(4):
        (root / f"class{label}").mkdir()
        for number in range(100):
            (root / f"class{label}" / f"{number:03}.bin").write_bytes(os.urandom(3 * 32 * 32))
    return root


@pytest.fixture(scope="session")
def cnn_profile(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unmodified DDP script, profiled over two processes."""
    out = tmp_path_factory.mktemp("profiles") / "cnn.yaml"
    profiled(out, "--processes", "2", SCRIPTS / "folder_cnn.py", images)
    return out
