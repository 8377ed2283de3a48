"""What a step of a job should take on the GPUs it has, by its profile or model, beside what the job says it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dally.core.errors import UserError
from dally.core.placement import Placement
from dally.core.records import dataclass
from dally.core.topology import Topology

if TYPE_CHECKING:
    from dally.network.model import Step
    from dally.profiler.document import Profile

_MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds of a step: computing, exchange that nothing hides, and waiting for prepared batches."""

    predicted: float
    compute: float
    exchange: float
    data: float


_PARTS = ("predicted", "compute", "exchange", "data")


class Expectations:
    """Of jobs on one cluster; what was asked before is remembered, for as long as a profile stays as it is."""

    def __init__(self, topology: Topology) -> None:
        from dally.network.shape import Shapes

        self.topology, self._shapes = topology, Shapes(topology)
        self._found: dict[tuple[str, int, Placement], Expected | None] = {}

    def step(self, named: str | None, placed: dict[str, list[int]] | None, measured: float | None
             ) -> dict[str, Any] | None:  # fmt: skip
        """Predicted and measured side by side, as people are shown it; None where there is neither."""
        found = None if named is None or not placed else self.expect(named, placed)
        if found is None:
            return None if measured is None else {**dict.fromkeys(_PARTS), "measured": measured, "error": None}
        error = None if measured is None else found.predicted / measured - 1
        return {**asdict(found), "measured": measured, "error": error}

    def expect(self, named: str, placed: dict[str, list[int]]) -> Expected | None:
        """On these GPUs of machines by name, without neighbours. None where the model, a machine or its GPU is not
        known (any more): a job that runs is not held up by a question."""
        index = self.topology.machine_by_name
        if any(name not in index for name in placed):
            return None
        placement = Placement.of((index[name], sum(1 << gpu for gpu in gpus)) for name, gpus in placed.items())
        try:
            stamp = Path(named).stat().st_mtime_ns if named.endswith((".yaml", ".yml")) else 0
        except OSError:
            return None
        key = (named, stamp, placement)
        if key not in self._found:
            if len(self._found) >= _MOST_REMEMBERED:
                self._found.clear()
            try:
                self._found[key] = self._expect(named, placement)
            except UserError:
                self._found[key] = None
        return self._found[key]

    def _expect(self, named: str, placement: Placement) -> Expected:
        from dally.catalog import find_gpu
        from dally.network.step import StepOptions, step_alone
        from dally.profiler.predict import beside, subject_of

        subject = subject_of(named)
        model, profile = subject.model, subject.profile
        gpu = find_gpu(self.topology.machines[placement.slices[0][0]].gpu_type)
        # Gloo's all-reduce is a ring; NCCL chooses for itself.
        options = StepOptions("ring" if profile is not None and profile.device.backend == "gloo" else "auto")

        def step(ranks: int, on: Placement) -> Step:
            here = profile is not None and model.measured_on == gpu.name
            kind = beside(model, profile, ranks) if here and profile is not None else model
            return step_alone(kind, gpu, self._shapes.of(on), self._shapes.wires, options, model.batch_size)[0]

        found = step(max(mask.bit_count() for _, mask in placement.slices), placement)
        exchange = found.seconds - found.compute
        if profile is not None and len(placement.slices) == 1 and gpu.name == "CPU" and exchange > 0:
            exchange *= self._taken_from_cores(profile, placement.slices[0][0], step)
        data = _waits(profile)
        return Expected(found.compute + exchange + data, found.compute, exchange, data)

    def _taken_from_cores(self, profile: Profile, machine: int, step: Callable[[int, Placement], Step]) -> float:
        """How many times longer than its links say the exchange inside a machine was when it was profiled: on CPUs it
        is done by the cores that compute, so it hides little and ranks wait for each other."""
        together = profile.runs.get("all")
        room = self.topology.machines[machine].gpus
        if together is None or not together.silent or not 1 < together.processes <= room:
            return 1.0
        whole = step(together.processes, Placement.of([(machine, (1 << together.processes) - 1)]))
        said = whole.seconds - whole.compute
        return max(0.0, together.step - together.silent) / said if said > 0 else 1.0


def _waits(profile: Profile | None) -> float:
    """Blocked on the DataLoader, once the data are cached."""
    cached = profile.runs.get("cached") if profile is not None else None
    return cached.wait if cached is not None else 0.0
