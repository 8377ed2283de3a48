"""The simulator's network at other fidelities: ASTRA-sim's arithmetic, ASTRA-sim itself, the Dally authors' rules.

They know hierarchies of equal units only: a placement is described by how many units it occupies at each level
(GPUs per machine, machines per rack, racks), and one that fills them unevenly collapses to a single flat dimension
at the highest level it crosses. Training is data parallel and jobs do not disturb each other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.topology import LinkKind, Topology
from dally.network.analytic import Analytic
from dally.network.artist import ArtistDimension, artist_step_ns, original_dimension
from dally.network.astra import Dimension, Fabric, Layer, System, data_parallel_step_ns, read_layers
from dally.network.astra.collective import SlowestQueue
from dally.network.astra.layers import compute_ns, read_table, whole
from dally.network.astra.step import BUCKET_BYTES, StepNs
from dally.network.even import best_slots, even_units, fewest_behind, spread_of, uneven_spreads
from dally.network.floor import ROUNDING
from dally.network.group import Group
from dally.network.least import slot_rate, slowest_port
from dally.network.model import Floor, Step, Uncontended
from dally.network.room import Room
from dally.network.shape import Shape, Wires
from dally.network.spread import spread_over

_MOST_SPREADS = 8
Parts = list[tuple[str, int]]  # levels of the Dally authors' fabric and how many units are joined there
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

    by_shape = True

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

    def fastest_step(self, job: Job, gpus: int) -> Floor | None:
        """The shortest of all even ways to lie on the cluster, and of what uneven ones come down to."""
        known = self._known
        found = sorted((ns, kind, spread) for kind in known.census.types(job.gpu_type)
                       for room in known.census.rooms(kind, gpus)
                       for ns, spread in self.floors(job.model, kind, gpus, room))  # fmt: skip
        if not found:
            return Floor(float("inf"))
        likely = (spread_over(known.topology, kind, gpus, spread) for _, kind, spread in found[:_MOST_SPREADS])
        return Floor(found[0][0] * 1e-9, tuple(placement for placement in likely if placement is not None))

    @abstractmethod
    def floors(self, model: str | None, gpu_type: str, gpus: int, room: Room) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(nanoseconds, how to lie there) of steps, so that every placement in the room takes as long as one of them
        at least."""

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
            dims.append(_dimension(wires, level, units, per_gpu))
        if not dims:
            return None
        return Fabric(dims, _system(dims))

    def floors(self, model: str | None, gpu_type: str, gpus: int, room: Room) -> Iterator[tuple[int, tuple[int, ...]]]:
        layers, wires = self.layers(model, gpu_type), self._known.shapes.wires
        own, top = wires.machine_level, room.top
        if gpus == 1:
            yield data_parallel_step_ns(layers, _nothing(), self.bucket_bytes).compute, (1,) * (top + 1)
            return
        alike = len({(slot_rate(kind, wires) if top > own else 0.0, kind.links) for kind, _ in room.kinds}) == 1
        for units in even_units(gpus, room, own, 0):
            machines, inside = prod(units[own + 1 :]), prod(units[: own + 1])
            dims = []
            for level, joined in enumerate(units):
                if joined > 1:
                    per_gpu = 1 / (_port(level, machines, inside, room, wires) * prod(units[:level]))
                    if level > own:
                        host = 1 / (inside * best_slots(machines, inside, room, wires))
                        per_gpu = min(per_gpu, 1 / (host * inside))
                    dims.append(_dimension(wires, level, joined, per_gpu))
            # Two dimensions are as fast as their phases; with more, a faster phase may come at a worse moment.
            fabric = Fabric if alike or len(dims) < 3 else SlowestQueue
            step = data_parallel_step_ns(layers, fabric(dims, _system(dims)), self.bucket_bytes)
            yield step.total, spread_of(units, room, 0)
        behind = fewest_behind(gpus, room)
        if behind is not None:
            per_gpu = 1 / (_port(top, 1, 1, room, wires) * behind)
            if top > own:
                per_gpu = min(per_gpu, best_slots(1, 1, room, wires))
            dims = [_dimension(wires, top, gpus, per_gpu * (1 + ROUNDING))]
            step = data_parallel_step_ns(layers, Fabric(dims, _system(dims)), self.bucket_bytes)
            yield from ((step.total, spread) for spread in uneven_spreads(gpus, room))


def _port(level: int, machines: int, gpus: int, room: Room, wires: Wires) -> float:
    """Seconds per byte of a level's port, at least, for a gang of so many machines with so many GPUs each."""
    if level > wires.machine_level:
        return wires.slowness[level]
    ports = [(1 / kind.links[level].bandwidth, kind.gpus, count) for kind, count in room.kinds if kind.gpus >= gpus]
    return slowest_port(0, machines, tuple(ports))


def _dimension(wires: Wires, level: int, units: int, per_gpu: float) -> Dimension:
    link = wires.levels[level]
    return Dimension(link.kind.value, units, per_gpu, link.latency * 1e9)


def _system(dims: Sequence[Dimension]) -> System:
    connected = LinkKind.FULLY_CONNECTED.value
    return System(tuple("direct" if dim.kind == connected else "ring" for dim in dims))


def _nothing() -> Fabric:
    return Fabric([Dimension("switch", 1, 1.0, 0.0)], System(("ring",)))


class AstraSimulator(Astra):
    """The same put to an installed ASTRA-sim (docs/network/astra.md), which computes in whole microseconds."""

    by_shape = False  # it is, but every shape costs a run of the program: nobody should look at them all

    def __init__(
        self, topology: Topology, bucket_bytes: int | None = BUCKET_BYTES, cache: Path | None = None
    ) -> None:
        from dally.network.astra.bridge import AstraSim, find_binary

        super().__init__(topology, bucket_bytes)
        self._runner = AstraSim(find_binary("unaware"), cache=cache)

    def _answer(self, layers: tuple[Layer, ...], fabric: Fabric) -> StepNs:
        return self._runner.step_ns(layers, fabric, self.bucket_bytes)

    def floors(self, model: str | None, gpu_type: str, gpus: int, room: Room) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Computing alone, less the microsecond that rounding may take: nothing is proved of a program we only call."""
        yield max(0, compute_ns(self.layers(model, gpu_type)) - (1000 if gpus > 1 else 0)), (1,) * (room.top + 1)


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

    def floors(self, model: str | None, gpu_type: str, gpus: int, room: Room) -> Iterator[tuple[int, tuple[int, ...]]]:
        table, silent = self.table(model, gpu_type)
        own, top = self._known.shapes.wires.machine_level, room.top

        def step(parts: Parts) -> int:
            return artist_step_ns(table, [self.dimension(*part) for part in parts], silent).total

        if top > own:
            for units in even_units(gpus, room, own, own):
                racks = prod(units[2:])
                yield step(_across(units[0], units[1], racks)), spread_of(units, room, own)
            if gpus > 2:
                flat = step([("rack" if top == own + 1 else "cluster", gpus)])
                yield from ((flat, spread) for spread in uneven_spreads(gpus, room))
        elif own:
            for units in even_units(gpus, room, own, 0):
                yield step(_islands(gpus, *units)), spread_of(units, room, 0)
            if gpus > 2:
                yield from ((step([("machine", gpus)]), spread) for spread in uneven_spreads(gpus, room))
        else:
            yield step(_machine(gpus)), (1,)

    def dimension(self, level: str, size: int) -> ArtistDimension:
        """One dimension of the authors' fabric."""
        return original_dimension(level, size)

    def dimensions(self, shape: Shape) -> list[ArtistDimension]:
        return [self.dimension(*part) for part in self._parts(shape)]

    def _parts(self, shape: Shape) -> Parts:
        wires = self._known.shapes.wires
        own, top = wires.machine_level, shape.top
        units = dict(units_of(shape, wires))
        group = Group(shape, wires)
        if top > own:
            racks = len(group.spans[own + 1]) if top > own + 1 else 1
            # how the GPUs of one machine lie to each other does not matter to the authors
            uneven = any(len({stop - start for start, stop in group.spans[level]}) > 1 for level in range(own, top))
            if uneven:
                return [("rack" if racks == 1 else "cluster", group.n)]
            machines = len(group.spans[own]) // racks
            return _across(group.n // machines // racks, machines, racks)
        return _islands(group.n, units.get(0, 1), units.get(1, 1)) if own else _machine(group.n)


def _across(gpus: int, machines: int, racks: int) -> Parts:
    return [("machine", gpus), ("rack", machines), ("cluster", racks)]


def _islands(gpus: int, inside: int, islands: int) -> Parts:
    if islands == gpus:  # one GPU in each, or uneven
        return [("machine", gpus)]
    return [("mesh", inside), ("machine", islands)]


def _machine(gpus: int) -> Parts:
    """A machine without islands stands for theirs: up to four GPUs are a mesh, more are two meshes on a ring."""
    if gpus <= 4:
        return [("mesh", gpus)]
    return [("machine", gpus)] if gpus % 2 else [("mesh", gpus // 2), ("machine", 2)]


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
