"""`dally profile fabric`: the links of a cluster by measurement, as a cluster file."""

from __future__ import annotations

from pathlib import Path

import click

from dally.cli.inputs import Time
from dally.cli.writing import check_free, force_file_option, write_whole


@click.command()
@click.option(
    "--out", "-o", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The cluster file to write."
)
@force_file_option
@click.option(
    "--processes", "-n", type=click.IntRange(min=1), default=1, show_default=True, help="Ranks on each machine."
)
@click.option(
    "--machines", metavar="netns:A,B|C,D", help="Network namespaces that stand for machines; `|` parts racks."
)
@click.option("--largest", default="16MB", show_default=True, help="All-reduce that the ladder ends with.")
@click.option("--name", default="measured", show_default=True, help="Of the cluster.")
@click.option(
    "--patience", type=Time(), default="2m", show_default=True, help="Given up after so long without a sign of life."
)
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def fabric(
    out: Path,
    force: bool,
    processes: int,
    machines: str | None,
    largest: str,
    name: str,
    patience: float,
    quiet: bool,
) -> None:
    """Time all-reduces at a ladder of sizes and fit latency and bandwidth of every level.

    \b
    dally profile fabric --processes 2 --out here.yaml
    dally profile fabric --machines "netns:m0,m1|m2,m3" --out racks.yaml
    """
    from datetime import UTC, datetime

    from dally.cli.printing import print_notes, print_table
    from dally.cli.profile.run import Talk, _need_torch
    from dally.core.errors import UserError
    from dally.core.units import show_bytes, show_time, size_bytes
    from dally.profiler.fabric import DEFAULT_SIZES, cluster_file, measure_fabric
    from dally.profiler.machines import parse_racks

    check_free(out, force)
    _need_torch()
    most = int(size_bytes(largest))
    sizes = sorted({size for size in DEFAULT_SIZES if size < most} | {most})
    if len(sizes) < 2:
        raise UserError(f"--largest {largest}: the ladder needs at least two sizes")
    chosen, racks = parse_racks(machines) if machines else ([], None)
    talk = Talk(quiet)
    talk("fabric: starting")
    found = measure_fabric(chosen, processes, sizes, racks, patience, talk)
    talk.end()
    write_whole(out, cluster_file(found, name, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"), force=True)
    if quiet:
        return
    rows = [
        (
            link.level,
            str(link.members),
            show_bytes(rung.size),
            show_time(rung.seconds),
            show_time(rung.fitted),
            f"{100 * rung.off:+.0f} %",
        )
        for link in found.links
        for rung in link.rungs
    ]
    print_table(("level", "ranks", "size", "all-reduce", "fitted", "off"), rows, "Ladder (medians)")
    print_table(
        ("level", "ranks", "latency of a hop", "bandwidth of a port"),
        [
            (link.level, str(link.members), show_time(link.hop), f"{show_bytes(link.bandwidth)}/s")
            for link in found.links
        ],
        "Links",
    )
    print_notes(found.notes)
