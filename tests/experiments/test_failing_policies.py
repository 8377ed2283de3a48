"""What breaks under `compare` costs nobody else anything and reads as what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Dally, dally, small_trace  # noqa: F401 - fixtures

HEAD = (
    "from dataclasses import dataclass\nfrom dally.core.errors import PlanError\nfrom dally.policies.fifo import Fifo\n"
    "class Broken(Fifo):\n    title = 'broken'\n"
    "    @dataclass(frozen=True, slots=True)\n    class Options(Fifo.Options):\n        pass\n"
    "    def plan(self, *given):\n"
)


@pytest.mark.parametrize(("line", "says"), [
    ("return {}['x']", "policy 'broken' failed: KeyError: 'x' (broken.py, line 10, in plan)"),
    ("raise PlanError('broken', '7', 'was started twice')", "policy 'broken', job '7': was started twice"),
    ("import os; os._exit(3)", "policy 'broken' was being run by a process that ended with exit code 3"),
])  # fmt: skip
def test_the_others_keep_their_results(line: str, says: str, dally: Dally, small_trace: Path, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "broken.py").write_text(HEAD + f"        {line}\n")
    done = dally("compare", "-t", "jobs.csv", "-c", "2x4", "-p", "fifo,broken.py,las", "--workers", "2", "--out", "out", "--quiet", "--json")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.strip() == f"dally: {says}"
    assert [run["policy"] for run in json.loads(done.stdout)] == ["fifo", "las"]
    assert (tmp_path / "out/las/jobs.csv").exists() and says in (tmp_path / "out/broken.error.txt").read_text()
    assert "broken" in (tmp_path / "out/report.html").read_text()


def test_alone_it_is_one_sentence_and_exit_code_1(dally: Dally, small_trace: Path, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "broken.py").write_text(HEAD + "        return 1 / 0\n")
    done = dally("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "broken.py")
    assert done.returncode == 1
    assert done.stderr.strip() == "dally: policy 'broken' failed: ZeroDivisionError: division by zero (broken.py, line 10, in plan)"
