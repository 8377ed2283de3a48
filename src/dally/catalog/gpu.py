"""GPUs: peak arithmetic rates, memory and links, per device as a scheduler counts them."""

from __future__ import annotations

from dally.catalog.model import Precision
from dally.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its data sheet has it; rates are dense, without structured sparsity."""

    name: str
    generation: str  # kepler, pascal, volta, turing, ampere, ada, hopper, blackwell
    fp32: float  # FLOP/s
    fp16: float | None  # FLOP/s of 16-bit tensor cores; None: the GPU has none
    tf32: float | None  # FLOP/s of TF32 tensor cores; None: the GPU has none
    memory_bytes: float
    memory_bandwidth: float  # bytes/s
    nvlink_bandwidth: float  # bytes/s in each direction, all links together; 0: none
    source: str
    aliases: tuple[str, ...] = ()
    title: str = ""
    power: float | None = None  # watts at most (the data sheet's TDP); None: not said

    def mode(self, precision: Precision) -> str:
        """The arithmetic a model of this precision gets here: `fp32`, `tf32` or `fp16`."""
        if precision is not Precision.FP32 and self.fp16 is not None:
            return "fp16"
        return "tf32" if self.tf32 is not None else "fp32"

    def peak(self, precision: Precision) -> float:
        """Peak FLOP/s for a model of this precision."""
        rates = {"fp16": self.fp16, "tf32": self.tf32, "fp32": self.fp32}
        return rates[self.mode(precision)] or self.fp32
