"""Network models by name: `ideal`, `level-penalty[rack=1.2,cluster=2]`, …"""

from __future__ import annotations

import re

from dally.core.errors import UserError
from dally.core.topology import Topology
from dally.network.model import NetworkModel
from dally.network.simple import Ideal, LevelPenalty

NAMES = ("ideal", "level-penalty")


def make_network(text: str, topology: Topology) -> NetworkModel:
    """A network model for a cluster, or one sentence that says what is wrong."""
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\[(.*)\])?\s*", text)
    if match is None or match[1] not in NAMES:
        raise UserError(f"there is no network model {text!r}; there are: {', '.join(NAMES)}")
    name, inside = match[1], match[2]
    if name == "level-penalty":
        return LevelPenalty(topology, _factors(inside or ""))
    if inside:
        raise UserError(f"network {name!r} takes no options")
    return Ideal()


def _factors(inside: str) -> dict[str, float]:
    factors = {}
    for part in filter(None, (piece.strip() for piece in inside.split(","))):
        level, _, value = part.partition("=")
        try:
            factors[level.strip()] = float(value)
        except ValueError:
            raise UserError(f"network 'level-penalty': {part!r} is not level=factor") from None
    return factors
