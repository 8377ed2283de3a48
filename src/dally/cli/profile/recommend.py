"""`dally profile recommend`: which cloud instances to rent for a training, how many, and what it will cost."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dally.cli.inputs import Time
from dally.cli.writing import whole_page

if TYPE_CHECKING:
    from dally.profiler.recommend import Configuration

_FILE = click.Path(path_type=Path, dir_okay=False)
_HEAD = ("", "instance", "machines", "GPUs", "step", "waits", "hours", "between", "cost", "price of", "meets")


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
        from dally.profiler.offers_page import write_offers

        with whole_page(plot) as beside:
            write_offers(beside, found.model.name, listed, _HEAD, [_row(each) for each in listed if each.front], none)
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
        _HEAD,
        rows,
        "Every configuration" if everything else "Front: nothing is both faster and cheaper",
    )
    chosen = next((each for each in listed if each.recommended), None)
    if chosen is not None:
        console().print(f"recommended: {chosen.offer}", soft_wrap=True)
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
