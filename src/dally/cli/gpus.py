"""`dally gpus`: the GPUs and machines of the catalog."""

from __future__ import annotations

import click


@click.command()
@click.option("--machines", is_flag=True, help="List machines and cloud instances instead.")
def command(machines: bool) -> None:
    """List the catalog's GPUs, or its machines.

    \b
    dally gpus
    dally gpus --machines
    """
    from dally.catalog.listing import list_gpus, list_machines
    from dally.cli.printing import print_table

    listing = list_machines() if machines else list_gpus()
    print_table(listing.columns, listing.rows)
