"""`dally reproduce stash`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dally.profiler.study import Case

_FITTED = 4  # batch of the regressions: at 32 nearly everything is hidden, and what is left is the last bucket
# Small enough for CPUs; each is profiled over two processes.
_SMALL = (
    ("ResNet-10", ("resnet", "10")),
    ("ResNet-10 no BN", ("resnet", "10", "--no-norm")),
    ("ResNet-10 no residual", ("resnet", "10", "--no-residual")),
    ("ResNet-18", ("resnet", "18")),
    ("ResNet-34", ("resnet", "34")),
    ("VGG-11 BN", ("vgg", "11")),
    ("VGG-11", ("vgg", "11", "--no-norm")),
    ("VGG-16", ("vgg", "16", "--no-norm")),
)


@click.command()
@click.option("--measure", is_flag=True, help="Also profile small versions here, on CPUs over two processes (minutes).")
@click.option("--rows", is_flag=True, help="Every network on every instance.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def stash(measure: bool, rows: bool, quiet: bool) -> None:
    """Stash (arXiv 2208.14344): stalls against layers and gradients on AWS' p2 and p3 instances.

    \b
    dally reproduce stash
    dally reproduce stash --measure
    """
    from dally.cli.printing import print_notes, print_table
    from dally.profiler import study

    found = study.cases()
    table = []
    for batch in study.BATCHES:
        mine = [c for c in found if c.batch == batch]
        worst = max(mine, key=lambda c: c.interconnect_percent)
        slowest = max(mine, key=lambda c: c.two / c.step)
        lost = study.dearer_loses(mine)
        names = {case for case, _ in lost}
        table += [
            (
                study.PUBLISHED[0],
                str(batch),
                f"{worst.interconnect_percent:.0f} % ({worst.network} on {worst.instance})",
            ),
            (
                study.PUBLISHED[1],
                str(batch),
                f"{slowest.two / slowest.step:.1f} × ({slowest.network}, {slowest.instance})",
            ),
            (
                study.PUBLISHED[2],
                str(batch),
                f"{len(names)} of {len({c.network for c in mine})} networks"
                + (f"; {lost[0][0]}: {lost[0][1]}" if lost else ""),
            ),
        ]
    table.sort(key=lambda row: study.PUBLISHED.index(row[0]))
    print_table(
        ("headline", "published, measured", "batch", "here, predicted"),
        [(*said, batch, mine) for said, batch, mine in table],
    )
    _print_regressions(found)
    if rows:
        _print_rows(found)
    if measure:
        _measure(quiet)
    if not quiet:
        print_notes(study.DIFFERENCES)


def _print_regressions(found: list[Case]) -> None:
    from dally.cli.printing import print_table
    from dally.profiler import study

    fitted = []
    for instance in study.INSTANCES:
        mine = [c for c in found if c.instance == instance and c.batch == _FITTED]
        fitted.append(
            study.regress(f"interconnect, {instance}", [(c.layers, c.gradient_bytes, c.interconnect) for c in mine])
        )
        fitted.append(
            study.regress(f"network, 2 × {instance}", [(c.layers, c.gradient_bytes, c.network_stall) for c in mine])
        )
    print_table(
        (f"stall, batch {_FITTED}", "constant", "per layer", "per 100 MB of gradients", "R²", "error, left out"),
        [
            (
                r.what,
                f"{1e3 * r.constant:.2f} ms",
                f"{1e6 * r.per_layer:.1f} µs",
                f"{1e11 * r.per_byte:.2f} ms",
                f"{r.r2:.2f}",
                f"{r.error:.0%}",
            )
            for r in fitted
        ],
        "Regressions of predicted stalls: constant + layers + gradients",
    )


def _print_rows(found: list[Case]) -> None:
    from dally.cli.printing import print_table
    from dally.core.units import show_bytes, show_time

    print_table(
        ("network", "layers", "gradients", "instance", "batch", "step", "interconnect", "network"),
        [
            (
                c.network,
                str(c.layers),
                show_bytes(c.gradient_bytes),
                c.instance,
                str(c.batch),
                show_time(c.step),
                f"{c.interconnect_percent:.1f} %",
                f"{c.network_percent:.0f} %",
            )
            for c in found
        ],
        "Every case",
    )


def _measure(quiet: bool) -> None:
    from dally.cli.printing import print_table
    from dally.cli.profile.run import Talk, _need_torch
    from dally.core.errors import UserError
    from dally.core.units import show_bytes, show_time
    from dally.profiler import inside, study
    from dally.profiler.measure import Found, Wish, measure

    _need_torch()
    script = str(Path(inside.__file__).with_name("zoo.py"))
    talk = Talk(quiet)
    table, points = [], []
    for title, arguments in _SMALL:
        wish = Wish([sys.executable, script, *arguments], 2, 4, 10, 3, threads=1, name=title, only=("all", "one"))
        got = Found(wish)
        measure(wish, lambda text, title=title: talk(f"{title}: {text}"), got)  # type: ignore[misc]
        profile = got.profile()
        if profile is None or profile.model is None or "interconnect" not in profile.stalls:
            raise UserError(f"{title} could not be measured: {'; '.join(got.troubles)}")
        stall, layers = profile.stalls["interconnect"], profile.model.layers
        points.append((len(layers), profile.model.gradient_bytes, stall.seconds))
        table.append(
            (
                title,
                str(len(layers)),
                show_bytes(profile.model.gradient_bytes),
                show_time(profile.runs["one"].step),
                show_time(profile.runs["all"].step),
                f"{stall.percent:.0f} ± {stall.spread_percent:.0f} %",
            )
        )
    talk.end()
    print_table(
        ("network, a quarter as wide, 32 × 32", "layers", "gradients", "one process", "two", "interconnect"),
        table,
        "Measured here: CPUs, gloo, batch 8",
    )
    r = study.regress("measured", points)
    print_table(
        ("constant", "per layer", "per MB of gradients", "R²", "error, left out"),
        [
            (
                f"{1e3 * r.constant:.2f} ms",
                f"{1e6 * r.per_layer:.0f} µs",
                f"{1e9 * r.per_byte:.2f} ms",
                f"{r.r2:.2f}",
                f"{r.error:.0%}",
            )
        ],
        "Regression of the measured stalls",
    )
