"""What a step takes elsewhere: a model or a profile on so many machines of a kind, by the network model."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dally.core.errors import UserError
from dally.core.records import dataclass

if TYPE_CHECKING:
    from dally.catalog import Gpu, Machine, Model
    from dally.core.topology import Topology
    from dally.network.step import StepOptions, StepProfile
    from dally.profiler.document import Profile


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be trained: a model of the catalog, or one that was measured, with what was measured of its data."""

    model: Model
    profile: Profile | None = None

    @property
    def cpu_seconds(self) -> float | None:
        """CPU seconds a sample takes to prepare; None where preparation was not seen to hold training up."""
        found = self.profile
        if found is None or found.batch is None or "prep" not in found.stalls or not found.stalls["prep"].clear:
            return None
        cached = found.runs["cached"]
        return cached.step * found.device.cores / (found.batch * cached.processes)

    @property
    def fetch_seconds(self) -> float:
        """Seconds a sample takes from a cold disk beyond what is hidden; 0 where that was not seen."""
        found = self.profile
        if found is None or found.batch is None or "fetch" not in found.stalls or not found.stalls["fetch"].clear:
            return 0.0
        return found.stalls["fetch"].seconds / (found.batch * found.runs["cold"].processes)

    def error(self, gpu: Gpu) -> float:
        """Relative error of compute times: of the measurement on the same GPU, else of the catalog's estimates."""
        measured = self.model.measured_on
        if self.profile is not None and measured is not None and measured == gpu.name:
            one = self.profile.runs.get("one")
            return max(0.05, 2 * one.spread / one.step) if one is not None else 0.05
        return CATALOG_ERROR


CATALOG_ERROR = 0.25  # docs/catalog.md: throughputs not used for calibration come out within 40 %, most within 25 %
NETWORK_ERROR = 0.20  # estimated: links are filled to their data-sheet rate, collectives are NCCL's


def subject_of(text: str) -> Subject:
    """A profile by its path, or a model of the catalog by its name."""
    from dally.catalog import find_model

    if text.endswith((".yaml", ".yml")):
        from dally.profiler.document import read_profile

        return Subject(find_model(text), read_profile(Path(text)))
    if Path(text).is_file():
        raise UserError(f"{text}: a profile ends in .yaml")
    return Subject(find_model(text))


def beside(model: Model, profile: Profile, ranks: int) -> Model:
    """The profile's model as it computes with so many ranks on one machine of the kind it was measured on.

    Its table adds up to the step of `all` ranks without exchange. One rank takes what one took alone. In between, ranks
    are in each other's way from the moment there are more of them than cores for their threads (or, if all had
    cores enough, from the second on: they share caches and memory), each as much as the next.
    """
    one, together = profile.runs.get("one"), profile.runs.get("all")
    if one is None or together is None or not together.silent or together.processes < 2:
        return model
    room = max(1.0, profile.device.cores / profile.device.threads)
    room = room if room < together.processes else 1.0
    each = max(0.0, together.silent - one.step) / (together.processes - room)
    by = (one.step + each * max(0.0, ranks - room)) / together.silent
    layers = tuple(replace(layer, measured=layer.measured and layer.measured.times(by)) for layer in model.layers)
    update = None if model.measured_update is None else model.measured_update * by
    return replace(model, layers=layers, measured_update=update)


@dataclass(frozen=True, slots=True)
class Predicted:
    """A step: `compute` on one device alone, what GPUs of a machine and what machines add."""

    seconds: float
    compute: float
    interconnect: float
    network: float
    fits: bool
    copies: int  # of the model; each works on its own batch


@lru_cache(maxsize=256)
def side_by_side(machine: Machine, count: int) -> Topology:
    """So many machines of a kind, as they are rented."""
    from dally.catalog import find_fabric
    from dally.catalog.clusters.assembly import assemble
    from dally.catalog.clusters.insides import inside_of
    from dally.catalog.clusters.shorthand import plan_shape

    return assemble(
        f"{count} × {machine.name}", plan_shape((1, count, machine.gpus), inside_of(machine)), find_fabric("cloud")
    )


def predict(
    model: Model, machine: Machine, count: int, batch: int | None = None, options: StepOptions | None = None
) -> Predicted:
    """The step of all GPUs of `count` machines, each with `batch` samples."""
    from dally.catalog import find_gpu
    from dally.core.placement import Placement
    from dally.network.shape import Shapes
    from dally.network.step import DEFAULT_OPTIONS, profile

    gpu = find_gpu(machine.gpu)
    shapes = Shapes(side_by_side(machine, count))
    chosen = options or DEFAULT_OPTIONS

    def step(machines: int) -> StepProfile:
        placed = Placement.of([(index, (1 << machine.gpus) - 1) for index in range(machines)])
        return profile(model, gpu, shapes.of(placed), shapes.wires, chosen, batch)

    there = step(count)
    whole, compute = there.alone, there.compute
    inside = step(1).alone if count > 1 else whole
    gpus = machine.gpus * count
    fits = model.memory_bytes(batch, gpus) <= gpu.memory_bytes
    return Predicted(whole, compute, max(0.0, inside - compute), max(0.0, whole - inside), fits, there.layout.data)
