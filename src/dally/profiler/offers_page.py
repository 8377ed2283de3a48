"""What could be rented for a training as one HTML page that needs nothing else: time against cost, and the front."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dally.core.errors import UserError
from dally.profiler.page import STYLE, html_page, html_table

if TYPE_CHECKING:
    from dally.profiler.recommend import Configuration

_HEIGHT = 560  # pixels
_PLOT_ID = "offers"
# A plot's colours are its own: they follow the page's when the reader's system is, or becomes, dark.
_FOLLOW = f"""
(function () {{
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  function paint() {{
    const ink = dark.matches ? "#ddd" : "#222", grid = dark.matches ? "#333" : "#e5e7eb";
    Plotly.relayout("{_PLOT_ID}", {{"font.color": ink, "xaxis.gridcolor": grid, "yaxis.gridcolor": grid}});
  }}
  dark.addEventListener("change", paint);
  paint();
}})();
"""


def write_offers(path: Path, name: str, listed: Sequence[Configuration], head: Sequence[str],
                 front: Iterable[Sequence[str]], none: str | None) -> None:  # fmt: skip
    """`front`: rows of the table below the plot; `none`: why nothing is recommended."""
    chosen = next((each for each in listed if each.recommended), None)
    said = f"Recommended: {chosen.offer}." if chosen is not None else none or ""
    parts = (f"<h1>{escape(name)}: hours against dollars</h1>", f"<p>{escape(said)}</p>", _plot(listed),
             "<h2>Front: nothing is both faster and cheaper</h2>", html_table(head, front))  # fmt: skip
    try:
        path.write_text(html_page(name, STYLE, parts), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def _plot(listed: Sequence[Configuration]) -> str:
    import plotly.graph_objects as go

    figure = go.Figure()
    groups: tuple[tuple[str, list[Configuration], dict[str, Any]], ...] = (
        ("other", [c for c in listed if not c.front], {"color": "#9aa5b1", "size": 6}),
        ("front", [c for c in listed if c.front], {"color": "#e45756", "size": 8}),
        ("recommended", [c for c in listed if c.recommended], {"color": "#2e9e4d", "size": 16, "symbol": "star"}),
    )
    for name, members, marker in groups:
        spread = {"type": "data", "symmetric": False, "array": [c.hours_high - c.hours for c in members],
                  "arrayminus": [c.hours - c.hours_low for c in members], "thickness": 0.6}  # fmt: skip
        figure.add_scatter(x=[c.hours for c in members], y=[c.cost for c in members], name=name, marker=marker,
                           mode="lines+markers" if name == "front" else "markers", error_x=spread,
                           text=[f"{c.count} × {c.instance}" for c in members],
                           hovertemplate="%{text}<br>%{x:.3g} h, $%{y:,.2f}<extra></extra>")  # fmt: skip
    figure.update_layout(
        xaxis=_axis("hours", [c.hours for c in listed]), yaxis=_axis("US dollars", [c.cost for c in listed]),
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, template="none", height=_HEIGHT,
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", margin={"l": 60, "r": 20, "t": 50},
    )  # fmt: skip
    made: str = figure.to_html(full_html=False, include_plotlyjs=True, div_id=_PLOT_ID, post_script=_FOLLOW,
                               config={"responsive": True, "displaylogo": False})  # fmt: skip
    return made


def _axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    marks = _marks(values)
    return {"type": "log", "title": title, "tickvals": marks, "ticktext": [f"{mark:,.10g}" for mark in marks]}


def _marks(values: Sequence[float]) -> list[float]:
    """1, 2, 5, 10 … around the values, for a logarithmic axis."""
    if not values:
        return []
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [step * 10.0**power for power in range(low, high + 1) for step in (1, 2, 5)]
