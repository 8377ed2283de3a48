"""A plot of ratios with their intervals, a line per place, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

LEFT, TOP, STEP, WIDE, GAP = 250, 64, 15, 300, 26
COLOURS = {"less": "#0b6e4f", "level": "#777", "more": "#b3261e"}
_STYLE = ("<style>text{font:11px system-ui,sans-serif;fill:#444}.grid{stroke:#e3e3e3}.one{stroke:#888;"
          "stroke-dasharray:4 3}</style>")  # fmt: skip


class Mark(NamedTuple):
    """One place."""

    name: str
    value: float
    low: float
    high: float
    tip: str

    @property
    def kind(self) -> str:
        return "less" if self.high < 1 else "more" if self.low > 1 else "level"


def forest(title: str, panels: Mapping[str, Sequence[Mark]]) -> str:
    """Panels beside each other, the same places in each; green is less, red more, grey within noise."""
    rows = next(iter(panels.values()))
    wide, high = LEFT + len(panels) * (WIDE + GAP), TOP + STEP * len(rows) + 34
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
             f'role="img"><title>{escape(title)}</title>{_STYLE}<rect width="{wide}" height="{high}" fill="#fff"/>'
             f'<text x="12" y="20" style="font-weight:600;font-size:13px">{escape(title)}</text>'
             '<text x="12" y="38">green: less, red: more, grey: within noise</text>']  # fmt: skip
    for number, mark in enumerate(rows):
        y = TOP + STEP * number + 4
        parts.append(f'<text x="{LEFT - 10}" y="{y}" text-anchor="end">{escape(mark.name)}</text>')
    for number, (name, marks) in enumerate(panels.items()):
        parts += _panel(LEFT + number * (WIDE + GAP), high, name, marks)
    return "\n".join([*parts, "</svg>\n"])


def _panel(left: int, high: int, name: str, marks: Sequence[Mark]) -> list[str]:
    low = min(0.9, *(mark.value for mark in marks)) - 0.06
    up = max(1.1, *(mark.value for mark in marks)) + 0.06

    def x(ratio: float) -> float:
        return left + (min(max(ratio, low), up) - low) / (up - low) * WIDE

    every = 0.1 if up - low < 0.9 else 0.2
    parts = [f'<text x="{left + WIDE / 2}" y="{TOP - 14}" text-anchor="middle" style="font-weight:600">{name}</text>']
    for tick in (round(every * count, 1) for count in range(int(low / every) + 1, int(up / every) + 1)):
        parts.append(f'<line class="{"one" if tick == 1 else "grid"}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" '
                     f'y1="{TOP - 8}" y2="{high - 26}"/><text x="{x(tick):.1f}" y="{high - 12}" '
                     f'text-anchor="middle">{tick:g}</text>')  # fmt: skip
    for number, mark in enumerate(marks):
        y, colour = TOP + STEP * number, COLOURS[mark.kind]
        parts.append(f'<g stroke="{colour}" fill="{colour}"><title>{escape(mark.tip)}</title>'
                     f'<line x1="{x(mark.low):.1f}" x2="{x(mark.high):.1f}" y1="{y}" y2="{y}" stroke-width="2"/>'
                     f'<circle cx="{x(mark.value):.1f}" cy="{y}" r="3.5"/></g>')  # fmt: skip
    return parts
