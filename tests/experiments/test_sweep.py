"""Sweeps: resumable, one failure costs one cell, paired intervals, and noise called noise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

import dally
from dally.core.errors import UserError
from dally.experiments.sweeps.spec import SweepSpec
from dally.experiments.sweeps.statistics import bootstrap, paired, student_quantile
from tests.experiments.comparing import lasting

SPEC: dict[str, Any] = {
    "scenario": {"trace": "synth:helios", "jobs": 30, "cluster": "1x2x8"},
    "policies": ["fifo", "srtf", {"las": {"quantum": ["1m", "10m"]}}],
    "vary": {"load": [0.7, 1.0]},
    "seeds": 3,
}
BROKEN = (
    "from dataclasses import dataclass\nfrom dally.policies.fifo import Fifo\n"
    "class Broken(Fifo):\n    title = 'broken'\n"
    "    @dataclass(frozen=True, slots=True)\n    class Options(Fifo.Options):\n        pass\n"
    "    def plan(self, *given):\n        return 1 / 0\n"
)


def sweep_command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "dally.cli.main", "sweep", str(folder / "spec.yaml"), *words]


def finished(out: Path) -> int:
    return len([each for each in (out / "cells").glob("*.json") if not each.name.endswith(".error.json")])


def test_a_sweep_that_was_killed_half_way_and_resumed_equals_one_that_was_not(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    out = tmp_path / "killed"
    process = subprocess.Popen(sweep_command(tmp_path, "--out", str(out), "--quiet"), start_new_session=True,
                               stdout=subprocess.DEVNULL)  # fmt: skip
    while process.poll() is None and finished(out) < 8:
        time.sleep(0.02)
    assert process.poll() is None, "it was over before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    there = finished(out)
    assert 8 <= there < 24
    stamps = {path: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}
    resumed = dally.sweep(tmp_path / "spec.yaml", out=out)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps, "a finished cell was run again"
    whole = dally.sweep(tmp_path / "spec.yaml", out=tmp_path / "whole", workers=1)
    assert len(whole.cells) == 24 and not whole.failures and not whole.missing
    assert lasting(resumed.cells).equals(lasting(whole.cells))
    assert resumed.summary.equals(whole.summary)
    assert lasting(pl.read_parquet(out / "results.parquet")).equals(lasting(whole.cells))


def test_ctrl_c_keeps_what_is_finished_and_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "seeds": 30}))
    process = subprocess.Popen(sweep_command(tmp_path, "--quiet"), start_new_session=True, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip
    while process.poll() is None and finished(tmp_path / "spec") < 3:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130 and "Traceback" not in errors
    assert "of 240 cells have not been run; the same command goes on with them" in errors
    assert len(pl.read_parquet(tmp_path / "spec/results.parquet")) == finished(tmp_path / "spec") < 240


def test_classes_take_part_in_a_sweep(tmp_path: Path) -> None:
    from dally.policies.srtf import Srtf

    made = dally.sweep({**SPEC, "policies": ["srtf[gpu_time=true]", Srtf], "vary": {}, "seeds": 1}, out=tmp_path)
    assert made.summary["policy"].to_list() == ["srtf[gpu_time=true]", "srtf"] and not made.failures


def test_a_class_typed_where_nobody_keeps_its_lines_is_never_mistaken_for_an_earlier_one() -> None:
    from dally.experiments.provenance import policy_record

    lines = "from dally.policies.fifo import Fifo\nclass Mine(Fifo):\n    title = 'mine'\n    def plan(self, *given):\n        return super().plan(*given)\n"
    worlds: list[dict[str, Any]] = [{"__name__": "typed"}, {"__name__": "typed"}]
    for world in worlds:
        exec(lines, world)
    first, second = (policy_record(world["Mine"]) for world in worlds)
    assert first["policy"] == second["policy"] and first["source"] != second["source"]


def test_one_failed_cell_does_not_end_the_rest_and_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    spec = {**SPEC, "policies": ["fifo", str(tmp_path / "mine.py")], "seeds": 2}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    done = subprocess.run(sweep_command(tmp_path, "--quiet"), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.count("policy 'broken' failed: ZeroDivisionError: division by zero (mine.py, line 9, in plan)") == 4
    cells = pl.read_parquet(tmp_path / "spec/results.parquet")
    assert cells["error"].null_count() == 4 and len(cells) == 8
    (tmp_path / "mine.py").write_text(BROKEN.replace("        return 1 / 0\n", "        return super().plan(*given)\n"))
    again = dally.sweep(spec, out=tmp_path / "spec")
    assert not again.failures and len(again.cells) == 8


def test_every_cell_has_its_whole_configuration(tmp_path: Path) -> None:
    made = dally.sweep({**SPEC, "seeds": 1, "vary": {}}, out=tmp_path)
    import json

    for line in made.cells["configuration"]:
        told = json.loads(line)
        assert told["scenario"]["cluster"] == "1x2x8" and told["dally"] == dally.__version__ and told["policy"]["policy"]
    assert made.cells["scenario.preemption_cost"].to_list() == ["model"] * 4


def test_a_cell_is_found_again_in_another_sweep_and_not_where_its_trace_has_changed(tmp_path: Path) -> None:
    from tests.experiments.random_cases import TRACE

    trace = tmp_path / "jobs.csv"
    trace.write_text(TRACE)
    spec = {"scenario": {"trace": str(trace), "cluster": "1x2x8"}, "policies": ["fifo"]}
    dally.sweep(spec, out=tmp_path / "out")
    (first,) = (tmp_path / "out/cells").iterdir()
    dally.sweep({**spec, "policies": ["las", "fifo"]}, out=tmp_path / "out")
    assert finished(tmp_path / "out") == 2
    trace.write_text(TRACE.replace("600", "601", 1))
    with pytest.raises(UserError, match="holds the table of another sweep"):
        dally.sweep(spec, out=tmp_path / "out")
    dally.sweep(spec, out=tmp_path / "out", force=True)
    assert finished(tmp_path / "out") == 3 and first.exists()


def test_a_cell_is_what_the_same_simulation_gives(tmp_path: Path) -> None:
    made = dally.sweep({**SPEC, "policies": ["srtf"]}, out=tmp_path)
    for load, seed, jct in made.cells.select("at.load", "seed", "avg_jct").iter_rows():
        alone = dally.simulate("srtf", **SPEC["scenario"], load=float(load), seed=seed)
        assert alone.figures["avg_jct"] == jct


def test_entrants_may_be_told_different_things(tmp_path: Path) -> None:
    spec = {**SPEC, "seeds": 1, "vary": {}, "policies": [
        {"policy": "srtf", "name": "told"}, {"policy": "srtf", "knowledge": "noisy=2", "name": "misled"}]}  # fmt: skip
    made = dally.sweep(spec, out=tmp_path)
    assert made.cells["scenario.knowledge"].to_list() == ["auto", "noisy=2"]
    assert made.summary["policy"].to_list() == ["told", "misled"]


def test_cases_go_together_and_axes_multiply() -> None:
    spec = SweepSpec.of({
        "scenario": {"trace": "synth:helios"}, "policies": ["fifo", {"srtf": {"gpu_time": [True, False]}}],
        "cases": [{"cluster": "1x2x8", "jobs": 20}, {"cluster": "2x2x8", "jobs": 40}],
        "vary": {"load": [0.5, 1.0], "knowledge": ["declared", "none"]}, "seeds": [3, 4],
    })  # fmt: skip
    cells = list(spec.cells())
    assert len(cells) == len(spec) == 2 * 2 * 2 * 2 * 3 == len({cell.key for cell in cells})
    assert {(cell.scenario.cluster, cell.scenario.jobs) for cell in cells} == {("1x2x8", 20), ("2x2x8", 40)}
    assert spec.labels == ["fifo", "srtf[gpu_time=true]", "srtf"]


@pytest.mark.parametrize(("change", "says"), [
    ({"policys": ["fifo"]}, "there is no 'policys' in a sweep"),
    ({"policies": []}, "at least one value"),
    ({"policies": ["fiffo"]}, "there is no policy 'fiffo'"),
    ({"policies": ["fifo", "fifo"]}, "'fifo' is there twice"),
    ({"policies": [{"fifo": 3}]}, "is neither"),
    ({"policies": [{"policy": "fifo", "load": 1.0}]}, "load is the same for all policies"),
    ({"vary": {"laod": [1]}}, "no field 'laod'; did you mean load"),
    ({"vary": {"load": 1.0}}, "must be a list"),
    ({"vary": {"seed": [1, 2]}}, "write seeds: 5"),
    ({"vary": {"jobs": [20]}}, "given in scenario and in vary"),
    ({"seeds": 0}, "write how many"),
    ({"seeds": [1, 1]}, "write how many"),
    ({"baseline": "las"}, "is not one of the policies"),
    ({"figures": ["avg_jtc"]}, "there is no figure 'avg_jtc'"),
    ({"scenario": {"trace": "synth:helios"}}, "needs a cluster"),
])  # fmt: skip
def test_what_is_wrong_with_a_spec_is_one_sentence(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        SweepSpec.of({**SPEC, **change})


def test_compare_over_seeds_and_loads_is_a_small_sweep(tmp_path: Path) -> None:
    words = ["compare", "-t", "synth:helios", "--jobs", "30", "-c", "1x2x8", "-p", "fifo,srtf", "--seeds", "2", "--loads", "0.7,1.1",
             "--out", "out"]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "dally.cli.main", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "(too few seeds)" in done.stdout and "load 1.1: avg JCT:" in done.stdout
    assert len(pl.read_parquet(tmp_path / "out/results.parquet")) == 8
    page = (tmp_path / "out/report.html").read_text()
    assert "avg JCT over load" in page and "expanded percentile bootstrap" in page and "How it was made" in page


def test_time_left_is_that_of_the_cells_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    from dally.experiments.sweeps.running import SweepProgress

    progress = SweepProgress(200, 40, quiet=True)
    for failed in (False, False, True, False):
        progress(failed=failed)
    assert progress.line(elapsed=20.0) == "44 of 200 cells, 1 failed, about 13 min left"


def test_a_ratio_is_paired_by_seed() -> None:
    """Seeds differ tenfold and the policies by 10 % on each: unpaired this would drown, paired it is certain."""
    base = {seed: 10.0 ** (seed % 4) for seed in range(8)}
    ratio = paired({seed: 0.9 * value for seed, value in base.items()}, base)
    assert ratio is not None and ratio.value == pytest.approx(0.9) and ratio.verdict == "less"
    partly = paired({seed: 0.9 * base[seed] for seed in range(5)}, base)
    assert partly is not None and partly.seeds == 5
    few = paired({1: 0.9 * base[1]}, base)
    assert few is not None and few.verdict == "too few seeds"
    assert paired({}, base) is None and paired({1: 0.0}, base) is None
    same = paired(base, base)
    assert same is not None and same.verdict == "same"


def test_what_may_be_nothing_is_called_noise() -> None:
    chance = np.random.default_rng(3)
    base = dict(enumerate(chance.lognormal(0, 0.3, 6)))
    other = dict(enumerate(chance.lognormal(0, 0.3, 6)))
    ratio = paired(other, base)
    assert ratio is not None and ratio.verdict == "noise"


@pytest.mark.parametrize("seeds", [5, 10])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(seeds: int) -> None:
    chance = np.random.default_rng(5)
    intervals = [bootstrap(chance.normal(0, 1, seeds).tolist()) for _ in range(1000)]
    held = sum(low <= 0 <= high for low, high in filter(None, intervals)) / len(intervals)
    assert 0.91 <= held <= 0.98


@pytest.mark.parametrize(("freedom", "expected"), [(1, 12.7062), (4, 2.7764), (9, 2.2622), (29, 2.0452)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(expected, abs=1e-3)


TUNED_ON = {*range(1, 6), *range(101, 104)}  # seeds that constants were looked at on, and those of the earlier grid


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "benchmarks/sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_specs_of_the_grid_are_whole_and_their_seeds_were_not_tuned_on(path: Path) -> None:
    spec = SweepSpec.read(path)
    assert len(spec.seeds) >= 5 and not TUNED_ON & set(spec.seeds)
    keys = [cell.key for cell in spec.cells()]
    assert len(set(keys)) == len(keys) == len(spec), "a cell is there twice"
