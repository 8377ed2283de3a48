"""What a small command does before and after it does something: counted, since times are another machine's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SMALL = ("simulate", "-t", "synth:philly", "--jobs", "20", "-c", "2x2x8", "--load", "0.9")
# runs a command as `dally` would, and says what it has cost
COUNTED = """
import dataclasses, json, os, sys
written = []
create = dataclasses._create_fn
def counted(name, *rest, **named):
    written.append(name)
    return create(name, *rest, **named)
dataclasses._create_fn = counted
from dally.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
tasks = "/proc/self/task"
print(json.dumps({"code": code, "modules": sorted(sys.modules), "written": len(written),
                  "threads": len(os.listdir(tasks)) if os.path.isdir(tasks) else 1,
                  "environment": [name for name in os.environ if "THREADS" in name]}), file=sys.stderr)
"""
HEAVY = {"yaml", "rich", "polars", "plotly", "pydantic", "fastapi", "starlette", "uvicorn", "sqlalchemy", "torch",
         "scipy", "highspy", "pandas", "ray", "sortedcontainers", "multiprocessing", "subprocess", "gzip", "csv"}  # fmt: skip
NOT_NEEDED = {"dally.live", "dally.profiler", "dally.experiments.folder", "dally.experiments.output",
              "dally.report.html", "dally.store.journal_file", "dally.simulator.outages",
              "dally.traces.readers"}  # fmt: skip


def cost(folder: Path, *words: str) -> dict[str, Any]:
    without = {name: value for name, value in os.environ.items() if "THREADS" not in name and name != "FORCE_COLOR"}
    ran = subprocess.run([sys.executable, "-c", COUNTED, *words], cwd=folder, env=without, capture_output=True,
                         text=True, check=True)  # fmt: skip
    found: dict[str, Any] = json.loads(ran.stderr.splitlines()[-1])
    assert found["code"] == 0, ran.stderr
    return found


@pytest.mark.parametrize("policy", ["fifo", "dally"])
@pytest.mark.parametrize("more", [(), ("--json",), ("--quiet",)], ids=" ".join)
def test_a_small_simulation_imports_nothing_that_it_does_not_need(policy: str, more: tuple[str, ...], tmp_path: Path) -> None:
    found = cost(tmp_path, *SMALL, "-p", policy, *more)
    modules = set(found["modules"])
    assert modules & HEAVY == set()
    assert {name for name in modules if any(f"{name}.".startswith(f"{each}.") for each in NOT_NEEDED)} == set()
    assert "numpy" in modules  # synthesised traces are drawn with it
    assert sum(name.startswith("dally") for name in modules) < 190
    assert found["written"] <= 100  # methods of dataclasses that the standard library compiles: of mypyc's modules


def test_numpy_starts_no_threads_and_the_environment_stays_as_it_was(tmp_path: Path) -> None:
    found = cost(tmp_path, *SMALL, "-p", "fifo")
    assert found["threads"] == 1 and found["environment"] == []


def test_help_imports_neither_numpy_nor_a_command(tmp_path: Path) -> None:
    modules = set(cost(tmp_path, "--help")["modules"])
    assert not modules & (HEAVY | {"numpy"}) and "dally.cli.simulate" not in modules


def test_listing_what_the_catalog_has_parses_no_yaml(tmp_path: Path) -> None:
    for words in (("gpus",), ("models", "resnet50"), ("clusters", "2x4x8")):
        assert "yaml" not in cost(tmp_path, *words)["modules"]


LEFT = """
import atexit, sys
atexit.register(print, "atexit")
sys.argv = ["dally", *sys.argv[1:]]
from dally.cli.main import main
{before}
try:
    main()
finally:
    print("went on")
"""


def left(folder: Path, *words: str, before: str = "") -> list[str]:
    ran = subprocess.run([sys.executable, "-c", LEFT.format(before=before), *words], cwd=folder, capture_output=True,
                         text=True, check=True)  # fmt: skip
    return ran.stdout.splitlines()


def test_a_simulation_that_is_over_leaves_without_tidying_up_but_says_goodbye(tmp_path: Path) -> None:
    said = left(tmp_path, *SMALL, "-p", "fifo", "--json")
    assert said[-1] == "atexit" and json.loads("\n".join(said[:-1]))["policy"] == "fifo"


@pytest.mark.parametrize("before", [
    "sys.setprofile(lambda *_: None)",
    "import threading; threading.Thread(target=threading.main_thread().join).start()",
], ids=["somebody profiles it", "a thread is at work"])  # fmt: skip
def test_it_ends_as_python_does_where_somebody_has_something_left_to_do(before: str, tmp_path: Path) -> None:
    assert left(tmp_path, "policies", "fifo", "--json", before=before)[-2:] == ["went on", "atexit"]
