"""`dally clusters`: presets and fabrics, or one cluster in full."""

from __future__ import annotations

from dataclasses import astuple, fields
from pathlib import Path

import click


@click.command()
@click.argument("cluster", required=False)
@click.option("--fabric", metavar="PRESET", help="Links of a cluster given by its shape.")
@click.option("--nodes", type=click.Path(path_type=Path), help="Node list that goes with a Slurm topology.")
@click.option("--fabrics", is_flag=True, help="List the fabric presets instead.")
def command(cluster: str | None, fabric: str | None, nodes: Path | None, fabrics: bool) -> None:
    """List cluster and fabric presets, or show one cluster, however it is given.

    \b
    dally clusters
    dally clusters --fabrics
    dally clusters 4x8x8 --fabric infiniband-ndr
    dally clusters topology.conf --nodes slurm.conf
    """
    from dally.catalog.clusters import describe_cluster, describe_clusters, describe_fabrics, read_cluster
    from dally.catalog.clusters.describe import FabricRow, LevelRow, PresetRow
    from dally.cli.printing import print_notes, print_table

    if cluster is None:
        listed = describe_fabrics() if fabrics else describe_clusters()
        kind = FabricRow if fabrics else PresetRow
        columns = [f.name.replace("_", " ") for f in fields(kind)]
        print_table(columns, [[str(v) for v in astuple(row)] for row in listed])
        return
    loaded = read_cluster(cluster, fabric=fabric, nodes=nodes)
    about = describe_cluster(loaded.topology)
    types = ", ".join(f"{gpus} {kind} in {machines} machines" for kind, machines, gpus in about.gpu_types)
    print(f"{about.name}: {types}")
    print_table([f.name for f in fields(LevelRow)], [[str(v) for v in astuple(row)] for row in about.levels])
    print("\n".join(about.tree))
    print_notes(loaded.notes)
