"""The hierarchy of network dimensions and the collective settings that ASTRA-sim's analytical backends read.

Times are whole nanoseconds, as ASTRA-sim's cycles are: a model that promises its answers to the nanosecond
cannot pass through float seconds. Bandwidths are bytes per second, as everywhere inside.
"""

from __future__ import annotations

import math
from typing import Literal

from dally.core.errors import UserError
from dally.core.records import dataclass

Kind = Literal["ring", "fully-connected", "switch"]
Algorithm = Literal["ring", "halving-doubling", "direct"]
Collective = Literal["all-reduce", "reduce-scatter", "all-gather", "all-to-all"]
Optimization = Literal["localBWAware", "baseline"]
Backend = Literal["unaware", "aware"]

KINDS: tuple[Kind, ...] = ("ring", "fully-connected", "switch")
ALGORITHMS: tuple[Algorithm, ...] = ("ring", "halving-doubling", "direct")
COLLECTIVES: tuple[Collective, ...] = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
OPTIMIZATIONS: tuple[Optimization, ...] = ("localBWAware", "baseline")
BACKENDS: tuple[Backend, ...] = ("unaware", "aware")

GIB = float(2**30)  # what ASTRA-sim's network file calls GB/s is GiB/s


@dataclass(frozen=True, slots=True)
class Dimension:
    """One level of the hierarchy, as each group of `size` GPUs on it sees it."""

    kind: Kind
    size: int  # GPUs (or groups of the dimension below) that meet on it
    bandwidth: float  # bytes per second, per GPU
    latency_ns: float  # per hop

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"{self.kind!r} is not a kind of dimension; choose from {', '.join(KINDS)}")
        if self.size < 1:
            raise UserError(f"a dimension needs at least one GPU, not {self.size}")
        if not (math.isfinite(self.bandwidth) and self.bandwidth > 0):
            raise UserError(f"the bandwidth of a dimension must be positive, not {self.bandwidth!r}")
        if not (math.isfinite(self.latency_ns) and self.latency_ns >= 0):
            raise UserError(f"the latency of a dimension must not be negative, and is {self.latency_ns!r}")


@dataclass(frozen=True, slots=True)
class System:
    """How collectives are cut and run: the fields of ASTRA-sim's system file that change their time."""

    algorithms: tuple[Algorithm, ...]  # one per dimension, dimension 0 innermost
    optimization: Optimization = "localBWAware"
    splits: int = 4  # preferred-dataset-splits
    active_chunks: int = 1  # active-chunks-per-dimension
    queues: int = 1  # per dimension
    endpoint_delay_ns: int = 10
    local_mem_bandwidth: float = 1600e9  # bytes per second

    def __post_init__(self) -> None:
        for algorithm in self.algorithms:
            if algorithm not in ALGORITHMS:
                choice = ", ".join(ALGORITHMS)
                raise UserError(f"{algorithm!r} is not a collective algorithm; choose from {choice}")
        if self.optimization not in OPTIMIZATIONS:
            choice = ", ".join(OPTIMIZATIONS)
            raise UserError(f"{self.optimization!r} is not a collective optimization; choose from {choice}")
        for field in ("splits", "active_chunks", "queues", "endpoint_delay_ns"):
            if getattr(self, field) < 1:
                raise UserError(f"{field} must be at least 1, not {getattr(self, field)}")
        if not (math.isfinite(self.local_mem_bandwidth) and self.local_mem_bandwidth > 0):
            raise UserError(f"the local memory bandwidth must be positive, not {self.local_mem_bandwidth!r}")


def check_match(dims: tuple[Dimension, ...], system: System) -> None:
    """Refuse a pair that ASTRA-sim could not finish."""
    if not dims:
        raise UserError("a topology needs at least one dimension")
    if len(system.algorithms) != len(dims):
        raise UserError(
            f"{len(system.algorithms)} algorithms were given for {len(dims)} dimensions; "
            "give one per dimension"
        )
    for index, (dim, algorithm) in enumerate(zip(dims, system.algorithms, strict=True)):
        if algorithm == "halving-doubling" and dim.size & (dim.size - 1):
            # Its partners are found by index parity; other sizes leave GPUs waiting for ever in ASTRA-sim.
            raise UserError(
                f"halving-doubling needs a power of two, but dimension {index} has {dim.size} GPUs"
            )
