"""The simulator's network at other fidelities: ASTRA-sim's arithmetic, ASTRA-sim itself, the Dally authors' rules.

They know hierarchies of equal units only: a placement is described by how many units it occupies at each level
(GPUs per machine, machines per rack, racks), and one that fills them unevenly collapses to a single flat dimension
at the highest level it crosses. Training is data parallel and jobs do not disturb each other.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.topology import LinkKind, Topology
from dally.network.analytic import Analytic
from dally.network.artist import ArtistDimension, artist_step_ns, original_dimension
from dally.network.astra import Dimension, Fabric, Layer, System, data_parallel_step_ns, read_layers
from dally.network.astra.layers import read_table, whole
from dally.network.astra.step import BUCKET_BYTES, StepNs
from dally.network.group import Group
from dally.network.model import Step, Uncontended
from dally.network.shape import Shape, Wires

Units = tuple[tuple[int, int], ...]  # (level, units joined there), innermost first; levels with one unit left out


def units_of(shape: Shape, wires: Wires) -> Units:
    """What is joined at each level, or everything at the top where domains of a level differ."""
    group = Group(shape, wires)
    units = []
    for level in range(group.top + 1):
        if group.joins[level] != (group.most[level] - 1) * len(group.spans[level]):
            return ((group.top, group.n),)
        if group.most[level] > 1:
            units.append((level, group.most[level]))
    return tuple(units)


class _ByUnits(Uncontended):
    """Looks up models and GPUs, remembers by shape; what a step takes is left to the fidelity."""

    def __init__(self, topology: Topology) -> None:
        self._known = Analytic(topology, contention=False)  # for its shapes, and its notes on unknown names
        self._steps: dict[tuple[str | None, Shape], Step] = {}
        self._tables: dict[tuple[str | None, str], tuple[Layer, ...]] = {}

    @property
    def notes(self) -> list[str]:
        return self._known.notes

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        shape = self._known.shapes.of(placement)
        found = self._steps.get((job.model, shape))
        if found is None:
            machine = self._known.topology.machines[placement.slices[0][0]]
            ns = self.step_ns(job.model, machine.gpu_type, shape)
            total, compute = ns.total * 1e-9, ns.compute * 1e-9
            found = self._steps[job.model, shape] = Step(total, compute, total - compute, total)
        return found

    @abstractmethod
    def step_ns(self, model: str | None, gpu_type: str, shape: Shape) -> StepNs:
        """One step on GPUs of a shape."""

    def layers(self, model: str | None, gpu_type: str) -> tuple[Layer, ...]:
        """The catalog's layers in whole nanoseconds; backward is cut by the operations of its halves."""
        key = (model, gpu_type)
        if key not in self._tables:
            from dally.catalog import compute_time

            found, batch = self._known.model_of(model)
            forward, backward = compute_time(found, self._known.gpu_of(gpu_type), batch)
            table = []
            for layer, ahead, back in zip(found.layers, forward, backward, strict=True):
                part = layer.weight_gradient_flops / layer.backward_flops if layer.backward_flops else 0.5
                weight = round(back * part * 1e9)
                table.append(Layer(layer.name, round(ahead * 1e9), round(back * 1e9) - weight, weight,
                                   layer.gradient_bytes))  # fmt: skip
            self._tables[key] = tuple(table)
        return self._tables[key]


class Astra(_ByUnits):
    """ASTRA-sim's congestion-unaware backend to the nanosecond: rings, or direct where all are connected."""

    def __init__(self, topology: Topology, bucket_bytes: int | None = BUCKET_BYTES) -> None:
        super().__init__(topology)
        self.bucket_bytes = bucket_bytes

    def step_ns(self, model: str | None, gpu_type: str, shape: Shape) -> StepNs:
        layers = self.layers(model, gpu_type)
        fabric = self.fabric(shape)
        if fabric is None:
            compute = data_parallel_step_ns(layers, _nothing(), self.bucket_bytes)
            return StepNs(compute.compute, compute.compute, 0)
        return self._answer(layers, fabric)

    def _answer(self, layers: tuple[Layer, ...], fabric: Fabric) -> StepNs:
        return data_parallel_step_ns(layers, fabric, self.bucket_bytes)

    def fabric(self, shape: Shape) -> Fabric | None:
        """The hierarchy a shape occupies; None: one GPU. A port's bandwidth is split among the GPUs behind it."""
        wires = self._known.shapes.wires
        group = Group(shape, wires)
        own = wires.machine_level
        dims = []
        for level, units in units_of(shape, wires):
            behind = 1 if level == 0 else max(stop - start for start, stop in group.spans[level - 1])
            per_gpu = 1 / (group.slowness[level] * behind)
            if level > own:  # a GPU's slot to the network may be slower than its part of the NICs
                machine = max(stop - start for start, stop in group.spans[own])
                per_gpu = min(per_gpu, 1 / (group.host * machine))
            link = wires.levels[level]
            dims.append(Dimension(link.kind.value, units, per_gpu, link.latency * 1e9))
        if not dims:
            return None
        connected = LinkKind.FULLY_CONNECTED.value
        return Fabric(dims, System(tuple("direct" if dim.kind == connected else "ring" for dim in dims)))


def _nothing() -> Fabric:
    return Fabric([Dimension("switch", 1, 1.0, 0.0)], System(("ring",)))


class AstraSimulator(Astra):
    """The same put to an installed ASTRA-sim (docs/network/astra.md), which computes in whole microseconds."""

    def __init__(
        self, topology: Topology, bucket_bytes: int | None = BUCKET_BYTES, cache: Path | None = None
    ) -> None:
        from dally.network.astra.bridge import AstraSim, find_binary

        super().__init__(topology, bucket_bytes)
        self._runner = AstraSim(find_binary("unaware"), cache=cache)

    def _answer(self, layers: tuple[Layer, ...], fabric: Fabric) -> StepNs:
        return self._runner.step_ns(layers, fabric, self.bucket_bytes)


class Artist(_ByUnits):
    """ArtISt-sim's rules on the authors' fabric: bandwidths and latencies are theirs, not the cluster's.

    Inside one machine: a mesh per island and a ring of islands. Across machines: rings of GPUs and of machines, a
    switch of racks. Layer tables come from `layers`, a folder of `layers_<model>.csv`, else from the catalog.
    """

    def __init__(self, topology: Topology, layers: Path | None = None) -> None:
        super().__init__(topology)
        self._read: dict[str, tuple[tuple[Layer, ...], int]] = _read_folder(layers) if layers is not None else {}

    def step_ns(self, model: str | None, gpu_type: str, shape: Shape) -> StepNs:
        table, silent = self.table(model, gpu_type)
        return artist_step_ns(table, self.dimensions(shape), silent)

    def table(self, model: str | None, gpu_type: str) -> tuple[tuple[Layer, ...], int]:
        from dally.catalog.store import normalise

        if self._read and model is not None:
            for name in (normalise(model), self._known.model_of(model)[0].name):
                if name in self._read:
                    return self._read[name]
        return self.layers(model, gpu_type), 0

    def dimensions(self, shape: Shape) -> list[ArtistDimension]:
        wires = self._known.shapes.wires
        own, top = wires.machine_level, shape.top
        units = dict(units_of(shape, wires))
        group = Group(shape, wires)
        if top > own:
            racks = len(group.spans[own + 1]) if top > own + 1 else 1
            # how the GPUs of one machine lie to each other does not matter to the authors
            uneven = any(len({stop - start for start, stop in group.spans[level]}) > 1 for level in range(own, top))
            if uneven:
                return [original_dimension("rack" if racks == 1 else "cluster", group.n)]
            machines = len(group.spans[own]) // racks
            return [
                original_dimension("machine", group.n // machines // racks),
                original_dimension("rack", machines),
                original_dimension("cluster", racks),
            ]
        if own:
            if units.get(1) == group.n:
                return [original_dimension("machine", group.n)]
            return [original_dimension("mesh", units.get(0, 1)), original_dimension("machine", units.get(1, 1))]
        # A machine without islands stands for theirs: up to four GPUs are a mesh, more are two meshes on a ring.
        if group.n <= 4:
            return [original_dimension("mesh", group.n)]
        if group.n % 2:
            return [original_dimension("machine", group.n)]
        return [original_dimension("mesh", group.n // 2), original_dimension("machine", 2)]


def _read_folder(folder: Path) -> dict[str, tuple[tuple[Layer, ...], int]]:
    """Layer tables by the name in their file's name, and by the catalog's name where it knows that one."""
    from dally.catalog.store import models, normalise

    files = sorted(folder.glob("layers_*.csv"))
    if not files:
        raise UserError(f"{folder}: there is no layer table layers_<model>.csv in it")
    declared = {}
    summary = folder / "models_summary.csv"
    if summary.is_file():
        for line, row in read_table(summary, ("model", "layers_declared")):
            declared[row["model"]] = whole(summary, line, "layers_declared", row["layers_declared"])
    found = {}
    for path in files:
        name = path.stem.removeprefix("layers_")
        table = read_layers(path)
        entry = (table, max(0, declared.get(name, 0) - len(table)))
        found[normalise(name)] = entry
        known = models().resolve(name)
        if known is not None:
            found[known] = entry
    return found
