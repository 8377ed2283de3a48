"""The network model for scheduling: NCCL's choice of collective, overlap with backward, contention between jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.topology import Topology
from dally.network.contention import Links
from dally.network.floor import search
from dally.network.model import Floor, Step
from dally.network.nccl import candidates
from dally.network.room import Census, Room
from dally.network.shape import Shape, Shapes, Wires, kinds_in
from dally.network.spread import spread_over
from dally.network.step import DEFAULT_OPTIONS, StepOptions, StepProfile, profile, seconds_alone, step_alone

if TYPE_CHECKING:
    from dally.catalog import Gpu, Model

# What stands in for a job without a model (traces get theirs from network.mix before) and for a GPU nobody knows.
DEFAULT_MODEL = "resnet50"
DEFAULT_GPU = "A100-40GB"
Spread = tuple[int, ...]  # domains of each level a gang touches
_MOST_REMEMBERED: Final = 200_000  # placements; shapes are far fewer and all kept


class _Remembered:
    """Steps on one kind of cluster, by model and shape, with what they were worked out from and what was assumed; and
    the shortest ones, by model, GPUs of the gang and the room there is."""

    __slots__ = ("floors", "profiles", "steps")

    def __init__(self) -> None:
        self.steps: dict[tuple[str | None, Shape], tuple[Model, list[Gpu], Step, Sequence[str]]] = {}
        self.profiles: dict[tuple[str | None, Shape], tuple[Model, list[Gpu], StepProfile]] = {}
        self.floors: dict[tuple[str | None, int, tuple[Room, ...]], tuple[Model, Gpu, float, list[Spread]]] = {}


_CLUSTERS: Final = 4  # for which steps are remembered from run to run
_remembered: dict[tuple[Wires, StepOptions], _Remembered] = {}


def _steps_on(wires: Wires, options: StepOptions) -> _Remembered:
    """A step follows from the model, the GPUs and the links: another run on the same cluster need not work it out."""
    found = _remembered.get((wires, options))
    if found is None:
        while len(_remembered) >= _CLUSTERS:
            del _remembered[next(iter(_remembered))]
        found = _remembered[wires, options] = _Remembered()
    return found


class Analytic:
    """Implements the seam of `network.model`; `contention=False` gives every job its links to itself."""

    by_shape = True

    def __init__(
        self, topology: Topology, options: StepOptions = DEFAULT_OPTIONS, *, contention: bool = True
    ) -> None:
        candidates("all-reduce", options.algorithm)  # refuse a wrong name before anything runs
        self.topology, self.options, self.contention = topology, options, contention
        self.shapes = Shapes(topology)
        self._remembered = _steps_on(self.shapes.wires, options)
        self.links = Links(topology)
        self.census = Census(topology)
        self._steps: dict[tuple[str | None, Placement], Step] = {}
        self._shaped_steps: dict[tuple[str | None, Shape], Step] = {}
        self._placed: dict[tuple[str | None, Placement], StepProfile] = {}
        self._shaped: dict[tuple[str | None, Shape], StepProfile] = {}
        self._alone: dict[str | None, dict[int, StepProfile]] = {}  # by model and `Shapes.alone`
        self._steps_alone: dict[str | None, dict[int, Step]] = {}
        self._models: dict[str | None, tuple[Model, int | None]] = {}
        self._gpu_types: dict[str, Gpu] = {}
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        """What was assumed about jobs and GPUs so far, each once."""
        return list(self._notes)

    def step_time(self, job: Job, placement: Placement, now: float) -> Step:
        model = job.model
        alone = self.shapes.alone(placement)
        if alone < 0:
            found = self._steps.get((model, placement))
            if found is None:
                found = self._shaped_step(model, self.shapes.of(placement))
                if len(self._steps) >= _MOST_REMEMBERED:
                    self._steps.clear()
                self._steps[model, placement] = found
            return found
        known = self._steps_alone.get(model)
        if known is None:
            known = self._steps_alone[model] = {}
        found = known.get(alone)
        if found is None:
            found = known[alone] = self._shaped_step(model, self.shapes.of(placement))
        return found

    def _shaped_step(self, name: str | None, shape: Shape) -> Step:
        """Most shapes are only asked for their step; a profile, for any slowness of the links, is more work."""
        key = (name, shape)
        found = self._shaped_steps.get(key)
        if found is None and (whole := self._shaped.get(key)) is not None:
            found = self._shaped_steps[key] = whole.step
        if found is None:
            (model, batch), gpus = self.model_of(name), self._gpus(shape)
            kept = self._remembered.steps.get(key)
            if kept is None or kept[0] is not model or kept[1] != gpus:  # objects: the catalog may be another one
                steps = [step_alone(model, gpu, shape, self.shapes.wires, self.options, batch) for gpu in gpus]
                best, notes = max(steps, key=lambda step: step[0].seconds)
                kept = self._remembered.steps[key] = (model, gpus, best, notes)
            found = self._shaped_steps[key] = kept[2]
            self._note(model, kept[3])
        return found

    def moved(
        self, left: Sequence[str], entered: Sequence[tuple[Job, Placement]], now: float
    ) -> Mapping[str, Step]:
        if not self.contention:
            return {job.id: self.step_time(job, placement, now) for job, placement in entered}
        return self.links.change(
            left, [(job.id, placement, self.profile(job.model, placement)) for job, placement in entered]
        )

    def fastest_step(self, job: Job, gpus: int) -> Floor | None:
        """Neighbours only slow a job down (docs/network/contention.md), so a step alone is looked for."""
        floor = float("inf")
        promising: list[Placement | None] = []
        for kind in self.census.types(job.gpu_type):
            seconds, spreads = self._searched(job.model, kind, gpus)
            floor = min(floor, seconds)
            promising += [spread_over(self.topology, kind, gpus, spread) for spread in spreads]
        return Floor(floor, tuple(placement for placement in promising if placement is not None))

    def _searched(self, name: str | None, kind: str, gpus: int) -> tuple[float, list[Spread]]:
        """The shortest step on one GPU type: it follows from the room there is, so another run need not search."""
        (model, batch), gpu, rooms = self.model_of(name), self.gpu_of(kind), self.census.rooms(kind, gpus)
        key = (name, gpus, tuple(rooms))
        kept = self._remembered.floors.get(key)
        if kept is None or kept[0] is not model or kept[1] is not gpu:  # objects: the catalog may be another one
            seconds, spreads = search(rooms, gpus, self.shapes.wires, self.options.algorithm,
                                      partial(seconds_alone, model, gpu, gpus, batch, self.options))  # fmt: skip
            kept = self._remembered.floors[key] = (model, gpu, seconds, spreads)
        return kept[2], kept[3]

    def profile(self, model: str | None, placement: Placement) -> StepProfile:
        """The step of a model on these GPUs, for any slowness of the links."""
        alone = self.shapes.alone(placement)
        if alone < 0:
            found = self._placed.get((model, placement))
            return self._placed_profile(model, placement) if found is None else found
        known = self._alone.get(model)
        if known is None:
            known = self._alone[model] = {}
        found = known.get(alone)
        if found is None:
            found = known[alone] = self.shaped(model, self.shapes.of(placement))
        return found

    def _placed_profile(self, model: str | None, placement: Placement) -> StepProfile:
        found = self.shaped(model, self.shapes.of(placement))
        if len(self._placed) >= _MOST_REMEMBERED:
            self._placed.clear()
        self._placed[model, placement] = found
        return found

    def shaped(self, name: str | None, shape: Shape) -> StepProfile:
        """The same by shape: machine identity does not matter."""
        key = (name, shape)
        found = self._shaped.get(key)
        if found is None:
            (model, batch), gpus = self.model_of(name), self._gpus(shape)
            kept = self._remembered.profiles.get(key)
            if kept is None or kept[0] is not model or kept[1] != gpus:  # objects
                wires = self.shapes.wires
                profiles = [profile(model, gpu, shape, wires, self.options, batch) for gpu in gpus]
                kept = self._remembered.profiles[key] = (model, gpus, max(profiles, key=lambda p: p.alone))
            found = self._shaped[key] = kept[2]
            self._note(model, found.notes)
        return found

    def _gpus(self, shape: Shape) -> list[Gpu]:
        """A gang is one GPU type; should one ever be mixed, all wait for the slowest."""
        wires = self.shapes.wires
        kinds = sorted(kinds_in(shape, wires.machine_level))
        return list(dict.fromkeys(self.gpu_of(wires.kinds[kind].gpu_type) for kind in kinds))

    def _note(self, model: Model, notes: Sequence[str]) -> None:
        for note in notes:
            self._notes[f"{model.name}: {note}"] = None

    def model_of(self, name: str | None) -> tuple[Model, int | None]:
        """A model of the catalog and the batch in its name, if it has one."""
        found = self._models.get(name)
        if found is None:
            found = self._models[name] = self._looked_up(name)
        return found

    def _looked_up(self, name: str | None) -> tuple[Model, int | None]:
        from dally.catalog import batch_in_name, find_model

        if name is None:
            self._notes[f"jobs without a model are timed as {DEFAULT_MODEL}"] = None
            return find_model(DEFAULT_MODEL), None
        try:
            return find_model(name), batch_in_name(name)
        except UserError:
            self._notes[f"model {name!r} is not in the catalog; timed as {DEFAULT_MODEL}"] = None
            return find_model(DEFAULT_MODEL), None

    def gpu_of(self, name: str) -> Gpu:
        found = self._gpu_types.get(name)
        if found is None:
            found = self._gpu_types[name] = self._gpu_looked_up(name)
        return found

    def _gpu_looked_up(self, name: str) -> Gpu:
        from dally.catalog import find_gpu, gpus

        if gpus().resolve(name) is None:
            self._notes[f"GPU type {name!r} is not in the catalog; timed as {DEFAULT_GPU}"] = None
            return find_gpu(DEFAULT_GPU)
        return find_gpu(name)
