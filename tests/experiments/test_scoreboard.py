"""The scoreboard measures what is missing, keeps it, and writes only what lies between the marks of a page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from speed.base import Asked  # noqa: E402
from speed.cells import Kept, key  # noqa: E402
from speed.claims import CLAIMS  # noqa: E402
from speed.page import write_page  # noqa: E402
from speed.plots import slope, svg  # noqa: E402


def _called(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCHMARKS / "scoreboard.py"), *words], capture_output=True, text=True,
                          check=True)  # fmt: skip


def test_a_claim_is_measured_once_and_shown_as_often_as_one_likes(tmp_path: Path) -> None:
    page = tmp_path / "speed.md"
    page.write_text("before\n<!-- speed: jobs -->\nold\n<!-- /speed -->\nafter <!-- speed: nobody -->\nkept\n<!-- /speed -->\n")
    files = ("--rows", str(tmp_path / "rows.jsonl"), "--page", str(page))
    first = _called("jobs", "--most", "1000", "--policies", "fifo", *files)
    assert "measured: fifo, pure" in first.stderr and "fifo" in first.stdout
    again = _called("jobs", "--most", "1000", "--policies", "fifo", *files)
    assert "measured" not in again.stderr and again.stdout == first.stdout
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1
    assert write_page(page, Kept(tmp_path / "rows.jsonl")) == ["jobs"]
    text = page.read_text()
    assert "old" not in text and "| `fifo` | pure |" in text and text.startswith("before\n") and "kept" in text


def test_every_cell_of_every_claim_has_a_name_of_its_own() -> None:
    for claim in CLAIMS.values():
        cells = claim.cells(Asked(("fifo", "dally"), ("pure", "compiled"), 10**9))
        assert len({key(cell) for cell in cells}) == len(cells) > 0, claim.name


def test_every_claim_can_be_shown_before_anything_is_measured() -> None:
    for claim in CLAIMS.values():
        assert claim.show([]).ratio, claim.name


@pytest.mark.parametrize("power", [-0.5, 0.0, 1.3])
def test_the_exponent_of_a_power_law_is_found(power: float) -> None:
    points = [(x, 3 * x**power) for x in (10.0, 200.0, 5000.0)]
    assert slope(points) == pytest.approx(power)
    assert svg("title", "x", "y", {"a": points}).count("<circle") == 3


def test_one_point_has_no_exponent() -> None:
    assert slope([(10.0, 1.0)]) is None
