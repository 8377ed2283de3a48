"""The compiled build: of the same sources, with the same journals, never beside sources that somebody edits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dally.compiled import RECORD, digest_of, edited

ROOT = Path(__file__).parents[2]

RUNS = '''
import hashlib, json, sys
import dally
from dally.compiled import is_compiled
from dally.core.journal_text import JournalText
from dally.core.plan import Plan
from dally.core.ranking import Rank
from dally.policies.base import RankedPolicy
from dally.policies.greedy import plan_by_rank
from dally.simulator.scenario import Scenario
from dataclasses import dataclass


class Widest(RankedPolicy):
    """A policy of somebody else's, in plain Python: the widest gang first."""

    title = "widest"
    preempts = True

    @dataclass(frozen=True, slots=True)
    class Options:
        placement: str = "best-fit"

    def rank(self, view, memory, job, now):
        return Rank(-float(job.gpus))

    def plan(self, view, memory, now):
        return plan_by_rank(view, now, self.place, preempt=True)


found = {"compiled": is_compiled(), "file": dally.__file__}
for name, more in (("helios", {}), ("philly", {"mtbf": "3d", "job_mtbf": "5d", "start_latency": 20.0})):
    made = Scenario.of({"trace": f"synth:{name}", "cluster": "2x4x4", "jobs": 80, "load": 1.1, "seed": 3, **more}).prepare()
    for policy in ("fifo", "fifo[backfill=true]", "smallest", "srtf", "las", "tiresias", "tiresias[index=gittins]",
                   "tiresias[variant=released]", "gandiva", "slurm", "dally", "dally[timers=auto]", Widest):
        digest, text = hashlib.sha256(), JournalText(made.topology)
        made.run(policy, listeners=(lambda instant: digest.update(text.encode(instant).encode()),))
        found[f"{name} {policy}"] = digest.hexdigest()
print(json.dumps(found))
'''


def digests(package: Path) -> dict[str, object]:
    environment = {**os.environ, "PYTHONPATH": str(package)}
    done = subprocess.run([sys.executable, "-c", RUNS], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert str(found.pop("file")).startswith(str(package))
    return found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="there is no C compiler")
@pytest.mark.skipif(find_spec("mypyc") is None, reason="mypyc is not installed (dally[dev])")
def test_the_compiled_build_writes_the_same_journals_and_runs_policies_in_plain_python(tmp_path: Path) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    environment = {**os.environ, "DALLY_COMPILE": "1", "DALLY_COMPILE_LEVEL": "0"}
    build = [sys.executable, "setup.py", "--quiet", "build", "--build-lib", str(tmp_path / "built")]
    done = subprocess.run(build, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pure, compiled = digests(ROOT / "src"), digests(tmp_path / "built")
    assert (pure.pop("compiled"), compiled.pop("compiled")) == (False, True)
    assert compiled == pure
    assert edited(str(tmp_path / "built" / "dally")) == []
    assert not list((tmp_path / "src").rglob("*.so"))


def test_a_compiled_build_in_place_is_refused_in_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("mypyc")
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "src" / "dally").mkdir(parents=True)
    (tmp_path / "src" / "dally" / "version.py").write_text('__version__ = "0"\n')
    (tmp_path / "src" / "dally" / "__init__.py").write_text("")
    text = (tmp_path / "pyproject.toml").read_text()
    begin = text.index("[tool.dally.compiled]")
    (tmp_path / "pyproject.toml").write_text(text[:begin] + '[tool.dally.compiled]\nmodules = ["version"]\n')
    done = subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=tmp_path, check=False,
                          env={**os.environ, "DALLY_COMPILE": "1"}, capture_output=True, text=True)  # fmt: skip
    assert done.returncode != 0 and "would hide what is edited" in done.stderr
    assert not list(tmp_path.rglob("*.so"))


def test_sources_that_were_edited_after_they_were_compiled_are_named(tmp_path: Path) -> None:
    (tmp_path / "same.py").write_text("a = 1\n")
    (tmp_path / "other.py").write_text("b = 1\n")
    names = ["same.py", "other.py", "gone.py"]
    assert edited(str(tmp_path)) == []  # nothing is compiled
    record = {name: digest_of(str(tmp_path / name)) or "0" for name in names}
    (tmp_path / RECORD).write_text(json.dumps(record))
    assert edited(str(tmp_path)) == ["gone.py"]
    (tmp_path / "other.py").write_text("b = 2\n")
    assert edited(str(tmp_path)) == ["other.py", "gone.py"]


def test_no_compiled_module_lies_beside_the_sources() -> None:
    assert not [*(ROOT / "src").rglob("*.so"), *(ROOT / "src").rglob(RECORD)]
