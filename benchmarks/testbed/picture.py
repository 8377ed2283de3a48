"""Average JCT and makespan of every way: bars of measured and predicted beside each other, a dot per seed, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import mean
from typing import Any

LEFT, TOP, ROW, ROOM, COLUMN = 110, 46, 44, 270, 310
_STYLE = "<style>text{font:12px system-ui,sans-serif;fill:#444}.m{fill:#0b6e4f}.p{fill:#c9ada7}.d{fill:#222}</style>"
Pair = tuple[dict[str, Any] | None, dict[str, Any] | None]


def picture(found: Mapping[str, Sequence[Pair]]) -> str:
    wide, high = LEFT + 2 * COLUMN, TOP + ROW * len(found) + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img">', _STYLE]
    for k, (kind, word) in enumerate((("m", "measured"), ("p", "predicted"))):
        x = LEFT + 100 * k
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" class="{kind}"/>')
        parts.append(f'<text x="{x + 14}" y="17">{word}</text>')
    for row, way in enumerate(found):
        y = TOP + ROW * row + 20
        parts.append(f'<text x="{LEFT - 8}" y="{y}" text-anchor="end">{escape(way)}</text>')
    for column, (name, word) in enumerate((("average_jct", "average JCT, s"), ("makespan", "makespan, s"))):
        x = LEFT + COLUMN * column
        parts.append(f'<text x="{x}" y="{TOP - 8}">{word}</text>')
        most = max((one[name] for pairs in found.values() for pair in pairs for one in pair if one), default=1.0)
        for row, pairs in enumerate(found.values()):
            for k, kind in enumerate("mp"):
                values = [one[name] for pair in pairs if (one := pair[k])]
                parts += _bar(x, TOP + ROW * row + 16 * k, kind, values, most)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(x: float, y: float, kind: str, values: Sequence[float], most: float) -> list[str]:
    if not values:
        return []
    wide = ROOM * mean(values) / most
    bar = f'<rect class="{kind}" x="{x}" y="{y}" width="{wide:.1f}" height="14">'
    dots = [f'<circle class="d" cx="{x + ROOM * value / most:.1f}" cy="{y + 7}" r="2.5"/>' for value in values]
    return [f"{bar}<title>{mean(values):.1f} s</title></rect>", *dots]
