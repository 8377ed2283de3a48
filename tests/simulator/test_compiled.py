"""The compiled build: of the same sources, with the same journals, taken only as long as the sources are the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from dally.compilable import differences
from dally.compiled import RECORD, changed, digest_of, places
from dally.compiling import NoCompiler, NotCompiled, build, modules
from dally.core.placement import Placement
from dally.experiments.checks.worlds import variants
from dally.policies.options import all_policies, make_policy

ROOT = Path(__file__).parents[2]

RUNS = '''
import hashlib, json, sys
import dally.core.scheduler
from dally.compiled import is_compiled
from dally.core.journal_text import JournalText
from dally.core.plan import Plan
from dally.core.ranking import Rank
from dally.policies.base import RankedPolicy
from dally.core.placement import Placement
from dally.experiments.checks.worlds import variants
from dally.policies.greedy import plan_by_rank
from dally.policies.options import all_policies
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
assert (dally.core.scheduler.__file__.endswith(".py")) != is_compiled()
for name, more in (("helios", {}), ("philly", {"mtbf": "3d", "job_mtbf": "5d", "start_latency": 20.0})):
    made = Scenario.of({"trace": f"synth:{name}", "cluster": "2x4x4", "jobs": 60, "load": 1.1, "seed": 3, **more}).prepare()
    for policy in (*(variant for title, _ in all_policies() for variant in variants(title) if variant != "gavel[round=3.6]"), Widest):
        digest, text = hashlib.sha256(), JournalText(made.topology)
        made.run(policy, listeners=(lambda instant: digest.update(text.encode(instant).encode()),))
        found[f"{name} {policy}"] = digest.hexdigest()
print(json.dumps(found))
'''


def digests(**environment: str) -> dict[str, object]:
    clean = {name: value for name, value in os.environ.items() if name not in ("DALLY_PURE", "DALLY_COMPILED")}
    done = run_python(RUNS, {**clean, **environment})
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert str(found.pop("file")).startswith(str(ROOT / "src"))
    return found


def run_python(code: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**environment, "PYTHONPATH": str(ROOT / "src")})  # fmt: skip


def built(tmp_path: Path) -> Path:
    """The build of the working copy where it fits the sources, else one made for the purpose, quickly."""
    kept = ROOT / "build" / "compiled"
    record = json.loads((kept / RECORD).read_text()) if (kept / RECORD).exists() else None
    if record and record["version"] == sys.version and not changed(str(ROOT / "src" / "dally"), record):
        return kept
    try:
        build(tmp_path / "built", level="0")
    except NoCompiler as why:
        pytest.skip(str(why))
    return tmp_path / "built"


@pytest.mark.slow
def test_the_compiled_build_writes_the_same_journals_and_runs_policies_in_plain_python(tmp_path: Path) -> None:
    """Every registered policy with every choice of its options; only rounds of seconds take too long."""
    folder = built(tmp_path)
    pure, compiled = digests(DALLY_PURE="1"), digests(DALLY_COMPILED=str(folder))
    assert (pure.pop("compiled"), compiled.pop("compiled")) == (False, True)
    assert compiled == pure


def test_a_source_that_changed_since_is_named_unless_it_only_looks_changed(tmp_path: Path) -> None:
    (tmp_path / "same.py").write_text("a = 1\n")
    (tmp_path / "other.py").write_text("b = 1\n")
    stats = {name: (tmp_path / name).stat() for name in ("same.py", "other.py")}
    record = {"sources": [[name, stat.st_size, stat.st_mtime_ns, digest_of(str(tmp_path / name))]
                          for name, stat in stats.items()]}  # fmt: skip
    assert changed(str(tmp_path), record) == []
    os.utime(tmp_path / "same.py")  # another time, the same text
    assert changed(str(tmp_path), record) == []
    (tmp_path / "other.py").write_text("b = 2\n")  # the same size, another text
    assert changed(str(tmp_path), record) == ["other.py"]
    (tmp_path / "other.py").unlink()
    assert changed(str(tmp_path), record) == ["other.py"]


def test_a_build_of_other_sources_is_not_taken_and_the_version_says_so(tmp_path: Path) -> None:
    scheduler = (ROOT / "src" / "dally" / "core" / "scheduler.py").stat()
    record = {"library": "there.so", "version": sys.version, "modules": ["dally.core.scheduler"],
              "sources": [["core/scheduler.py", scheduler.st_size, 1, "another text"]]}  # fmt: skip
    (tmp_path / "there.so").write_text("not looked at")
    (tmp_path / RECORD).write_text(json.dumps(record))
    clean = {name: value for name, value in os.environ.items() if name not in ("DALLY_PURE", "DALLY_COMPILED")}
    refused = run_python("import dally", {**clean, "DALLY_COMPILED": str(tmp_path)})
    assert "core/scheduler.py changed since it was compiled" in refused.stderr and refused.returncode == 1
    pure = {**clean, "DALLY_PURE": "1", "DALLY_COMPILED": str(tmp_path)}
    said = run_python("from dally.cli.main import main; main(['--version'])", pure)
    assert "(pure Python: DALLY_PURE is set)" in said.stdout


def test_without_a_compiler_a_sentence_says_that_everything_runs_all_the_same(tmp_path: Path) -> None:
    script = str(ROOT / "src" / "dally" / "compiling.py")
    environment = {**os.environ, "CC": "no-such-compiler"}
    for more, code in (((), 0), (("--must",), 3)):
        done = subprocess.run([sys.executable, script, "--into", str(tmp_path / "built"), *more], env=environment,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == code
        assert done.stderr == "not compiled, Dally runs as pure Python: there is no C compiler (no-such-compiler)\n"
    assert not (tmp_path / "built").exists()


def test_what_mypyc_does_not_take_is_named(tmp_path: Path) -> None:
    pytest.importorskip("mypyc")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "src" / "dally").mkdir(parents=True)
    (tmp_path / "src" / "dally" / "odd.py").write_text("class A:\n    class B:\n        pass\n")
    (tmp_path / "pyproject.toml").write_text('[tool.dally.compiled]\nmodules = ["odd"]\npure = []\n')
    with pytest.raises(NotCompiled, match=r"odd\.py:2"):
        build(tmp_path / "built", root=tmp_path)
    assert not (tmp_path / "built" / RECORD).exists()


def test_nothing_compiled_is_looked_for_or_lies_beside_the_sources() -> None:
    package = ROOT / "src" / "dally"
    assert places(str(package)) == [str(package / "_built"), str(ROOT / "build" / "compiled")]
    assert places("/usr/lib/python3/dist-packages/dally") == ["/usr/lib/python3/dist-packages/dally/_built"]
    assert not [*(ROOT / "src").rglob("*.so"), *(ROOT / "src").rglob(RECORD)]


def test_nothing_is_compiled_that_would_mean_something_else() -> None:
    """Here rather than when somebody next compiles: classes that must stay Python are named, with the reason."""
    assert differences(ROOT / "src" / "dally", modules()) == []


@pytest.mark.parametrize(("text", "why"), [
    ("from dally.mid import Mine\nclass Kept(Mine):\n    jobs: int = 0\n", "annotations"),
    ("from dally.core.policy_base import PolicyBase\nclass Mine(PolicyBase):\n    pass\n", "policies derive"),
    ("from typing import Protocol, runtime_checkable\n@runtime_checkable\nclass Costs(Protocol):\n    pass\n", "isinstance"),
    ("class Many:\n    def __len__(self) -> int:\n        return 0\n", "`__bool__`"),
    ("from functools import cached_property\nclass Late:\n    @cached_property\n    def found(self) -> int:\n        return 1\n",
     "at every use (found)"),
    ("def same(a: tuple[int, int], b: tuple[int, int]) -> bool:\n    return a is b\n", "no identity"),
])
def test_a_class_that_would_mean_something_else_is_not_compiled(tmp_path: Path, text: str, why: str) -> None:
    package = tmp_path / "src" / "dally"
    (package / "core").mkdir(parents=True)
    (package / "core" / "memory.py").write_text("class Memory:\n    pass\n")
    (package / "core" / "policy_base.py").write_text("class PolicyBase:\n    pass\n")
    (package / "mid.py").write_text("from dally.core.memory import Memory\nclass Mine(Memory):\n    pass\n")
    (package / "inner.py").write_text(text)
    (tmp_path / "pyproject.toml").write_text('[tool.dally.compiled]\nmodules = ["inner"]\npure = []\n')
    [found] = differences(package, ["inner"])
    assert found.startswith("inner.py:") and why in found
    assert differences(package, []) == []
    with pytest.raises(NotCompiled, match=r"would mean something else: inner\.py"):
        build(tmp_path / "built", root=tmp_path)


def named_in(hint: Any) -> Iterator[type]:
    """The classes of a type hint, and of the fields of those that are records."""
    for inside in get_args(hint):
        yield from named_in(inside)
    if isinstance(hint, type):
        yield hint
        if hasattr(hint, "_fields") or is_dataclass(hint):
            for kind in get_type_hints(hint).values():
                yield from named_in(kind)


def test_records_that_memories_keep_are_plain_python_unless_their_fields_are_mere_numbers_and_words() -> None:
    """Compiled, a field that may be a number or nothing forgets what it is, and is not read back as it was saved."""
    compiled = {"dally." + name.replace("/", ".") for name in modules(ROOT)}
    seen = set()
    for title, _ in all_policies():
        for variant in variants(title):
            for hint in make_policy(variant).new_memory().fields().values():
                seen |= {kind for kind in named_in(hint) if hasattr(kind, "_fields") or is_dataclass(kind)}
    assert {"Demand", "Expected", "Waits"} <= {kind.__name__ for kind in seen}
    others = [kind for kind in seen - {Placement} if kind.__module__ in compiled]  # which has a form of its own
    assert [kind for kind in others if set(get_type_hints(kind).values()) - {float, int, str, bool}] == []


def test_plain_python_derives_from_nothing_compiled_but_tuples_and_the_like(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text("from typing import NamedTuple\nclass A:\n    pass\nclass T(NamedTuple):\n    a: int\n")
    (tmp_path / "outer.py").write_text("from dally.inner import A, T\nclass B(A):\n    pass\nclass U(T):\n    pass\n")
    assert differences(tmp_path, ["inner"]) == ["outer.py:2, class B: it derives from A, which is compiled (inner.py): plain Python cannot"]
    assert differences(tmp_path, []) == []
