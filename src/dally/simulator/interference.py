"""Which interference between packed jobs a run is simulated with: a table's, the catalog's, measured pairs, or none."""

from __future__ import annotations

from pathlib import Path

from dally.catalog.throughputs import Throughputs
from dally.core.errors import UserError
from dally.core.sharing import Interference, NoInterference

DEFAULT = "auto"


def make_interference(text: str, table: Throughputs | None = None) -> Interference:
    """`catalog`: utilisation and memory of the models; `auto`: the pairs of the run's table of throughputs where it
    has them, else the catalog; `none`; else a file of measured pairs over the catalog."""
    if text == "none":
        return NoInterference()
    from dally.catalog.interference import CatalogInterference

    if text == DEFAULT and table is not None and any(table.beside.values()):
        from dally.catalog.tabled_interference import TabledInterference

        return TabledInterference(table)
    if text in (DEFAULT, "catalog"):
        return CatalogInterference()
    if not Path(text).exists():
        raise UserError(f"interference {text!r}: write auto, catalog, none, or the name of a file of measured pairs")
    from dally.catalog.measured_pairs import read_interference

    return read_interference(Path(text))
