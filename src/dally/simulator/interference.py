"""Which interference between packed jobs a run is simulated with: the catalog's, measured pairs, or none."""

from __future__ import annotations

from pathlib import Path

from dally.core.errors import UserError
from dally.core.sharing import Interference, NoInterference

DEFAULT = "catalog"


def make_interference(text: str) -> Interference:
    """`catalog`: utilisation and memory of the models; `none`; else a file of measured pairs over the catalog."""
    if text == "none":
        return NoInterference()
    from dally.catalog.interference import CatalogInterference

    if text == DEFAULT:
        return CatalogInterference()
    if not Path(text).exists():
        raise UserError(f"interference {text!r}: write catalog, none, or the name of a file of measured pairs")
    from dally.catalog.measured_pairs import read_interference

    return read_interference(Path(text))
