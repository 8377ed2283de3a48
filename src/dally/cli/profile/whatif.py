"""`dally profile whatif`: what a step would take if something were different, and which stall would be next."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click


@click.command()
@click.argument("profile", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--workers", type=click.IntRange(min=0), help="Of each rank's DataLoader.")
@click.option("--cache", type=click.FloatRange(min=0, max=100), metavar="PERCENT", help="Share of the data in memory.")
@click.option("--disk", metavar="RATE", help="What the disk delivers, e.g. 500MB/s.")
@click.option("--interconnect", metavar="RATE", help="Of a device's port inside the machine, e.g. 50GB/s.")
@click.option("--network", metavar="RATE", help="Of a machine's port, e.g. 25Gbit/s.")
@click.option("--gpu", help="Another GPU of the catalog.")
@click.option("--machines", type=click.IntRange(min=1), help="That many machines as the measured one.")
@click.option("--batch", type=click.IntRange(min=1), help="Samples per device and step.")
@click.option("--compression", type=click.FloatRange(min=1), help="Gradients shrink by this factor, at no cost.")
@click.option("--bucket", metavar="SIZE", help="Of gradients, e.g. 10MB.")
@click.option("--json", "as_json", is_flag=True, help="Print figures as JSON (seconds).")
def whatif(
    profile: Path,
    workers: int | None,
    cache: float | None,
    disk: str | None,
    interconnect: str | None,
    network: str | None,
    gpu: str | None,
    machines: int | None,
    batch: int | None,
    compression: float | None,
    bucket: str | None,
    as_json: bool,
) -> None:
    """Predict the step of PROFILE with something changed; without a change, show the usual ones.

    \b
    dally profile whatif net.yaml
    dally profile whatif net.yaml --workers 4 --cache 50 --network 25Gbit/s --machines 2
    """
    from dally.catalog import find_model
    from dally.cli.printing import print_notes, print_table
    from dally.core.units import bandwidth, show_time, size_bytes
    from dally.profiler.document import read_profile
    from dally.profiler.whatif import Change, usual, what_if

    found = read_profile(profile)
    model = find_model(str(profile))
    change = Change(
        workers,
        None if cache is None else cache / 100,
        None if disk is None else bandwidth(disk),
        None if interconnect is None else bandwidth(interconnect),
        None if network is None else bandwidth(network),
        gpu,
        machines,
        batch,
        compression,
        None if bucket is None else size_bytes(bucket),
    )
    asked = usual(found) if change == Change() else [Change(), change]
    answers = [what_if(found, model, each) for each in asked]
    notes = [
        f"the {what} was not seen to hold training up in this profile: {option} changes nothing"
        for stall, what, option, given in (
            ("prep", "CPU", "--workers", workers),
            ("fetch", "disk", "--cache", cache),
            ("fetch", "disk", "--disk", disk),
        )
        if given is not None and not (stall in found.stalls and found.stalls[stall].clear)
    ]
    if as_json:
        print_notes(notes)
        click.echo(json.dumps([{**asdict(a), "next_stall": a.next_stall} for a in answers], indent=1))
        return
    print_table(
        ("if", "step, cold data", "compute", "interconnect", "network", "CPU", "disk", "samples/s", "next stall"),
        [
            (
                a.change,
                *(show_time(s) for s in (a.seconds, a.compute, a.interconnect, a.network, a.prep, a.fetch)),
                f"{a.samples_per_second:,.1f}",
                a.next_stall,
            )
            for a in answers
        ],
    )
    links = "links are those that explain the measured steps; without a run over several machines, 10 Gbit/s"
    print_notes([links, *notes])
