"""How ASTRA-sim's files spell what the model knows: dimensions, algorithms and collective optimizations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from dally.core.errors import UserError
from dally.network.astra.model import OPTIMIZATIONS, Algorithm, Collective, Kind, Optimization

KIND_NAMES: dict[Kind, str] = {"ring": "Ring", "fully-connected": "FullyConnected", "switch": "Switch"}
ALGORITHM_NAMES: dict[Algorithm, str] = {
    "ring": "ring",
    "halving-doubling": "halvingDoubling",
    "direct": "direct",
}
COLLECTIVE_NUMBERS: dict[Collective, int] = {  # comm_type of an execution trace's collective node
    "all-reduce": 0,
    "all-gather": 2,
    "all-to-all": 6,
    "reduce-scatter": 7,
}

_Own = TypeVar("_Own", bound=str)


def _own(names: Mapping[_Own, str], text: str, what: str) -> _Own:
    for own, name in names.items():
        if name == text:
            return own
    raise UserError(f"{text!r} is not a {what} this model has; it has {', '.join(names.values())}")


def kind_named(text: str) -> Kind:
    return _own(KIND_NAMES, text, "topology")


def algorithm_named(text: str) -> Algorithm:
    return _own(ALGORITHM_NAMES, text, "collective algorithm")


def optimization_named(text: str) -> Optimization:
    return _own({name: name for name in OPTIMIZATIONS}, text, "collective optimization")
