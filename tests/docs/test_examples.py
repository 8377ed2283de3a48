"""Every example in the documentation runs: `>>>` sessions as doctests, `$ ` lines as commands."""

from __future__ import annotations

import doctest
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if ">>>" in p.read_text()], ids=page_name)
def test_python_sessions_give_what_the_page_says(page: Path) -> None:
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0 and result.attempted > 0


@pytest.mark.parametrize("page", [p for p in PAGES if "```console" in p.read_text()], ids=page_name)
def test_commands_on_the_page_run(page: Path, tmp_path: Path) -> None:
    """The page's ```python blocks that define a file named in its text are written beside the commands first."""
    text = page.read_text()
    for name, code in re.findall(r"Write `([\w.]+)`:\n\n```python\n(.*?)```", text, re.S):
        (tmp_path / name).write_text(code)
    state = tmp_path / "state"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DALLY_")}
    environment = {**plain, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "160",
                   "DALLY_STATE": str(state), "DALLY_PORT": "0"}  # fmt: skip
    try:
        for block in re.findall(r"```console\n(.*?)```", text, re.S):
            for line in block.splitlines():
                if line.startswith("$ "):
                    done = subprocess.run(["bash", "-c", line[2:]], cwd=tmp_path, env=environment, capture_output=True,
                                          text=True, timeout=120)  # fmt: skip
                    assert done.returncode == 0, f"{line}\n{done.stderr}"
                if line.endswith("&"):
                    _until_it_serves(state, tmp_path)
    finally:
        _stop(state)


def _until_it_serves(state: Path, folder: Path) -> None:
    """A person who types the next line takes longer than a service to start."""
    deadline = time.monotonic() + 60
    while not (state / "service.json").exists():
        assert time.monotonic() < deadline, (folder / "serve.log").read_text()
        time.sleep(0.05)


def _stop(state: Path) -> None:
    """The service a page has started."""
    if (state / "service.json").exists():
        number = json.loads((state / "service.json").read_text())["pid"]
        os.kill(number, signal.SIGTERM)
        deadline = time.monotonic() + 60
        while (state / "service.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)


def test_no_link_between_pages_is_broken() -> None:
    missing = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                missing.append(f"{page_name(page)} → {target}")
    assert not missing
