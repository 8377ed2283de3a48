"""Training loops in the styles people write them are profiled without an edit, or refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.conftest import SCRIPTS, dally, profiled

pytestmark = pytest.mark.torch
STYLES = SCRIPTS / "styles.py"
RUNS = ("--no-trace", "--threads", "1", "--only", "one", "--only", "cached")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "batch", "layers"),
    [
        ("accumulation", 32, 2),
        ("two-loaders", 40, 2),
        ("next-iter", 8, 1),
        ("full-batch", 80, 1),
        ("iterable", 7, 2),
        ("validation", 8, 2),
        ("elsewhere", 8, 2),
    ],
)
def test_a_loop_in_this_style_is_measured_with_both_kinds_of_data(
    style: str, batch: int, layers: int, tmp_path: Path
) -> None:
    found = profiled(tmp_path / "p.yaml", *RUNS, STYLES, style)
    assert found["status"] == "complete" and {"one", "cached"} <= set(found["runs"])
    assert found["batch"] == batch
    assert len(found["model"]["layers"]) == layers
    assert all(row["measured"]["backward"] > 0 and row["forward_flops"] > 0 for row in found["model"]["layers"])
    # synthetic data are resident: what a step waits for is real data
    assert found["runs"]["one"]["wait"] < found["runs"]["cached"]["wait"]


def test_accumulated_passes_are_told_apart(tmp_path: Path) -> None:
    """The forward pass of the last layer is not all that happens until the last backward pass begins."""
    model = profiled(tmp_path / "p.yaml", *RUNS, "--only", "one", STYLES, "accumulation")["model"]
    first, last = (row["measured"] for row in model["layers"])
    assert last["forward"] < last["backward"] + first["backward"] + first["forward"]


def test_without_a_loader_samples_are_what_the_model_is_called_with(tmp_path: Path) -> None:
    found = profiled(tmp_path / "p.yaml", "--no-trace", "--threads", "1", STYLES, "own-batches")
    assert found["batch"] == 16 and len(found["model"]["layers"]) == 2
    assert any("does not draw its data from a DataLoader" in note for note in found["notes"])


@pytest.mark.slow
def test_a_compiled_model_is_timed_as_a_whole_and_told_so(tmp_path: Path) -> None:
    found = profiled(tmp_path / "p.yaml", *RUNS, STYLES, "compiled")
    assert found["runs"]["one"]["step"] > 0 and "model" not in found
    assert any("the model is compiled" in note for note in found["notes"])


def test_a_script_that_asks_a_question_is_told_that_nobody_answers(tmp_path: Path) -> None:
    done = dally("profile", "run", "--out", tmp_path / "p.yaml", STYLES, "asks", code=2)
    assert "EOFError" in done.stderr and "gets no standard input" in done.stderr


def test_names_in_any_script_may_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "wörk ünï"
    folder.mkdir()
    script = folder / "träin ✓.py"
    script.write_text(STYLES.read_text())
    found = profiled(folder / "ö.yaml", "--no-trace", "--threads", "1", "--only", "one", script, "plain")
    assert found["name"] == "träin ✓" and found["runs"]["one"]["steps"] == 10
