"""`dally testbed`: a real Slurm with racks, shaped links and pretended GPUs on this host, up, down and looked at."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from dally.core.errors import UserError

_name = click.option("--name", default="bed", show_default=True, help="Several may be up side by side.")


@click.group()
def command() -> None:
    """A real Slurm on this host: racks, nodes and GPUs in network namespaces with shaped links (docs/testbed.md).

    \b
    dally testbed up --cluster lab.yaml
    . /var/lib/dally/testbeds/bed/env.sh && sinfo
    dally testbed down

    Needs root and Debian's packages slurm-wlm and munge.
    """


@command.command()
@_name
@click.option("--cluster", "-c", metavar="C", show_default="2 racks x 4 nodes x 2 GPUs, 200 and 50 Mbit/s",
              help="Racks, machines, GPUs and the rates of links: a cluster file, or 2x4x2 with --rate.")  # fmt: skip
@click.option("--rate", "rates", multiple=True, metavar="LEVEL=RATE",
              help="In place of the cluster's own, each way: rack=1Gbit/s, cluster=100Mbit/s.")  # fmt: skip
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              show_default="/var/lib/dally/testbeds/NAME", help="Where its files are.")  # fmt: skip
@click.option("--conf", multiple=True, metavar="KEY=VALUE",
              help="A line of slurm.conf that wins over ours; PartitionName: instead of our partition.")  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
def up(name: str, cluster: str | None, rates: tuple[str, ...], folder: Path | None, conf: tuple[str, ...],
       quiet: bool) -> None:  # fmt: skip
    """Make the bed and wait until all its nodes are idle."""
    from dally.cli.printing import print_notes
    from dally.live.testbed.bed import bring_up
    from dally.live.testbed.clusters import read_bed_cluster

    topology, text, notes = read_bed_cluster(cluster)
    bed = bring_up(name, topology, text, folder, _rates(rates), conf)
    if not quiet:
        gpus = sum(node.gpus for node in bed.layout.nodes)
        racks = len({node.switch for node in bed.layout.nodes})
        print(f"{name}: {racks} racks, {len(bed.layout.nodes)} nodes, {gpus} GPUs, in {bed.folder}")
        print(f". {bed.folder}/env.sh")
        print_notes((*notes, *bed.layout.notes))


def _rates(texts: tuple[str, ...]) -> dict[str, float]:
    from dally.core.units import bandwidth

    found = {}
    for text in texts:
        level, equals, rate = text.partition("=")
        if not equals:
            raise UserError(f"--rate {text!r}: write LEVEL=RATE, such as cluster=100Mbit/s")
        found[level.strip()] = bandwidth(rate)
    return found


@command.command()
@_name
def down(name: str) -> None:
    """Take the bed away: processes, namespaces, links, device files and its folder."""
    from dally.live.testbed.bed import take_down

    print(f"{name}: gone" if take_down(name) else f"{name}: there was no such test bed")


@command.command()
@click.option("--name", show_default="all", help="One bed.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(name: str | None, as_json: bool) -> None:
    """Nodes as Slurm sees them, daemons, uplinks."""
    import json

    from dally.cli.printing import print_table
    from dally.live.testbed.bed import find_bed, names

    beds = [find_bed(one) for one in ([name] if name else names())]
    if as_json:
        print(json.dumps([{"name": bed.name, "folder": str(bed.folder), "host": bed.layout.host,
                           "controller": bed.controller_pid(), "nodes": [asdict(state) for state in bed.states()]}
                          for bed in beds]))  # fmt: skip
        return
    if not beds:
        print("no test bed is up")
    for bed in beds:
        print(f"{bed.name}: {bed.folder}, controller {bed.controller_pid() or 'is not running'}")
        rows = [(s.name, s.rack, str(s.gpus), str(s.gpus_used), s.state.lower(), str(s.pid or "—"),
                 "up" if s.uplink else "down") for s in bed.states()]  # fmt: skip
        print_table(("node", "rack", "GPUs", "used", "state", "slurmd", "uplink"), rows)
