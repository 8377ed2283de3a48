"""`dally nodes`, `drain`, `resume`, `topology`: the machines of the service."""

from __future__ import annotations

import click

from dally.cli.live.common import client, json_option, print_json


@click.command()
@json_option
def nodes(as_json: bool) -> None:
    """List the machines with their GPUs and the jobs on them.

    \b
    dally nodes
    """
    rows = client().get("nodes")
    if as_json:
        print_json(rows)
        return
    from dally.cli.printing import print_table

    print_table(("machine", "state", "gpus", "free", "type", "jobs"), [
        (row["name"], row["state"], str(row["gpus"]), str(row["free"]), row["gpu_type"],
         " ".join(row["jobs"]) or "–") for row in rows
    ])  # fmt: skip


def _change(what: str, about: str, done: str) -> click.Command:
    @click.command(what, help=f"{about}\n\n\b\ndally {what} rack0/m1")
    @click.argument("machines", nargs=-1, required=True, metavar="MACHINE…")
    def change(machines: tuple[str, ...]) -> None:
        found = client()
        for name in machines:
            found.post("nodes", name, what)
            print(f"{name} {done}")

    return change


drain = _change("drain", "Start nothing more on these machines; what runs there goes on.", "drained")
resume = _change("resume", "Let these machines take jobs again.", "resumed")


@click.command()
@json_option
def topology(as_json: bool) -> None:
    """Show the cluster of the service: levels with their links, and the tree of machines.

    \b
    dally topology
    """
    plain = client().get("topology")
    if as_json:
        print_json(plain)
        return
    from dataclasses import astuple, fields

    from dally.catalog.clusters import describe_cluster
    from dally.catalog.clusters.describe import LevelRow
    from dally.cli.printing import print_table
    from dally.core.topology_text import topology_from_plain

    about = describe_cluster(topology_from_plain(plain))
    types = ", ".join(f"{gpus} {kind} in {machines} machines" for kind, machines, gpus in about.gpu_types)
    print(f"{about.name}: {types}")
    print_table([each.name for each in fields(LevelRow)], [[str(v) for v in astuple(row)] for row in about.levels])
    print("\n".join(about.tree))
