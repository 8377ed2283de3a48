"""The HTML report as a file: self-contained, deterministic, and never broken by what it is told."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from dally.core.ledger import Ledger
from dally.core.topology import Topology
from dally.report.compared import ReportRun
from dally.report.html import render_report, write_report
from dally.report.metrics import summarise
from dally.report.wording import hours_text, share_text, time_text
from dally.simulator.run import Run


def test_the_report_is_one_file_that_refers_to_nothing_outside(few_runs: list[ReportRun], tmp_path: Path) -> None:
    write_report(few_runs, tmp_path / "report.html", title="Three policies", baseline="fifo", notes=["A note."])
    page = (tmp_path / "report.html").read_text()
    addresses = re.findall(r"(?:src|href)=[\"']([^\"']*)", page)
    outside = [address for address in addresses if not address.startswith(("#", "data:"))]
    assert outside == []
    assert set(re.findall(r"https?://[^\"' ]*", page)) <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "@import" not in page and "url(http" not in page
    assert "A note." in page and "<title>Three policies</title>" in page


def test_the_same_runs_give_the_same_bytes(few_runs: list[ReportRun]) -> None:
    copies = pickle.loads(pickle.dumps(few_runs))
    first, second = (render_report(runs, title="t", baseline=None, notes=[]) for runs in (few_runs, copies))
    assert first == second


def test_every_plot_has_a_text_alternative_and_the_numbers_behind_it(few_runs: list[ReportRun]) -> None:
    page = render_report(few_runs, title="t", baseline=None, notes=[])
    figures = re.findall(r"<figure.*?</figure>", page, re.S)
    assert len(figures) == page.count('class="plot" data-plot=') >= 12
    for figure in figures:
        assert re.search(r'role="img" tabindex="0" aria-label="[^"]{30,}"', figure)
        assert re.search(r"<details><summary>Numbers behind this plot</summary>.*<td", figure, re.S)


def test_names_from_outside_stay_text(few_runs: list[ReportRun]) -> None:
    run = pickle.loads(pickle.dumps(few_runs[0]))
    run.name = "</script><img src=x onerror=alert(1)>{{css}}"
    page = render_report([run, few_runs[1]], title="<b>&", baseline=run.name, notes=["<i>"])
    assert "<img" not in page and "<b>&" not in page and "<i>" not in page
    figures = re.search(r'id="figures">(.*?)</script>', page, re.S)
    assert figures is not None
    assert json.loads(figures[1])["runs"][0]["name"] == run.name


def test_one_run_alone_gets_a_report_without_comparisons(few_runs: list[ReportRun]) -> None:
    page = render_report(few_runs[:1], title="t", baseline=None, notes=[])
    assert "Gained and lost" not in page
    assert "fifo finishes" in page


def test_a_run_that_finished_nothing_still_gets_a_report(hand_run: Run, two_machines: Topology) -> None:
    empty = Run("idle", Ledger(two_machines), hand_run.workload, 0, 0.0, False, 0.0)
    run = ReportRun("idle", summarise(empty, two_machines), empty.ledger, two_machines)
    page = render_report([run], title="t", baseline=None, notes=[])
    assert "No policy finished a job" in page
    assert "Stopped before the end: idle" in page


def test_many_jobs_do_not_make_a_large_file(many_runs: list[ReportRun]) -> None:
    assert len(render_report(many_runs, title="t", baseline=None, notes=[]).encode()) < 1_500_000


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_dozen_policies_have_colours_of_their_own_that_stand_out_from_the_page() -> None:
    assets = files("dally.report") / "assets"
    found = re.search(r"COLOURS = (\d+)", (assets / "charts.js").read_text(encoding="utf-8"))
    assert found is not None and int(found[1]) == 12
    themes = re.findall(r"color-scheme: \w+;(.*?)\}", (assets / "report.css").read_text(encoding="utf-8"), re.S)
    assert len(themes) == 4, "light, dark twice, print"
    for theme in themes:
        colours = dict(re.findall(r"--(\w+): (#\w{6});", theme))
        drawn = [colours[f"s{slot}"] for slot in range(12)]
        assert len(set(drawn)) == 12
        for ground in (colours["page"], colours["card"]):
            for colour in drawn:
                dark, light = sorted((_luminance(ground), _luminance(colour)))
                assert (light + 0.05) / (dark + 0.05) >= 3, colour


def test_no_line_is_spoken_of_where_bounds_differ(few_runs: list[ReportRun]) -> None:
    said = "nothing can be left of the dashed line"
    assert said in render_report(few_runs, title="t", baseline=None, notes=[])
    runs = pickle.loads(pickle.dumps(few_runs))
    bound = runs[0].summary.lower_bound
    runs[0].summary = replace(runs[0].summary, lower_bound=replace(bound, avg_jct=(bound.avg_jct or 0.0) / 2))
    page = render_report(runs, title="t", baseline=None, notes=[])
    assert said not in page and "the policies have different lower bounds" in page


def test_times_of_years_and_tiny_shares_are_written_for_people() -> None:
    assert [time_text(86400.0 * days) for days in (100, 2537.6)] == ["100.0 d", "2,538 d"]
    assert [share_text(share) for share in (7.5e-7, 0.00072, 0.5, 0.0)] == ["under 0.001 %", "0.072 %", "50.0 %", "0.0 %"]
    assert [hours_text(3600 * hours) for hours in (0.15, 46.84, 22226)] == ["0.15", "46.8", "22,226"]
    assert hours_text(None) == "–"
