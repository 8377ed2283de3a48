"""Network models by name: `analytic`, `ideal`, `level-penalty[rack=1.2,cluster=2]`, …"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from dally.core.errors import UserError
from dally.core.spec import Spec, parse_spec
from dally.core.topology import Topology
from dally.core.units import size_bytes
from dally.network.model import NetworkModel
from dally.network.simple import Ideal, LevelPenalty

# name → (its options, one line of help)
DESCRIPTIONS: dict[str, tuple[str, str]] = {
    "ideal": ("", "placement never matters"),
    "level-penalty": ("LEVEL=FACTOR,…", "a factor per level that a gang spans"),
    "analytic": (
        "algorithm=auto|any|ring|tree|hierarchical|direct|halving-doubling|parameter-server,"
        "bucket=25MB|layer,overlap=0..1,contention=on|off",
        "collectives as NCCL chooses them, overlap with backward, contention between jobs",
    ),
    "astra": ("bucket=25MB|layer", "ASTRA-sim's analytical backend to the nanosecond, without contention"),
    "artist": ("layers=DIR", "the Dally authors' rules on their fabric, without contention"),
    "astra-sim": ("bucket=25MB|layer,cache=DIR", "drives an installed ASTRA-sim, without contention"),
}
NAMES = tuple(DESCRIPTIONS)


def make_network(text: str, topology: Topology) -> NetworkModel:
    """A network model for a cluster, or one sentence that says what is wrong."""
    spec = parse_spec(text, "network model")
    if spec.name not in NAMES:
        raise UserError(f"there is no network model {text!r}; there are: {', '.join(NAMES)}")
    options = _options(spec)
    if spec.name == "level-penalty":
        return LevelPenalty(topology, {level: _factor(level, value) for level, value in options.items()})
    return _MAKERS[spec.name](topology, options)


def looks_at_models(text: str) -> bool:
    """Whether this network model's steps depend on what is trained; the others only scale given durations."""
    return parse_spec(text, "network model").name not in ("ideal", "level-penalty")


def without_contention(text: str) -> str:
    """The same network model with `contention=off` among its options."""
    spec = parse_spec(text, "network model")
    if spec.name != "analytic":
        raise UserError(f"without contention nothing changes: network {text!r} has none")
    return str(spec.having("contention", "off"))


def _options(spec: Spec) -> dict[str, str]:
    name, known = spec.name, re.findall(r"([\w-]+)=", DESCRIPTIONS[spec.name][0])
    found: dict[str, str] = {}
    for key, value in spec.options:
        part = key if value is None else f"{key}={value}"
        if name == "level-penalty":
            if value is None:
                raise UserError(f"network 'level-penalty': {part!r} is not level=factor")
        elif not known:
            raise UserError(f"network {name!r} takes no options")
        if value is None or (known and name != "level-penalty" and key not in known):
            raise UserError(f"network {name!r} has no option {part!r}; it has {DESCRIPTIONS[name][0]}")
        found[key] = value
    return found


def _factor(level: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UserError(f"network 'level-penalty': {level + '=' + value!r} is not level=factor") from None


def _bucket(options: dict[str, str]) -> float | None:
    """`25MB`: bytes; `layer`: None. The default is DDP's 25 MiB."""
    from dally.network.cuts import BUCKET

    text = options.get("bucket")
    if text is None:
        return float(BUCKET)
    if text == "layer":
        return None
    size = size_bytes(text)
    if not size >= 1:
        raise UserError(f"a bucket must hold at least one byte, not {text!r}; write `layer` for one per layer")
    return size


def _whole(bucket: float | None) -> int | None:
    return None if bucket is None else int(bucket)


def _analytic(topology: Topology, options: dict[str, str]) -> NetworkModel:
    from dally.network.analytic import Analytic
    from dally.network.step import StepOptions

    switch = options.get("contention", "on")
    if switch not in ("on", "off"):
        raise UserError(f"network 'analytic': contention must be on or off, not {switch!r}")
    try:
        overlap = float(options.get("overlap", "1"))
    except ValueError:
        raise UserError(f"network 'analytic': overlap is a share between 0 and 1, not {options['overlap']!r}") from None
    chosen = StepOptions(options.get("algorithm", "auto"), _bucket(options), overlap)
    return Analytic(topology, chosen, contention=switch == "on")


def _astra(topology: Topology, options: dict[str, str]) -> NetworkModel:
    from dally.network.fidelity import Astra

    return Astra(topology, _whole(_bucket(options)))


def _artist(topology: Topology, options: dict[str, str]) -> NetworkModel:
    from dally.network.fidelity import Artist

    return Artist(topology, Path(options["layers"]) if "layers" in options else None)


def _astra_sim(topology: Topology, options: dict[str, str]) -> NetworkModel:
    from dally.network.fidelity import AstraSimulator

    cache = Path(options["cache"]) if "cache" in options else None
    return AstraSimulator(topology, _whole(_bucket(options)), cache)


def _ideal(topology: Topology, options: dict[str, str]) -> NetworkModel:
    return Ideal()


_MAKERS: dict[str, Callable[[Topology, dict[str, str]], NetworkModel]] = {
    "ideal": _ideal,
    "analytic": _analytic,
    "astra": _astra,
    "artist": _artist,
    "astra-sim": _astra_sim,
}
