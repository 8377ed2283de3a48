"""The four kinds of models of the benchmark: how long a GPU would compute, and how many bytes of gradients it has."""

from __future__ import annotations

from dataclasses import dataclass

_FORWARD = 1 / 3  # share of a step's compute that is forward


@dataclass(frozen=True, slots=True)
class LayerKind:
    parameters: int
    forward: float
    backward: float


@dataclass(frozen=True, slots=True)
class ModelKind:
    name: str
    compute: float  # seconds per step
    gradients: int  # bytes
    pieces: int = 4  # layers, all alike; each is a bucket

    @property
    def layers(self) -> tuple[LayerKind, ...]:
        each = self.compute / self.pieces
        return (LayerKind(self.gradients // 4 // self.pieces, each * _FORWARD, each * (1 - _FORWARD)),) * self.pieces

    @property
    def bucket(self) -> int:
        """Bytes: DDP closes a bucket at the tensor that fills it."""
        return self.gradients // self.pieces


MODELS = {
    kind.name: kind
    for kind in (
        ModelKind("vision", 1.0, 40_000),  # distance does not matter to it
        ModelKind("speech", 1.2, 320_000),
        ModelKind("language", 1.0, 800_000),
        ModelKind("ranking", 0.5, 600_000),  # little to compute, much to send
    )
}
