"""Stash's study again: stalls against layers and gradients on AWS' p2 and p3, predicted; regressions of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dally.core.records import dataclass
from dally.profiler.predict import predict

if TYPE_CHECKING:
    from dally.catalog import Model

INSTANCES = ("p2.8xlarge", "p2.16xlarge", "p3.8xlarge", "p3.16xlarge")
BATCHES = (1, 4, 32)
PUBLISHED = (
    ("interconnect stall, most", "up to 90 % of training time"),
    ("network stall, most", "up to 5 × the step of one machine"),
    ("the dearer instance is the slower one", "happens"),
)
DIFFERENCES = (
    "Step times are predicted from layer tables, the catalog's efficiencies and links filled to their data-sheet rate; "
    "the paper measured real instances with PyTorch of 2021.",
    "Batch sizes of the paper's runs are not known to us: 1, 4 and 32 per GPU are shown.",
    "The catalog gives a K80 the PCIe rate of its slot; what virtual machines and shared switches took is not in it, "
    "so interconnect stalls on p2 come out far below the paper's.",
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A network of the study."""

    name: str
    architecture: str
    arguments: tuple[tuple[str, int | bool], ...]

    def model(self) -> Model:
        from dally.catalog.architectures import build
        from dally.catalog.model import Model

        layers = build(self.architecture, dict(self.arguments), 4)
        return Model(self.name, layers, "cnn", 32, "architecture of the study")


def variants() -> list[Variant]:
    """ResNet-10 … 152 and VGG-11 … 19, with and without batch normalisation, ResNets also without shortcuts."""
    found = []
    for depth in (10, 18, 34, 50, 101, 152):
        for norm, residual, mark in ((True, True, ""), (False, True, " no BN"), (True, False, " no residual")):
            found.append(
                Variant(f"ResNet-{depth}{mark}", "resnet", (("depth", depth), ("norm", norm), ("residual", residual)))
            )
    for depth in (11, 13, 16, 19):
        for norm in (False, True):
            found.append(Variant(f"VGG-{depth}{' BN' if norm else ''}", "vgg", (("depth", depth), ("norm", norm))))
    return found


@dataclass(frozen=True, slots=True)
class Case:
    """One network on one instance with one batch; per cent as the method has them."""

    network: str
    instance: str
    batch: int
    layers: int
    tensors: int
    gradient_bytes: int
    step: float  # of one machine
    interconnect: float  # seconds
    network_stall: (
        float  # seconds, the same number of GPUs over two machines half as large or, failing that, two machines
    )
    two: float  # step of two machines

    @property
    def interconnect_percent(self) -> float:
        return 100 * self.interconnect / self.step

    @property
    def network_percent(self) -> float:
        return 100 * self.network_stall / self.step


def cases(batches: Sequence[int] = BATCHES, instances: Sequence[str] = INSTANCES) -> list[Case]:
    from dally.catalog import find_machine

    found = []
    for variant in variants():
        model = variant.model()
        for name in instances:
            machine = find_machine(name)
            for batch in batches:
                one = predict(model, machine, 1, batch)
                two = predict(model, machine, 2, batch)
                found.append(
                    Case(
                        variant.name,
                        name,
                        batch,
                        len(model.layers),
                        model.tensor_count,
                        model.gradient_bytes,
                        one.seconds,
                        one.interconnect,
                        two.network,
                        two.seconds,
                    )
                )
    return found


@dataclass(frozen=True, slots=True)
class Regression:
    """stall = a + b · layers + c · gradient bytes, fitted by least squares; errors leave one network out at a time."""

    what: str
    constant: float
    per_layer: float
    per_byte: float
    r2: float
    error: float  # mean absolute error over the mean stall, of networks that were left out


def regress(what: str, rows: Sequence[tuple[int, int, float]]) -> Regression:
    """Rows of layers, gradient bytes and stall in seconds."""
    import numpy as np

    layers = np.array([row[0] for row in rows], dtype=float)
    sizes = np.array([row[1] for row in rows], dtype=float)
    stalls = np.array([row[2] for row in rows])
    matrix = np.stack([np.ones_like(layers), layers, sizes], axis=1)
    found = np.linalg.lstsq(matrix, stalls, rcond=None)[0]
    spread = float(((stalls - stalls.mean()) ** 2).sum())
    left = float(((stalls - matrix @ found) ** 2).sum())
    errors = []
    for out in range(len(rows)):
        keep = np.arange(len(rows)) != out
        without = np.linalg.lstsq(matrix[keep], stalls[keep], rcond=None)[0]
        errors.append(abs(float(matrix[out] @ without) - float(stalls[out])))
    scale = float(np.abs(stalls).mean())
    return Regression(
        what,
        constant=float(found[0]),
        per_layer=float(found[1]),
        per_byte=float(found[2]),
        r2=1 - left / spread if spread > 0 else 1.0,
        error=float(np.mean(errors)) / scale if scale > 0 else 0.0,
    )


def dearer_loses(found: Sequence[Case]) -> list[tuple[str, str]]:
    """Pairs where the configuration with the higher price per hour has fewer samples per second."""
    from dally.catalog import find_machine, instances

    speeds: dict[tuple[str, int], list[tuple[float, float, str]]] = {}
    for case in found:
        price, gpus = instances()[case.instance].price, find_machine(case.instance).gpus
        each = speeds.setdefault((case.network, case.batch), [])
        each.append((price, gpus * case.batch / case.step, case.instance))
        each.append((2 * price, 2 * gpus * case.batch / case.two, f"2 × {case.instance}"))
    lost = []
    for (network, batch), rows in speeds.items():
        for price, speed, name in rows:
            worst = [other for p, s, other in rows if p > price and s < speed]
            lost += [(f"{network}, batch {batch}", f"{other} is dearer and slower than {name}") for other in worst]
    return lost
