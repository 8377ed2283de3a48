"""The page of a sweep draws what it has, and complains about nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import dally
from dally.experiments.sweeps.page import write_page


@pytest.mark.browser
def test_every_plot_of_the_page_is_drawn(tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = os.environ.get("DALLY_CHROMIUM") or shutil.which("chromium")
    if not chromium:
        pytest.skip("no Chromium: neither DALLY_CHROMIUM nor a chromium on the path")
    spec = {"scenario": {"trace": "synth:helios", "jobs": 30, "cluster": "1x2x8"}, "policies": ["fifo", "las"],
            "vary": {"load": [0.7, 1.0], "knowledge": ["declared", "none"]}, "seeds": 1}  # fmt: skip
    made = dally.sweep(spec, out=tmp_path)
    write_page(made, tmp_path / "report.html", ["A note."])
    complaints: list[str] = []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((tmp_path / "report.html").as_uri())
        page.wait_for_selector("html[data-ready]", timeout=15_000)
        empty = page.eval_on_selector_all("[data-plot]", "nodes => nodes.filter(n => !n.querySelector('svg')).map(n => n.dataset.plot)")
        plots = page.eval_on_selector_all("[data-plot]", "nodes => nodes.length")
        browser.close()
    assert complaints == [] and empty == [] and plots >= 6
