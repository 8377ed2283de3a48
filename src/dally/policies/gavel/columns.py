"""Ways to run a gang: the columns of an allocation, one per GPU type, or two where distance counts (section 3.1)."""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.core.policy import View
from dally.core.records import dataclass
from dally.core.topology import Topology

Column = tuple[str, bool]  # GPU type; whether the gang is near each other there


@dataclass(frozen=True, slots=True)
class Columns:
    """Ways to run a gang: one per GPU type, and with placement sensitivity a second one, spread."""

    all: tuple[Column, ...]
    kinds: tuple[str, ...]
    kind_of: tuple[int, ...]

    @classmethod
    def of(cls, topology: Topology, placement_sensitive: bool) -> Columns:
        kinds = topology.gpu_types
        ways = [(kind, near) for kind in kinds for near in ((True, False) if placement_sensitive else (True,))]
        return cls(tuple(ways), kinds, tuple(kinds.index(kind) for kind, _ in ways))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kind if near else f"{kind} spread" for kind, near in self.all)


def gpu_type_of(view: View, job: ActiveJob) -> str | None:
    """Of the GPUs the job holds; None where it holds none, or none that are still there."""
    held = job.placement
    return view.topology.machines[held.slices[0][0]].gpu_type if held is not None and held.slices else None
