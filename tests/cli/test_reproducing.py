"""`dally reproduce dally`: tables, findings, pages and JSON of small cells; bad options in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Dally
from tests.cli.test_bad_input import check_one_clear_line

SMALL = ("reproduce", "dally", "--jobs", "25", "--clusters", "1x2x8", "--workers", "1")
FEW = ("--policies", "dally[timers=infinite],dally[timers=auto],fifo")


def test_it_prints_published_and_measured_and_says_what_reproduces(dally: Dally) -> None:
    done = dally(*SMALL, *FEW, "--workloads", "batch", "--fabrics", "dally")
    assert done.returncode == 0, done.stderr
    for word in ("−69 %", "−83 %", "−98 %", "lower bound", "fully consolidated", "Makespan: published −69 %"):
        assert word in done.stdout, word
    assert "note:" in done.stderr and "batch, drawn, 1x2x8, fabric dally, 25 jobs" in done.stdout


def test_it_leaves_an_overview_a_report_per_cell_and_all_figures(dally: Dally, tmp_path: Path) -> None:
    done = dally(*SMALL, "--policies", "fifo,dally[timers=auto]", "--workloads", "batch", "--out", "out", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    cells = ["batch-1x2x8-dally", "batch-1x2x8-dally-congested"]
    overview = (tmp_path / "out/index.html").read_text()
    for cell in cells:
        assert f'href="{cell}.html"' in overview
        page = (tmp_path / f"out/{cell}.html").read_text()
        for plot in ("comm-cdf", "jct-cdf", "queueing-cdf", "makespan", "levels"):
            assert f'data-plot="{plot}"' in page, plot
    assert any('data-plot="timer-machine"' in (tmp_path / f"out/{cell}.html").read_text() for cell in cells)
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert [f"{c['workload']}-{c['cluster']}-{c['fabric']}" for c in results["cells"]] == cells


def test_json_has_the_change_against_every_policy(dally: Dally) -> None:
    done = dally(*SMALL, *FEW, "--workloads", "poisson", "--fabrics", "dally-congested", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    waits, auto, fifo = found["cells"][0]["policies"]
    assert auto["change_of_dally"]["makespan"] == 0
    assert fifo["change_of_dally"]["avg_jct"] == pytest.approx(auto["avg_jct"] / fifo["avg_jct"] - 1)
    assert waits["authors_rerun_hours"] is None and any("Makespan" in line for line in found["findings"])


def test_another_trace_can_be_compared_and_all_at_once_is_a_batch(dally: Dally, small_trace: Path) -> None:
    done = dally("reproduce", "dally", "--trace", str(small_trace), "--clusters", "1x2x8", "--fabrics", "dally",
                 "--policies", "fifo,dally[timers=auto]", "--workers", "1", "--json", "--quiet")  # fmt: skip
    assert done.returncode == 0, done.stderr
    cell = json.loads(done.stdout)["cells"][0]
    assert (cell["workload"], cell["jobs"], cell["trace"]) == ("poisson", 20, str(small_trace))


@pytest.mark.parametrize("words", [
    ("dally", "--trace", "jobs.csv", "--clusters", "1x2x8", "--fabrics", "dally", "--policies", "fifo,dally[timers=auto]"),
    ("gandiva", "--jobs", "30", "--draws", "1", "--seed", "3"),
    ("gavel", "--quick", "--jobs", "12", "--rate", "2.0"),
    pytest.param(("tiresias", "--quick", "--load", "1.5"), marks=pytest.mark.slow, id="tiresias"),
], ids=lambda words: words[0])  # fmt: skip
def test_a_reproduction_says_how_it_was_made_and_is_made_again_byte_for_byte(
    dally: Dally, small_trace: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = dally("reproduce", *words, "--out", "out", "--quiet")
    assert done.returncode == 0, done.stderr
    about = json.loads((tmp_path / "out/provenance.json").read_text())
    assert about["arguments"] == list(words[1:]) and all(each["trace_digest"] for each in about["experiments"])
    assert all(f"dally reproduce {words[0]}" in (tmp_path / "out" / name).read_text() for name in about["pages"]
               if name.endswith(".html"))  # fmt: skip
    again = dally("rerun", "out")
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count("byte for byte") == len(about["pages"]) >= 2


def test_a_reproduction_whose_trace_has_changed_is_not_made_again(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    assert dally("reproduce", "dally", "--trace", "jobs.csv", *SMALL[4:], *FEW, "--fabrics", "dally", "--out", "out",
                 "--quiet").returncode == 0  # fmt: skip
    small_trace.write_text(small_trace.read_text().replace("resnet50", "vgg16", 1))
    again = dally("rerun", "out")
    assert again.returncode == 2 and "jobs.csv has changed since" in again.stderr


BROKEN = {
    "unknown workload": ["--workloads", "fortnight"],
    "unknown fabric": ["--fabrics", "dally,carrier-pigeon"],
    "a cluster of nothing": ["--clusters", "0x8"],
    "a cluster twice": ["--clusters", "2x4x8,2x4x8"],
    "clusters and full": ["--clusters", "2x4x8", "--full"],
    "no dally": ["--policies", "fifo,srtf"],
    "unknown policy": ["--policies", "dally[timers=auto],magic"],
    "unknown network": ["--network", "carrier-pigeon"],
    "layers that nobody reads": ["--network", "ideal", "--layers", "."],
    "layers that are not there": ["--layers", "."],
    "a trace that is not there": ["--trace", "nowhere.json"],
    "two traces of one kind": ["--trace", "jobs.csv", "--trace", "jobs.csv"],
    "a trace and a workload": ["--trace", "jobs.csv", "--workloads", "batch"],
    "out is a file": ["--out", "jobs.csv"],
}


@pytest.mark.parametrize("what", BROKEN)
def test_bad_options_end_in_one_sentence(dally: Dally, small_trace: Path, what: str) -> None:
    check_one_clear_line(dally("reproduce", "dally", *BROKEN[what]))
