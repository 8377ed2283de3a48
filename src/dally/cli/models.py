"""`dally models`: the models of the catalog, or one in full."""

from __future__ import annotations

import click


@click.command()
@click.argument("name", required=False)
@click.option("--layers", is_flag=True, help="Show the layer table too.")
def command(name: str | None, layers: bool) -> None:
    """List the catalog's models, or show one.

    \b
    dally models
    dally models resnet50 --layers
    """
    from dally.catalog import find_model
    from dally.catalog.listing import describe_model, list_layers, list_models
    from dally.cli.printing import print_pairs, print_table

    if name is None:
        listing = list_models()
        print_table(listing.columns, listing.rows)
        return
    model = find_model(name)
    print_pairs(describe_model(model), model.name)
    if layers:
        listing = list_layers(model)
        print_table(listing.columns, listing.rows)
