"""`dally profile show|compare|diff`: a profile for people, several side by side, and what changed between two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dally.cli.writing import whole_page

if TYPE_CHECKING:
    from dally.profiler.document import Profile

_PATH = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("profile", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON (seconds and bytes).")
@click.option("--layers", is_flag=True, help="Also the layer table.")
@click.option("--html", type=_PATH, metavar="FILE.html", help="Write a page with stall bars, timeline and what-ifs.")
def show(profile: Path, as_json: bool, layers: bool, html: Path | None) -> None:
    """Show one profile: where the time of a step goes.

    \b
    dally profile show net.yaml
    dally profile show net.yaml --html net.html
    """
    from dally.profiler.document import read_profile

    found = read_profile(profile)
    if html is not None:
        from dally.catalog import find_model
        from dally.profiler.page import write_page
        from dally.profiler.whatif import usual, what_if

        known = found.model is not None and found.batch is not None and ("all" in found.runs or "one" in found.runs)
        model = find_model(str(profile)) if known else None
        answers = [] if model is None else [what_if(found, model, change) for change in usual(found)]
        with whole_page(html) as beside:
            write_page(found, beside, answers)
    if as_json:
        click.echo(found.model_dump_json(by_alias=True, exclude_none=True, indent=1))
        return
    print_profile(found)
    if layers:
        _print_layers(found)


def print_profile(found: Profile) -> None:
    from dally.cli.printing import console, print_notes, print_pairs, print_table
    from dally.core.units import show_bytes, show_time
    from dally.profiler.stalls import RUNS, TITLES, largest

    rows = []
    for name, run in found.runs.items():
        rows.append(
            (
                RUNS[name],
                str(run.processes),
                str(run.machines),
                show_time(run.step),
                _off(run.spread, run.step),
                show_time(run.wait),
                f"{len(run.windows)} × {run.steps // len(run.windows)}",
            )
        )
    for run in found.apart:
        rows.append(
            (
                f"apart, synthetic {run.link}".strip(),
                str(run.processes),
                str(run.machines),
                show_time(run.step),
                _off(run.spread, run.step),
                show_time(run.wait),
                f"{len(run.windows)}",
            )
        )
    print_table(
        ("run", "ranks", "machines", "step", "spread", "waits for data", "windows × steps"),
        rows,
        f"{found.name} ({found.status}), {found.made}",
    )
    if found.stalls:
        print_table(
            ("stall", "per step", "", "spread", ""),
            [
                (
                    TITLES[name],
                    show_time(s.seconds),
                    f"{s.percent:.1f} %",
                    f"± {show_time(s.spread)}",
                    s.verdict,
                )
                for name, s in found.stalls.items()
            ],
            "Stalls",
        )
        worst = largest(found.stalls)
        console().print(f"largest: {TITLES[worst]}" if worst else "no stall is clear of the noise", soft_wrap=True)
    table = found.model
    pairs: list[tuple[str, str]] = [
        ("device", f"{found.device.name}, {found.device.threads} threads, {found.device.backend}")
    ]
    speed = found.samples_per_second()
    if speed is not None:
        pairs.append(("speed, all devices", f"{speed:,.1f} samples/s, {found.batch} per device and step"))
    if found.mfu is not None and found.device.peak:
        pairs.append(
            (
                "model FLOPs utilisation",
                f"{found.mfu:.1%} of {found.device.peak / 1e12:.3g} TFLOP/s ({found.device.peak_source})",
            )
        )
    if found.host_share is not None and found.host_share > 0:
        pairs.append(
            ("of the interconnect stall", f"{show_time(found.host_share)} are ranks in each other's way on the host")
        )
    if found.exposed is not None:
        pairs.append(("exposed communication", f"{show_time(found.exposed)} of the traced step"))
    if table is not None:
        biggest = max((max(row.tensors, default=0) for row in table.layers), default=0)
        width = table.gradient_bytes / max(1, sum(row.parameters for row in table.layers))
        skew = biggest * width / table.gradient_bytes if table.gradient_bytes else 0.0
        tensors = sum(len(row.tensors) for row in table.layers)
        pairs.append(
            (
                "layers, gradients",
                f"{len(table.layers)} layers, {tensors} gradients of {show_bytes(table.gradient_bytes)}, "
                f"skew {skew:.2f}",
            )
        )
        if table.buckets:
            pairs.append(("buckets as DDP made them", ", ".join(show_bytes(b) for b in table.buckets)))
    if table is not None and table.utilization is not None:
        pairs.append(
            (
                "utilisation alone",
                f"{table.utilization['value']:.0%} of its time a device's CPU threads are busy"
                if found.device.kind == "cpu"
                else f"{table.utilization['value']:.0%}",
            )
        )
    if found.memory is not None:
        pairs.append(("peak memory of a rank", show_bytes(found.memory)))
    if found.checkpoint is not None:
        saved = found.checkpoint
        pairs.append(
            (
                "checkpoint",
                f"{show_bytes(saved.bytes)}, saved in {show_time(saved.save)}, loaded in {show_time(saved.load)}",
            )
        )
    print_pairs(pairs)
    print_notes(found.notes)


def _off(spread: float, step: float) -> str:
    return f"± {100 * spread / step:.1f} %"


def _print_layers(found: Profile) -> None:
    from dally.cli.printing import print_table
    from dally.core.units import show_bytes, show_time

    if found.model is None:
        return
    rows = []
    for row in found.model.layers:
        times = row.measured or {}
        rows.append(
            (
                row.name,
                row.kind,
                f"{row.parameters:,}",
                show_bytes(row.gradient_bytes),
                f"{row.forward_flops:,}",
                show_time(times.get("forward", 0.0)),
                show_time(times.get("backward", 0.0)),
            )
        )
    print_table(("layer", "kind", "parameters", "gradients", "forward FLOP", "forward", "backward"), rows, "Layers")


@click.command()
@click.argument("profiles", type=_PATH, nargs=-1, required=True)
def compare(profiles: tuple[Path, ...]) -> None:
    """Show several profiles side by side.

    \b
    dally profile compare cnn.yaml mlp.yaml transformer.yaml
    """
    from dally.cli.printing import print_table
    from dally.core.units import show_bytes, show_time
    from dally.profiler.document import read_profile

    rows = []
    for path in profiles:
        found = read_profile(path)
        base = found.runs.get("all") or found.runs.get("one")
        speed = found.samples_per_second()
        stalls = [found.stalls.get(name) for name in ("interconnect", "network", "prep", "fetch")]
        rows.append(
            (
                found.name,
                str(base.processes) if base else "–",
                show_time(base.step) if base else "–",
                f"{speed:,.0f}" if speed else "–",
                *(f"{s.percent:.0f} ± {s.spread_percent:.0f} %" if s else "–" for s in stalls),
                show_bytes(found.model.gradient_bytes) if found.model else "–",
                f"{found.mfu:.1%}" if found.mfu else "–",
            )
        )
    print_table(
        ("profile", "ranks", "step", "samples/s", "interconnect", "network", "CPU", "disk", "gradients", "MFU"), rows
    )


@click.command()
@click.argument("before", type=_PATH)
@click.argument("after", type=_PATH)
def diff(before: Path, after: Path) -> None:
    """Say what changed from one profile to another, and whether it is more than noise.

    \b
    dally profile diff before.yaml after.yaml
    """
    from math import hypot

    from dally.cli.printing import print_table
    from dally.core.units import show_time
    from dally.profiler.document import read_profile
    from dally.profiler.stalls import RUNS

    old, new = read_profile(before), read_profile(after)
    rows = []
    for name in ("one", "all", "cold", "cached"):
        a, b = old.runs.get(name), new.runs.get(name)
        if a is None or b is None:
            continue
        change, noise = b.step - a.step, hypot(a.spread, b.spread)
        verdict = "within the noise" if abs(change) <= 2 * noise else ("slower" if change > 0 else "faster")
        rows.append(
            (
                RUNS[name],
                show_time(a.step),
                show_time(b.step),
                f"{100 * change / a.step:+.1f} %",
                f"± {100 * noise / a.step:.1f} %",
                verdict,
            )
        )
    print_table(("run", before.name, after.name, "change", "noise", ""), rows)
