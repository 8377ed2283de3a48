"""Lines in a plot with two logarithmic axes, as SVG that needs nothing to be looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE, _RIGHT = 720, 400, 70, 48, 36, 190
_COLOURS = (
    "#1b6ca8",
    "#c1440e",
    "#2e7d32",
    "#7b1fa2",
    "#b8860b",
    "#00838f",
    "#5d4037",
    "#ad1457",
    "#455a64",
    "#827717",
    "#283593",
)


def slope(points: Points) -> float | None:
    """The exponent k of y ~ x^k that fits best; None for fewer than two different x."""
    usable = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in usable}) < 2:
        return None
    mean_x, mean_y = (sum(each) / len(usable) for each in zip(*usable, strict=True))
    below = sum((x - mean_x) ** 2 for x, _ in usable)
    return float(sum((x - mean_x) * (y - mean_y) for x, y in usable) / below)


def svg(title: str, x_title: str, y_title: str, lines: Mapping[str, Points]) -> str:
    every = [point for points in lines.values() for point in points if point[0] > 0 and point[1] > 0]
    if not every:
        every = [(1.0, 1.0)]
    (x0, x1), (y0, y1) = (_decades([point[axis] for point in every]) for axis in (0, 1))
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _ABOVE - _BELOW

    def at(x: float, y: float) -> tuple[float, float]:
        return (_LEFT + wide * (math.log10(x) - x0) / (x1 - x0), _ABOVE + high * (1 - (math.log10(y) - y0) / (y1 - y0)))

    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for power in range(x0, x1 + 1):
        x, _ = at(10.0**power, 10.0**y0)
        made.append(
            f'<path d="M{x:.1f} {_ABOVE}V{_ABOVE + high}" stroke="#ddd"/><text x="{x:.1f}" y="{_ABOVE + high + 16}" '
            f'text-anchor="middle">{_number(power)}</text>'
        )
    for power in range(y0, y1 + 1):
        _, y = at(10.0**x0, 10.0**power)
        made.append(
            f'<path d="M{_LEFT} {y:.1f}H{_LEFT + wide}" stroke="#ddd"/><text x="{_LEFT - 6}" y="{y + 4:.1f}" '
            f'text-anchor="end">{_number(power)}</text>'
        )
    of_whom = list(dict.fromkeys(name.rpartition(", ")[0] or name for name in lines))
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[of_whom.index(name.rpartition(", ")[0] or name) % len(_COLOURS)]
        drawn = [at(x, y) for x, y in sorted(points) if x > 0 and y > 0]
        dash = ' stroke-dasharray="5 4"' if name.endswith("pure") else ""
        if drawn:
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in drawn)
            made.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
            made += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>' for x, y in drawn]
        y = _ABOVE + 6 + 15 * number
        made.append(
            f'<path d="M{_LEFT + wide + 10} {y}h18" stroke="{colour}" stroke-width="1.6"{dash}/>'
            f'<text x="{_LEFT + wide + 33}" y="{y + 4}">{escape(name)}</text>'
        )
    made += [
        f'<text x="{_LEFT + wide / 2:.0f}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(x_title)}</text>',
        f'<text transform="translate(16 {_ABOVE + high / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(y_title)}'
        "</text></svg>",
    ]
    return "\n".join(made) + "\n"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, high if high > low else low + 1


def _number(power: int) -> str:
    return f"{10**power:,}" if 0 <= power <= 4 else f"1e{power}"
