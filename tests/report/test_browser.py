"""The HTML report in a real Chromium: plots drawn, nothing fetched, nothing broken, legible everywhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builders import Pairwise, Timed, at, cluster, job, play
from dally.core import plan as pl
from dally.core.ledger import Ledger
from dally.core.sharing import Share
from dally.core.topology import Topology
from dally.report.compared import ReportRun
from dally.report.html import write_report
from dally.report.metrics import summarise
from dally.simulator.run import Run

pytestmark = pytest.mark.browser

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

CONTRAST = """() => {
  const light = (c) => {
    const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const behind = (node) => { for (; node; node = node.parentElement) {
      const c = getComputedStyle(node).backgroundColor; if (!/, 0\\)$/.test(c) && c !== "transparent") return c; }
    return "rgb(255, 255, 255)"; };
  const found = { text: 99, lines: 99 };
  for (const node of document.querySelectorAll("p, h1, h2, h3, li, td, th, a, summary, dd, button, .rank")) {
    if (!node.offsetParent || !node.textContent.trim()) continue;
    found.text = Math.min(found.text, ratio(getComputedStyle(node).color, behind(node)));
  }
  for (const node of document.querySelectorAll("svg .ticks text, svg .label, svg .note, svg .value tspan")) {
    found.text = Math.min(found.text, ratio(getComputedStyle(node).fill, behind(node.closest("div"))));
  }
  for (const node of document.querySelectorAll("svg .line")) {
    found.lines = Math.min(found.lines, ratio(getComputedStyle(node).stroke, behind(node.closest("div"))));
  }
  return found;
}"""

DRAWN = """() => Object.fromEntries([...document.querySelectorAll("[data-plot]")].map((node) => {
  const canvas = node.querySelector("canvas");
  if (canvas) {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let painted = 0;
    for (let i = 3; i < pixels.length; i += 4) if (pixels[i]) painted++;
    return [node.dataset.plot, painted / (pixels.length / 4) > 0.1 ? ["canvas"] : []];
  }
  const marks = [...node.querySelectorAll("svg [data-series]")].filter((mark) => {
    const box = mark.getBBox();
    return box.width > 0 || box.height > 0;
  });
  return [node.dataset.plot, [...new Set(marks.map((mark) => mark.dataset.series))]];
}))"""


class Opened:
    """A page with a record of everything it complained about or asked for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", timeout=15_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = os.environ.get("DALLY_CHROMIUM") or shutil.which("chromium")
    if not chromium:
        pytest.skip("no Chromium: neither DALLY_CHROMIUM nor a chromium on the path")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def few(few_runs: list[ReportRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("few") / "report.html"
    write_report(few_runs, path, title="Few jobs", baseline="fifo", notes=["A note."])
    return path


@pytest.fixture(scope="module")
def many(many_runs: list[ReportRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "report.html"
    write_report(many_runs, path, title="Many jobs", baseline="fifo", notes=[])
    return path


@pytest.mark.parametrize("which", ["few", "many"])
def test_every_plot_draws_every_policy_without_a_complaint_or_a_request(
    browser: Any, request: pytest.FixtureRequest, which: str
) -> None:
    path: Path = request.getfixturevalue(which)
    runs: list[ReportRun] = request.getfixturevalue(f"{which}_runs")
    opened = Opened(browser, path, viewport={"width": 1280, "height": 900})
    drawn = opened.page.evaluate(DRAWN)
    names = {run.name for run in runs}
    assert len(drawn) >= 12
    for plot, found in drawn.items():
        if plot == "gantt":
            assert found == ["canvas"]
        elif plot in ("gains", "ratio"):
            assert set(found) == names - {"fifo"}, plot
        elif plot in ("preemptions", "lost"):  # those that never preempt have a bar of no length
            assert set(found) >= {run.name for run in runs if run.summary.preemptions}, plot
        else:
            assert set(found) == names, plot
    assert opened.complaints == []
    assert opened.requests == [path.as_uri()]
    opened.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out_in_both_themes(browser: Any, few: Path, scheme: str) -> None:
    page = Opened(browser, few, color_scheme=scheme).page
    other = "dark" if scheme == "light" else "light"
    for _ in range(2):  # the system's theme, then the reader's choice of the other one
        found = page.evaluate(CONTRAST)
        assert found["text"] >= 4.5 and found["lines"] >= 3, found
        page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == other
    page.close()


@pytest.mark.parametrize("width", [360, 768, 3840])
def test_the_page_fits_any_width(browser: Any, few: Path, width: int) -> None:
    page = Opened(browser, few, viewport={"width": width, "height": 900}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # No label of a plot may stick out of the window either.
    outside = page.evaluate("""(width) => [...document.querySelectorAll('.plot svg text')]
        .filter((t) => t.getBoundingClientRect().right > width + 1 || t.getBoundingClientRect().left < -1)
        .map((t) => t.textContent)""", width)  # fmt: skip
    assert outside == []
    page.close()


def test_a_laptop_shows_the_whole_table(browser: Any, few: Path) -> None:
    page = Opened(browser, few, viewport={"width": 1280, "height": 900}).page
    shown, needed = page.evaluate("(([t]) => [t.clientWidth, t.scrollWidth])(document.querySelectorAll('.scroll'))")
    assert needed <= shown
    page.close()


def test_a_plot_zooms_by_dragging_and_comes_back(browser: Any, few: Path) -> None:
    page = Opened(browser, few, viewport={"width": 1280, "height": 900}).page
    plot = page.locator('[data-plot="queue"]')
    plot.scroll_into_view_if_needed()
    axis = "() => [...document.querySelectorAll('[data-plot=queue] .ticks text')].map((t) => t.textContent).join()"
    before = page.evaluate(axis)
    box = plot.locator(".catcher").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50, steps=4)
    assert page.locator(".tip").is_visible()
    page.mouse.up()
    assert page.evaluate(axis) != before
    page.locator("#queue-figure button", has_text="Reset zoom").click()
    assert page.evaluate(axis) == before
    page.close()


def test_a_plot_can_be_read_with_the_keyboard_alone(browser: Any, few: Path, few_runs: list[ReportRun]) -> None:
    page = Opened(browser, few, viewport={"width": 1280, "height": 900}).page
    page.focus('[data-plot="jct-cdf"]')
    page.keyboard.press("ArrowRight")
    told = page.locator(".tip").inner_text()
    assert all(run.name in told for run in few_runs) and "%" in told
    page.keyboard.press("+")
    assert page.locator("#jct-cdf-figure button", has_text="Reset zoom").is_visible()
    page.keyboard.press("0")
    assert not page.locator("#jct-cdf-figure button", has_text="Reset zoom").is_visible()
    page.close()


def test_hiding_a_policy_hides_it_in_all_plots(browser: Any, few: Path) -> None:
    page = Opened(browser, few).page
    page.locator("#jct-cdf-figure .legend button", has_text="las").click()
    drawn = page.evaluate(DRAWN)
    assert "las" not in drawn["jct-cdf"] and "las" not in drawn["queue"] and "srtf" in drawn["queue"]
    pressed = "() => document.querySelector('#queue-figure .legend [data-slot=\"2\"]').getAttribute('aria-pressed')"
    assert page.evaluate(pressed) == "false"
    page.close()


def test_the_gantt_picture_shows_jobs_where_few_and_a_sample_where_many(
    browser: Any, few: Path, many: Path
) -> None:
    opened = Opened(browser, few, viewport={"width": 1280, "height": 900})
    assert opened.page.locator('[data-plot="gantt"]').get_attribute("data-mode") == "bars"
    opened.page.close()
    opened = Opened(browser, many, viewport={"width": 1280, "height": 900})
    page = opened.page
    gantt = page.locator('[data-plot="gantt"]')
    assert gantt.get_attribute("data-mode") == "heat"
    page.locator("#gantt-figure button", has_text="Zoom to sample").click()
    assert gantt.get_attribute("data-mode") == "bars"
    assert page.evaluate(DRAWN)["gantt"] == ["canvas"]
    gantt.scroll_into_view_if_needed()
    box = gantt.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 14)
    assert page.locator(".tip").is_visible()
    page.locator("#gantt-figure select").select_option(label="srtf")
    assert page.locator("#gantt-figure .gantt-key strong").inner_text() == "srtf"
    assert opened.complaints == []
    page.close()


def test_it_prints_on_white_paper_without_controls(browser: Any, few: Path, tmp_path: Path) -> None:
    opened = Opened(browser, few, color_scheme="dark", viewport={"width": 718, "height": 1015})
    page = opened.page
    page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    content = (tmp_path / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF") and content.count(b"/Type /Page\n") + content.count(b"/Type /Page/") >= 2
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#theme").is_visible() and not page.locator("nav").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    small = page.evaluate("""[...document.querySelectorAll('.plot svg.chart')].map((svg) =>
        svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)""")
    assert min(small) > 0.85  # drawn for the paper's width: text is not shrunk with the plot
    wide = page.evaluate("[...document.querySelectorAll('table')].filter((t) => t.offsetParent)"
                         ".map((t) => t.getBoundingClientRect().right)")  # fmt: skip
    assert max(wide) <= 718
    assert opened.complaints == []
    page.close()


def test_one_run_and_an_empty_run_open_without_a_complaint(
    browser: Any, few_runs: list[ReportRun], hand_run: Run, two_machines: Topology, tmp_path: Path
) -> None:
    empty = Run("idle", Ledger(two_machines), hand_run.workload, 0, 0.0, False, 0.0)
    idle = ReportRun("idle", summarise(empty, two_machines), empty.ledger, two_machines)
    tiny = ReportRun("hand", summarise(hand_run, two_machines), hand_run.ledger, two_machines)
    for name, runs in (("one", few_runs[:1]), ("idle", [idle]), ("both", [tiny, idle])):
        write_report(runs, tmp_path / f"{name}.html", title=name)
        opened = Opened(browser, tmp_path / f"{name}.html")
        assert opened.complaints == [], name
        opened.page.close()


def test_shared_gpus_are_drawn_as_stacked_and_overlapping_bars_with_a_key(browser: Any, tmp_path: Path) -> None:
    topology = cluster(1, 2, 4)
    jobs = [job("a", 1, 300), job("b", 1, 300), job("c", 2, 300), job("d", 2, 300)]
    plan = [pl.Start("a", at((0, 1))), pl.Start("b", at((0, 1)), None, Share()),
            pl.Start("c", at((1, 3))), pl.Start("d", at((1, 3)), None, Share(beside="c"))]  # fmt: skip
    played = play(jobs, topology, Timed({0.0: plan}), interference=Pairwise(1.2))
    path = tmp_path / "report.html"
    summary = summarise(played.run, topology)
    write_report([ReportRun("timed", summary, played.run.ledger, topology)], path, title="Shared", notes=[])
    opened = Opened(browser, path, viewport={"width": 1280, "height": 900})
    key = opened.page.inner_text(".gantt-key")
    assert "in turns" in key and "packed: at once" in key
    assert opened.page.get_by_text("suspensions", exact=True).count() >= 1
    assert "takes turns" in _tips(opened.page) and "packed with" in _tips(opened.page)
    assert opened.complaints == []
    opened.page.close()


def _tips(page: Any) -> str:
    """Everything the Gantt picture says under a pointer that goes down its left edge."""
    canvas = page.locator("[data-plot=gantt] canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    said = []
    for y in range(4, int(box["height"]), 4):
        page.mouse.move(box["x"] + 200, box["y"] + y)
        said.append(page.locator("body").inner_text())
    return "\n".join(said)
