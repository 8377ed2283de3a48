"""Two plots of the grid as SVG: every cell by how much its jobs queue, and the cells where they do, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from grid_page import VALUES, Cell

COLOURS = {"value": "#0b6e4f", "value, noisy 0.7": "#c77700", "value, none": "#7a5195"}
_STYLE = ("<style>text{font:12px system-ui,sans-serif;fill:#444}.grid{stroke:#ddd}"
          ".one{stroke:#888;stroke-dasharray:4 3}</style>")  # fmt: skip


def scatter(found: Sequence[Cell], figure: str, title: str, names: Sequence[str] = tuple(VALUES)) -> str:
    """Each cell's ratio to the best baseline against the share of JCT that is queueing there."""
    wide, high, left, top = 720, 360, 60, 40
    ratios = [cell.ratio(name, figure) for cell in found for name in names if name in cell.figures]
    low, up = min(0.4, *ratios) - 0.02, max(1.1, *ratios) + 0.02

    def y(ratio: float) -> float:
        return top + (up - ratio) / (up - low) * (high - top - 50)

    parts = [_head(wide, high, title)]
    tick = round(low, 1)
    while tick <= up:
        kind = "one" if abs(tick - 1.0) < 1e-9 else "grid"
        parts.append(f'<line class="{kind}" x1="{left}" x2="{wide - 20}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
                     f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.1f}</text>')  # fmt: skip
        tick = round(tick + 0.1, 1)
    for share in range(0, 101, 20):
        parts.append(f'<text x="{left + share / 100 * (wide - left - 20):.1f}" y="{high - 32}" text-anchor="middle">'
                     f"{share} %</text>")  # fmt: skip
    for cell in found:
        x = left + cell.queueing_share * (wide - left - 20)
        for name in (name for name in names if name in cell.figures):
            ratio = cell.ratio(name, figure)
            parts.append(f'<circle cx="{x:.1f}" cy="{y(ratio):.1f}" r="4" fill="{COLOURS[name]}" fill-opacity="0.65">'
                         f"<title>{cell.name}: {name} {ratio:.2f}</title></circle>")  # fmt: skip
    parts.append(f'<text x="{wide / 2}" y="{high - 12}" text-anchor="middle">queueing as a share of the best '
                 "baseline's average JCT</text>")  # fmt: skip
    return "\n".join([*parts, _legend(names, left), "</svg>\n"])


def rows(found: Sequence[Cell], figure: str, title: str, names: Sequence[str] = tuple(VALUES)) -> str:
    """A line per cell: the ratios to the best baseline, and the least the lower bound leaves room for."""
    wide, left, top, step = 720, 270, 56, 18
    high = top + step * len(found) + 30
    low, up = 0.3, 1.3

    def x(ratio: float) -> float:
        return left + (min(max(ratio, low), up) - low) / (up - low) * (wide - left - 30)

    parts = [_head(wide, high, title)]
    for tick in (0.4, 0.6, 0.8, 1.0, 1.2):
        parts.append(f'<line class="{"one" if tick == 1 else "grid"}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" '
                     f'y1="{top - 8}" y2="{high - 24}"/><text x="{x(tick):.1f}" y="{high - 8}" '
                     f'text-anchor="middle">{tick}</text>')  # fmt: skip
    for number, cell in enumerate(found):
        y = top + step * number + 6
        bound = cell.figures["value"]["bound"] / cell.figures[cell.best("avg_jct")]["avg_jct"]
        parts.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{cell.name}</text>'
                     f'<line x1="{x(bound):.1f}" x2="{x(bound):.1f}" y1="{y - 6}" y2="{y + 6}" stroke="#000" '
                     f'stroke-width="2"><title>lower bound {bound:.2f}</title></line>')  # fmt: skip
        for name in names:
            if name in cell.figures:
                parts.append(f'<circle cx="{x(cell.ratio(name, figure)):.1f}" cy="{y}" r="5" fill="{COLOURS[name]}">'
                             f"<title>{name} {cell.ratio(name, figure):.2f}</title></circle>")  # fmt: skip
    return "\n".join([*parts, _legend(names, left, "black: lower bound"), "</svg>\n"])


def _head(wide: int, high: int, title: str) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
            f'role="img"><title>{title}</title>{_STYLE}<rect width="{wide}" height="{high}" fill="#fff"/>'
            f'<text x="14" y="20" style="font-weight:600">{title}</text>')  # fmt: skip


def _legend(names: Sequence[str], left: int, more: str = "") -> str:
    said = []
    for number, name in enumerate(names):
        said.append(f'<circle cx="{left + 4 + 140 * number}" cy="33" r="5" fill="{COLOURS[name]}"/>'
                    f'<text x="{left + 14 + 140 * number}" y="37">{name}</text>')  # fmt: skip
    if more:
        said.append(f'<text x="14" y="37">{more}</text>')
    return "".join(said)
