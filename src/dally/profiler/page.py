"""A profile as one HTML page that needs nothing else: stall bars, the traced step, what-ifs, layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dally.core.errors import UserError
from dally.core.units import show_bytes, show_time
from dally.profiler.stalls import RUNS, TITLES

if TYPE_CHECKING:
    from dally.profiler.document import Profile
    from dally.profiler.whatif import Answer

_COLOURS = {
    "compute": "#4c78a8",
    "interconnect": "#f58518",
    "network": "#e45756",
    "prep": "#54a24b",
    "fetch": "#b279a2",
}
_NAMES = {"prep": "CPU", "fetch": "disk"}  # as the tables call them
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222;
  background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.wide { overflow-x: auto } /* on a narrow page it is the table that is pushed aside, not the page */
table { border-collapse: collapse; width: 100%; font-size: 14px }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid #ddd; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
.note { color: #666; font-size: 13px }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #161616 } th, td { border-color: #444 }
  .note { color: #aaa } }
"""
_DRAWINGS = """
svg { width: 100%; min-width: 34rem; height: auto }
@media (prefers-color-scheme: dark) { svg text { fill: #ddd } }
"""


def write_page(profile: Profile, path: Path, answers: Sequence[Answer] = ()) -> None:
    try:
        path.write_text(page(profile, answers), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def page(profile: Profile, answers: Sequence[Answer] = ()) -> str:
    parts = [
        f"<h1>{escape(profile.name)}: where a step goes</h1>",
        f"<p class=note>{escape(profile.made)} · {escape(profile.device.name)}, {profile.device.threads} threads · "
        f"{escape(profile.status)}</p>",
        "<h2>Stalls</h2>",
        _bars(profile),
        _stall_table(profile),
        "<h2>Measurements</h2>",
        _run_table(profile),
    ]
    if profile.timeline:
        parts += ["<h2>One step, traced</h2>", _timeline(profile.timeline)]
        if profile.exposed is not None:
            parts.append(f"<p>{show_time(profile.exposed)} of communication nothing hides.</p>")
    if answers:
        parts += ["<h2>What if</h2>", _answer_table(answers)]
    if profile.model is not None:
        rows = (
            (
                row.name,
                row.kind,
                f"{row.parameters:,}",
                show_bytes(row.gradient_bytes),
                *(_time((row.measured or {}).get(key, 0.0)) for key in ("forward", "backward")),
            )
            for row in profile.model.layers
        )
        head = ("layer", "kind", "parameters", "gradients", "forward", "backward")
        parts += ["<h2>Layers</h2>", html_table(head, rows)]
    if profile.notes:
        parts += ["<h2>Notes</h2><ul>", *(f"<li>{escape(note)}</li>" for note in profile.notes), "</ul>"]
    return html_page(profile.name, STYLE + _DRAWINGS, parts)


def html_page(title: str, style: str, parts: Iterable[str]) -> str:
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{style}</style><body>{''.join(parts)}</body></html>\n"
    )


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><tr>{top}</tr>{body}</table></div>"


def _time(seconds: float) -> str:
    return show_time(seconds) if seconds else "–"


def _stall_table(profile: Profile) -> str:
    rows = (
        (
            TITLES[name],
            show_time(s.seconds),
            f"{s.percent:.1f} %",
            f"± {show_time(s.spread)}",
            s.verdict,
        )
        for name, s in profile.stalls.items()
    )
    return html_table(("stall", "per step", "", "spread", ""), rows)


def _run_table(profile: Profile) -> str:
    rows = [
        (
            RUNS[name],
            str(r.processes),
            str(r.machines),
            show_time(r.step),
            f"± {100 * r.spread / r.step:.1f} %",
            _time(r.wait),
        )
        for name, r in profile.runs.items()
    ]
    rows += [
        (
            f"over several machines, synthetic {r.link}".strip(),
            str(r.processes),
            str(r.machines),
            show_time(r.step),
            f"± {100 * r.spread / r.step:.1f} %",
            _time(r.wait),
        )
        for r in profile.apart
    ]
    return html_table(("run", "ranks", "machines", "step", "spread", "waits for data"), rows)


def _answer_table(answers: Sequence[Answer]) -> str:
    rows = (
        (
            a.change,
            *(_time(s) for s in (a.seconds, a.compute, a.interconnect, a.network, a.prep, a.fetch)),
            f"{a.samples_per_second:,.1f}",
            a.next_stall,
        )
        for a in answers
    )
    head = ("if", "step", "compute", "interconnect", "network", "CPU", "disk", "samples/s", "next stall")
    return html_table(head, rows)


def _bars(profile: Profile) -> str:
    """One bar per kind of step: compute, and on top of it what it waits for."""
    one = profile.runs.get("one") or profile.runs.get("all")
    if one is None:
        return ""
    stack: list[tuple[str, float]] = [("compute", one.step)]
    bars = [("one device", list(stack))]
    for name, title in (("interconnect", "all devices"), ("prep", "real data, cached"), ("fetch", "real data, cold")):
        if name in profile.stalls:
            stack.append((name, max(0.0, profile.stalls[name].seconds)))
            bars.append((title, list(stack)))
    if "network" in profile.stalls:
        near = list(bars[1][1]) if len(bars) > 1 and "interconnect" in profile.stalls else [stack[0]]
        bars.append(("several machines", [*near, ("network", max(0.0, profile.stalls["network"].seconds))]))
    longest = max(sum(seconds for _, seconds in parts) for _, parts in bars) or 1.0
    shapes = []
    for row, (title, parts) in enumerate(bars):
        y, x = 8 + row * 34, 150.0
        shapes.append(f"<text x=142 y={y + 17} text-anchor=end font-size=13>{escape(title)}</text>")
        for name, seconds in parts:
            width = 560 * seconds / longest
            shapes.append(
                f"<rect x={x:.1f} y={y} width={width:.1f} height=24 fill='{_COLOURS[name]}'>"
                f"<title>{_NAMES.get(name, name)}: {show_time(seconds)}</title></rect>"
            )
            x += width
        total = sum(seconds for _, seconds in parts)
        shapes.append(f"<text x={x + 6:.1f} y={y + 17} font-size=13>{show_time(total)}</text>")
    drawn = [name for name in _COLOURS if any(name == part for _, parts in bars for part, _ in parts)]
    legend = "".join(
        f"<rect x={150 + 130 * i} y={16 + 34 * len(bars)} width=12 height=12 fill='{_COLOURS[name]}'/>"
        f"<text x={167 + 130 * i} y={27 + 34 * len(bars)} font-size=12>{_NAMES.get(name, name)}</text>"
        for i, name in enumerate(drawn)
    )
    whole = f"<svg viewBox='0 0 820 {44 + 34 * len(bars)}' role=img aria-label='stalls'>"
    return f"<div class=wide>{whole}{''.join(shapes)}{legend}</svg></div>"


def _timeline(moments: Sequence[dict[str, Any]]) -> str:
    end = max(float(m["end"]) for m in moments) or 1.0
    shapes = []
    for row, lane in enumerate(("compute", "network")):
        y = 8 + row * 40
        shapes.append(f"<text x=72 y={y + 19} text-anchor=end font-size=13>{lane}</text>")
        for m in (m for m in moments if m["lane"] == lane):
            x, width = 80 + 720 * float(m["start"]) / end, max(0.6, 720 * (float(m["end"]) - float(m["start"])) / end)
            shapes.append(
                f"<rect x={x:.1f} y={y} width={width:.1f} height=28 fill='{_COLOURS[lane]}' fill-opacity=.8>"
                f"<title>{escape(str(m['what']))}, {show_time(float(m['start']))} – {show_time(float(m['end']))}"
                "</title></rect>"
            )
    shapes.append(
        f"<text x=80 y=104 font-size=12>0</text><text x=800 y=104 text-anchor=end font-size=12>{show_time(end)}</text>"
    )
    whole = "<svg viewBox='0 0 820 112' role=img aria-label='timeline of a step'>"
    return f"<div class=wide>{whole}{''.join(shapes)}</svg></div>"
