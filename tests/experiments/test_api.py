"""`import dally`: frames for results, classes for policies, and the command line's own bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import dally
from dally.core.errors import RunError, UserError
from dally.policies.fifo import Fifo
from dally.policies.srtf import Srtf
from tests.experiments.random_cases import TRACE, count, random_case

SMALL: dict[str, Any] = {"trace": "synth:helios", "jobs": 40, "cluster": "1x2x8", "load": 1.0}


class Own(Fifo):
    """A policy of one's own, as a class."""

    title = "own"

    @dataclass(frozen=True, slots=True)
    class Options(Fifo.Options):
        pass


class Broken(Own):
    title = "broken"

    def plan(self, *given: Any) -> Any:
        return {}["nothing"]


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "dally.cli.main", *words], cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("number", range(count(4)))
def test_api_and_command_line_write_the_same_bytes(number: int, inside: Path) -> None:
    (inside / "jobs.csv").write_text(TRACE)
    fields, policy = random_case(number)
    try:
        scenario = dally.Scenario.of(fields)
        dally.simulate(policy, scenario=scenario, out="api")
    except UserError as error:  # a combination that makes no sense is refused by both with the same sentence
        said = command("simulate", *dally.Scenario.of(fields).arguments(), "--policy", policy, "--out", "cli", cwd=inside)
        assert said.returncode == 2 and " ".join(str(error).split()) in said.stderr
        return
    done = command("simulate", *scenario.arguments(), "--policy", policy, "--out", "cli", "--quiet", cwd=inside)
    assert done.returncode == 0, done.stderr
    for name in ("jobs.csv", "summary.json", "journal.jsonl.gz", "report.html", "provenance.json"):
        assert (inside / "api" / name).read_bytes() == (inside / "cli" / name).read_bytes(), (name, fields, policy)


def test_a_comparison_writes_what_the_command_writes(inside: Path) -> None:
    made = dally.compare(["fifo", "las"], **SMALL, out="api")
    arguments = made.experiment.scenario.arguments()  # type: ignore[union-attr]
    done = command("compare", *arguments, "--policies", "fifo,las", "--out", "cli", "--quiet", cwd=inside)
    assert done.returncode == 0, done.stderr
    for name in ("fifo/jobs.csv", "las/jobs.csv", "las/journal.jsonl.gz", "summary.json", "report.html"):
        assert (inside / "api" / name).read_bytes() == (inside / "cli" / name).read_bytes(), name


def test_jobs_and_figures_are_frames() -> None:
    run = dally.simulate("srtf", **SMALL)
    assert isinstance(run.jobs, pl.DataFrame) and isinstance(run.summary, pl.DataFrame)
    measured = run.jobs.filter("measured")
    assert len(run.summary) == 1 and run.summary["jobs"][0] == len(measured)
    assert run.summary["avg_jct"][0] == pytest.approx(measured["jct"].mean())
    assert run.figures["measured"]["load_asked"] == 1.0


def test_a_comparison_has_a_row_per_policy() -> None:
    made = dally.compare("fifo,srtf[gpu_time=true]", **SMALL, workers=1)
    assert made.summary["policy"].to_list() == ["fifo", "srtf[gpu_time=true]"]
    assert set(made.jobs["policy"]) == {"fifo", "srtf[gpu_time=true]"}
    assert made["fifo"].policy == "fifo"


def test_a_class_and_an_instance_are_policies_and_an_instance_is_not_used_up() -> None:
    as_text = dally.simulate("srtf[gpu_time=true]", **SMALL)
    instance = Srtf(Srtf.Options(gpu_time=True))
    for _ in range(2):
        assert dally.simulate(instance, **SMALL).jobs.equals(as_text.jobs)  # type: ignore[arg-type]
    own = dally.simulate(Own, **SMALL)  # type: ignore[arg-type]
    assert own.policy == "own"
    assert own.jobs.equals(dally.simulate("fifo", **SMALL).jobs)


def test_an_exception_in_a_policy_names_policy_and_place_and_the_others_keep_their_results() -> None:
    for workers in (1, 2):
        made = dally.compare(["fifo", Broken, "las"], **SMALL, workers=workers)  # type: ignore[list-item]
        assert [each.policy for each in made.results] == ["fifo", "las"]
        (failure,) = made.failures
        assert failure.policy == "broken"
        assert "policy 'broken' failed: KeyError: 'nothing' (test_api.py, line " in str(failure.error)
        assert "Traceback" in failure.error.details  # type: ignore[union-attr]
    with pytest.raises(RunError, match="broken"):
        dally.simulate(Broken, **SMALL)  # type: ignore[arg-type]


def test_a_killed_worker_is_the_failure_of_its_policy_alone(tmp_path: Path) -> None:
    (tmp_path / "suicidal.py").write_text(
        "import os\nfrom dataclasses import dataclass\nfrom dally.policies.fifo import Fifo\n"
        "class Suicidal(Fifo):\n    title = 'suicidal'\n"
        "    @dataclass(frozen=True, slots=True)\n    class Options(Fifo.Options):\n        pass\n"
        "    def plan(self, *given):\n        os.kill(os.getpid(), 9)\n"
    )
    made = dally.compare(["fifo", str(tmp_path / "suicidal.py")], **SMALL, workers=2)
    assert [each.policy for each in made.results] == ["fifo"]
    assert "was killed (signal 9)" in str(made.failures[0].error)


def test_a_trace_in_memory_gives_what_its_file_gives(inside: Path) -> None:
    (inside / "jobs.csv").write_text(TRACE)
    from_file = dally.simulate("las", trace="jobs.csv", cluster="1x2x8")
    in_memory = dally.simulate("las", trace=dally.load_trace("jobs.csv"), cluster="1x2x8", out="out")
    assert in_memory.jobs.equals(from_file.jobs)
    assert json.loads(Path("out/provenance.json").read_text())["scenario"]["trace"].startswith("in memory: jobs, 60 jobs")
    assert dally.rerun("out").same


def test_what_is_misspelt_is_one_sentence() -> None:
    with pytest.raises(UserError, match="a scenario has no field 'laod'; did you mean load"):
        dally.simulate("fifo", trace="synth:helios", cluster="1x2x8", laod=1.0)
    with pytest.raises(UserError, match="needs a cluster"):
        dally.simulate("fifo", trace="synth:helios")
    with pytest.raises(UserError, match="there is no policy 'fiffo'"):
        dally.compare("fifo,fiffo", **SMALL)


def test_importing_dally_imports_nothing_heavy() -> None:
    code = "import sys, dally; assert not {'numpy', 'polars', 'click', 'yaml'} & set(sys.modules), sys.modules.keys()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_pandas_is_asked_for_in_words_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = dally.simulate("fifo", **SMALL)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pandas is not installed"):
        run.to_pandas()


def test_pandas_gets_the_same_jobs() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    run = dally.simulate("fifo", **SMALL)
    frame = run.to_pandas()
    assert list(frame["job_id"]) == run.jobs["job_id"].to_list()


def test_a_plan_error_survives_the_way_home() -> None:
    import pickle

    from dally.core.errors import PlanError

    again = pickle.loads(pickle.dumps(PlanError("mine", "7", "was started twice")))
    assert str(again) == "policy 'mine', job '7': was started twice" and again.job == "7"
