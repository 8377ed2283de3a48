"""Published beside measured: changes are ratios, findings follow from the cells, chapters are drawn."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dally.report.chapters import Chapter, communication, timers
from dally.report.compared import ReportRun
from dally.report.html import render_report, write_report
from dally.report.metrics import Summary
from dally.report.reproduced import Cell, change, change_table, change_text, findings, measured_table
from dally.simulator.reproduce import dally as paper

STEPS = {("machine", 8): [(0.0, 21600.0), (7200.0, 36000.0)], ("rack", 8): [(0.0, 43200.0)],
         ("rack", 16): [(0.0, float("inf"))]}  # fmt: skip


def cell_of(few_runs: list[ReportRun], **figures: float) -> Cell:
    """Auto-tuned Dally, and a consolidating scheduler with these figures instead."""
    auto: Summary = few_runs[0].summary
    setting = paper.Setting(paper.Load(paper.BATCH), "4x8x8", "dally")
    return Cell(setting, 100, paper.contenders([paper.AUTO, paper.CONSOLIDATED]), (auto, replace(auto, **figures)),
                (0, 3))  # fmt: skip


def test_a_change_is_what_dally_has_more_or_less_than_the_other(few_runs: list[ReportRun]) -> None:
    ours = few_runs[0].summary
    assert ours.makespan is not None
    assert change(ours, replace(ours, makespan=4 * ours.makespan), "makespan") == pytest.approx(-0.75)
    assert change(ours, replace(ours, makespan=None), "makespan") is None
    assert change(replace(ours, comm_seconds=1.0), replace(ours, comm_seconds=0.0), "comm_seconds") is None


def test_changes_are_written_with_a_sign_and_more_digits_near_a_hundred() -> None:
    written = [change_text(value) for value in (-0.69, -0.983, 0.31, 0.001, None)]
    assert written == ["−69 %", "−98.3 %", "+31 %", "0 %", "–"]


def test_a_headline_is_reached_only_where_the_change_is_as_large(few_runs: list[ReportRun]) -> None:
    makespan = few_runs[0].summary.makespan
    assert makespan is not None
    found = findings([cell_of(few_runs, makespan=10 * makespan)])
    assert found[0] == ("Makespan: published −69 %; measured −90 % against fully consolidated: reached against fully "
                        "consolidated.")  # fmt: skip
    assert findings([cell_of(few_runs, makespan=2 * makespan)])[0].endswith("−50 % against fully consolidated: not reached.")
    both = [cell_of(few_runs, makespan=2 * makespan), cell_of(few_runs, makespan=10 * makespan)]
    assert "−90 % to −50 %" in findings(both)[0] and "reached in some cells" in findings(both)[0]
    assert any("3.0 % of the jobs under fully consolidated" in line for line in findings(both))


def test_the_tables_have_the_published_row_first_and_the_bound_last(few_runs: list[ReportRun]) -> None:
    cell = cell_of(few_runs)
    _, changes = change_table(cell)
    assert changes[0][:3] == ["published, up to", "−69 %", "−83 %"] and len(changes) == 2
    head, rows = measured_table(cell)
    assert rows[-1][0] == "lower bound" and all(len(row) == len(head) for row in rows)


def test_the_authors_clean_re_run_stands_only_beside_their_own_jobs_and_tables(few_runs: list[ReportRun]) -> None:
    cell = cell_of(few_runs)
    assert cell.setting.rerun == {}
    setting = replace(cell.setting, load=paper.Load(paper.BATCH, "batch.json"), layers=Path("layers"))
    head, rows = measured_table(replace(cell, setting=setting))
    assert head[-1].startswith("authors' re-run") and rows[0][-1] == "355 / 49.6 / 159"
    assert all(len(row) == len(head) for row in rows)
    assert replace(setting, fabric="dally-congested").rerun == {} == replace(setting, network="analytic").rerun


def chapters(runs: list[ReportRun]) -> list[Chapter]:
    tuned = timers("dally", ["machine", "rack", "cluster"], STEPS, 90000.0)
    assert tuned is not None
    return [communication(runs), tuned]


def test_chapters_bring_their_plots_and_endless_timers_are_left_out(few_runs: list[ReportRun]) -> None:
    page = render_report(few_runs, title="t", baseline=None, notes=[], chapters=chapters(few_runs))
    figures = json.loads(re.findall(r'id="figures">(.*?)</script>', page, re.S)[0])
    assert set(figures["plots"]) == {"comm-cdf", "timer-machine", "timer-rack"}
    assert [each["name"] for each in figures["plots"]["timer-rack"]["series"]] == ["8 GPUs"]
    assert 'href="#timers"' in page and "20.0" not in figures["plots"]
    assert timers("dally", ["machine"], {}, 1.0) is None


@pytest.mark.browser
def test_chapters_are_drawn_and_timers_do_not_vanish_with_a_policy(few_runs: list[ReportRun], tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = os.environ.get("DALLY_CHROMIUM") or shutil.which("chromium")
    if not chromium:
        pytest.skip("no Chromium: neither DALLY_CHROMIUM nor a chromium on the path")
    write_report(few_runs, tmp_path / "report.html", chapters=chapters(few_runs))
    complaints: list[str] = []

    def drawn(page: Any, plot: str) -> list[str]:
        query = f"[...document.querySelectorAll('[data-plot={plot}] .line')].map((line) => line.dataset.series)"
        found: list[str] = page.evaluate(query)
        return found

    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 360, "height": 900})
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((tmp_path / "report.html").as_uri())
        page.wait_for_selector("html[data-ready]", timeout=15_000)
        names = [run.name for run in few_runs]
        assert drawn(page, "comm-cdf") == names and drawn(page, "timer-machine") == ["8 GPUs"]
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.locator("#comm-cdf-figure .legend button").first.click()
        assert drawn(page, "comm-cdf") == names[1:] and drawn(page, "timer-machine") == ["8 GPUs"]
        browser.close()
    assert complaints == []


def test_gandiva_has_its_own_sentence_and_times_are_in_hours(few_runs: list[ReportRun]) -> None:
    auto = replace(few_runs[0].summary, avg_jct=3600.0 * 46.8, makespan=3600.0 * 22_226)
    other = replace(auto, avg_jct=3600.0 * 93.6)
    setting = paper.Setting(paper.Load(paper.BATCH), "4x8x8", "dally")
    cell = Cell(setting, 100, paper.contenders([paper.AUTO, paper.GANDIVA]), (auto, other), (0, 0))
    assert "Tuned timers against Gandiva's affinity and migration: average JCT −50 %, makespan 0 %." in findings([cell])
    head, rows = measured_table(cell)
    assert head[0] == "hours" and rows[0][1:3] == ["22,226", "46.8"]
