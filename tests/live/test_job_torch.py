"""A real DDP job that is interrupted and goes on elsewhere trains exactly as one that is not."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from local_attempts import begins, ends, eventually, order, reports

from dally.live.engine import Exited, Order, Stepped
from dally.live.local.engine import LocalEngine

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: pip install dally[torch]")]

DDP = Path(__file__).parent / "scripts" / "ddp.py"
SOURCE = Path(__file__).parents[2] / "src"
STEPS = 24  # four epochs of 96 points over two ranks in batches of eight


def training(losses: Path, machines: tuple[str, ...], attempt: int, pause: float, workers: int = 0, job: str = "1") -> Order:
    return order(sys.executable, str(DDP), str(losses), str(pause), str(workers), job=job, attempt=attempt, machines=machines,
                 mask=1 if len(machines) == 2 else 3, processes="gpu", grace=60.0, environment={"PYTHONPATH": str(SOURCE)})  # fmt: skip


def lines(path: Path, rank: int) -> list[str]:
    file = path.with_name(f"{path.name}-{rank}")
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(("places", "workers"), [
    ((("m0",), ("m1", "m2")), 0),
    pytest.param((("m0",), ("m1", "m2"), ("m3",)), 2, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_ddp_job_preempted_and_moved_has_the_losses_of_an_uninterrupted_one_bit_by_bit(
        tmp_path: Path, local: LocalEngine, places: tuple[tuple[str, ...], ...], workers: int) -> None:
    local.start(training(tmp_path / "whole", ("m0",), 1, 0.0, workers, job="whole"))
    assert ends(local)[-1] == Exited("whole", 1, 0), (local.attempts / "whole.1" / "out.log").read_text()
    expected = lines(tmp_path / "whole", 0)
    assert len(expected) == STEPS and len({line.split()[1] for line in expected}) == STEPS

    path = tmp_path / "parts"
    for attempt, machines in enumerate(places, start=1):
        local.start(training(path, machines, attempt, 0.1 if attempt < len(places) else 0.0, workers))
        begins(local)
        if attempt < len(places):
            before = len(lines(path, 0))
            eventually(lambda before=before: len(lines(path, 0)) >= before + 4)
            local.stop("1", attempt, 60.0)
        last = ends(local)[-1]
        log = (local.attempts / f"1.{attempt}" / "out.log").read_text()
        assert last == Exited("1", attempt, 143 if attempt < len(places) else 0), log
        assert len(lines(path, 0)) == len(lines(path, 1)), "the ranks stopped at different steps"
        assert attempt == len(places) or len(lines(path, 0)) < STEPS
    for rank in range(2):
        assert lines(path, rank) == lines(tmp_path / "whole", rank)


def test_a_ddp_job_tells_how_long_its_steps_take_and_what_it_saved(tmp_path: Path, local: LocalEngine) -> None:
    local.start(training(tmp_path / "losses", ("m0",), 1, 0.05))
    found = reports(local, lambda found: any(isinstance(report, Stepped) for report in found))
    (step,) = [report for report in found if isinstance(report, Stepped)]
    assert step.step_time >= 0.05 and step.saved == 0.0
    local.stop("1", 1, 60.0)
    *_, step, end = ends(local)
    assert end == Exited("1", 1, 143)
    assert isinstance(step, Stepped) and step.saved is not None
    done = len(lines(tmp_path / "losses", 0))
    assert step.saved >= done * 0.05


@pytest.mark.slow
def test_the_script_in_the_documentation_is_interrupted_and_resumes(tmp_path: Path, local: LocalEngine) -> None:
    page = (SOURCE.parent / "docs" / "jobs.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "dally.job.batches" in block]
    code += f"    import time; time.sleep(0.1); print(epoch, file=open({str(tmp_path)!r} + '/steps', 'a'))\n"
    (tmp_path / "train.py").write_text(code)
    for attempt in (1, 2):
        local.start(order(sys.executable, str(tmp_path / "train.py"), attempt=attempt, mask=3, processes="gpu", grace=60.0,
                          environment={"PYTHONPATH": str(SOURCE)}))  # fmt: skip
        if attempt == 1:
            eventually(lambda: (tmp_path / "steps").exists() and len((tmp_path / "steps").read_text().split()) > 5)
            local.stop("1", 1, 60.0)
        last = ends(local)[-1]
        assert last == Exited("1", attempt, 143 if attempt == 1 else 0), (local.attempts / f"1.{attempt}" / "out.log").read_text()
    assert (tmp_path / "steps").read_text().split() == sorted(["0", "1", "2"] * 16)
