"""`dally profile recommend`: which cloud instances to rent for a training, how many, and what it will cost."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dally.cli.inputs import Time

if TYPE_CHECKING:
    from dally.profiler.recommend import Configuration

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("subject", metavar="PROFILE|MODEL")
@click.option("--samples", required=True, type=click.FloatRange(min=0, min_open=True), help="In the data set.")
@click.option("--epochs", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--within", type=Time(), help="It must be done in this time, e.g. 12h.")
@click.option("--budget", type=click.FloatRange(min=0), help="US dollars it may cost.")
@click.option("--prices", type=_FILE, help="Your prices: YAML `instance: price`, or CSV instance,price,spot,date.")
@click.option(
    "--batch", type=click.IntRange(min=1), help="Samples per GPU and step; default: the profile's or catalog's."
)
@click.option("--most", type=click.IntRange(min=1, max=16), default=8, show_default=True, help="Machines at once.")
@click.option(
    "--provider", "providers", multiple=True, type=click.Choice(["aws", "gcp", "azure"]), help="Only of these."
)
@click.option("--instance", "instances", multiple=True, help="Only these.")
@click.option("--spot", is_flag=True, help="Spot prices, with interruptions and checkpoints counted.")
@click.option(
    "--interruptions",
    type=click.FloatRange(min=0),
    default=0.05,
    show_default=True,
    help="Of a spot machine per hour; an estimate, clouds do not say.",
)
@click.option("--all", "everything", is_flag=True, help="Every configuration, not only the front.")
@click.option("--plot", type=_FILE, metavar="FILE.html", help="Draw time against cost.")
@click.option("--json", "as_json", is_flag=True, help="Print every configuration as JSON, cheapest first.")
def recommend(
    subject: str,
    samples: float,
    epochs: float,
    within: float | None,
    budget: float | None,
    prices: Path | None,
    batch: int | None,
    most: int,
    providers: tuple[str, ...],
    instances: tuple[str, ...],
    spot: bool,
    interruptions: float,
    everything: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Say which instances to rent for PROFILE (a file) or MODEL (of the catalog), and what it will cost.

    \b
    dally profile recommend resnet50 --samples 1281167 --epochs 90 --within 24h
    dally profile recommend net.yaml --samples 50000 --epochs 30 --within 2h --budget 20 --spot
    """
    from dally.cli.printing import console, print_notes, print_table
    from dally.profiler.predict import subject_of
    from dally.profiler.recommend import Question, configurations, why_none, with_prices

    found = subject_of(subject)
    question = Question(
        found,
        samples,
        epochs,
        math.inf if within is None else within,
        math.inf if budget is None else budget,
        batch,
        most,
        providers,
        instances,
        spot,
        interruptions,
    )
    listed = configurations(question, with_prices(prices) if prices is not None else None)
    none = why_none(question, listed)
    if plot is not None:
        _draw(listed, plot, found.model.name)
    notes = []
    if found.profile is None:
        notes.append("a model of the catalog says nothing of its data: CPU and disk are taken to keep up")
    elif found.model.measured_on == "CPU":
        notes.append(
            "this profile was measured on CPUs: GPU times come from its layers' FLOPs and the catalog's efficiencies"
        )
    if found.profile is not None and found.cpu_seconds is not None:
        notes.append("a vCPU is taken to prepare samples as fast as a core of the profiled host")
    print_notes(notes)
    if as_json:
        if none is not None:
            print_notes([none])
        click.echo(json.dumps([asdict(each) for each in listed], indent=1))
        return
    rows = [_row(each) for each in listed if everything or each.front or each.recommended]
    print_table(
        ("", "instance", "machines", "GPUs", "step", "waits", "hours", "between", "cost", "price of", "meets"),
        rows,
        "Every configuration" if everything else "Front: nothing is both faster and cheaper",
    )
    chosen = next((each for each in listed if each.recommended), None)
    if chosen is not None:
        console().print(
            f"recommended: {chosen.count} × {chosen.instance} ({chosen.gpus} × {chosen.gpu}): {chosen.hours:.3g} h for "
            f"${chosen.cost:,.2f}",
            soft_wrap=True,
        )
    else:
        console().print(none, soft_wrap=True)


def _row(each: Configuration) -> tuple[str, ...]:
    from dally.core.units import show_time

    waits = 100 * (each.interconnect + each.network + each.prep) / each.step if each.step else 0.0
    return (
        "→" if each.recommended else "·" if each.front else "",
        each.instance,
        str(each.count),
        f"{each.gpus} × {each.gpu}",
        show_time(each.step),
        f"{waits:.0f} %",
        f"{each.hours:.3g}",
        f"{each.hours_low:.3g}–{each.hours_high:.3g}",
        f"${each.cost:,.2f}",
        each.price_date + (" (estimated)" if each.price_estimated else ""),
        "yes" if each.meets else each.why,
    )


def _draw(listed: list[Configuration], path: Path, title: str) -> None:
    import plotly.graph_objects as go

    from dally.core.errors import UserError

    figure = go.Figure()
    groups = (
        ("other", [c for c in listed if not c.front], {"color": "#9aa5b1", "size": 6}),
        ("front: nothing is faster and cheaper", [c for c in listed if c.front], {"color": "#e45756", "size": 8}),
        ("recommended", [c for c in listed if c.recommended], {"color": "#2b7a3d", "size": 16, "symbol": "star"}),
    )
    for name, members, marker in groups:
        figure.add_scatter(
            x=[c.hours for c in members],
            y=[c.cost for c in members],
            name=name,
            mode="lines+markers" if name.startswith("front") else "markers",
            marker=marker,
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [c.hours_high - c.hours for c in members],
                "arrayminus": [c.hours - c.hours_low for c in members],
                "thickness": 0.6,
            },
            text=[f"{c.count} × {c.instance}" for c in members],
            hovertemplate="%{text}<br>%{x:.3g} h, $%{y:,.2f}<extra></extra>",
        )
    hours, costs = [c.hours for c in listed], [c.cost for c in listed]
    figure.update_layout(
        title=f"{title}: hours against dollars",
        xaxis={"type": "log", "title": "hours", "tickvals": _marks(hours), "ticktext": _labels(hours)},
        yaxis={"type": "log", "title": "US dollars", "tickvals": _marks(costs), "ticktext": _labels(costs)},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        template="plotly_white",
        margin={"l": 60, "r": 20},
    )
    try:
        figure.write_html(path, include_plotlyjs=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def _marks(values: list[float]) -> list[float]:
    """1, 2, 5, 10 … around the values, for a logarithmic axis."""
    if not values:
        return []
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [step * 10.0**power for power in range(low, high + 1) for step in (1, 2, 5)]


def _labels(values: list[float]) -> list[str]:
    return [f"{mark:,.10g}" for mark in _marks(values)]
