"""What a step is made of, for people: placements as they are written, phases, buckets, bytes and sensitivity."""

from __future__ import annotations

import re

from dally.core.errors import UserError
from dally.core.placement import Placement
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.core.units import show_bytes, show_time
from dally.network.analytic import Analytic
from dally.network.schedule import Moment
from dally.network.sensitivity import Sensitivity, sensitivity, shape_text
from dally.network.step import StepProfile, profile

_COUNTS = re.compile(r"\s*\d+(\s*[+|]\s*\d+)*\s*")


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step with its explanation."""

    model: str
    gpu: str
    gpus: int
    placement: str
    profile: StepProfile
    timeline: tuple[Moment, ...]  # compute and network, when nobody disturbs
    levels: tuple[str, ...]
    sensitivity: tuple[Sensitivity, ...]
    notes: tuple[str, ...]

    @property
    def sentence(self) -> str:
        p = self.profile
        share = 100 * p.exposed / p.alone if p.alone > 0 else 0.0
        return (
            f"{self.model} on {self.gpus} × {self.gpu} ({self.placement}, {p.layout.text()}): a step takes "
            f"{show_time(p.alone)}, {show_time(p.compute)} of it compute; {show_time(p.exposed)} ({share:.1f} %) "
            f"is communication that nothing hides ({p.algorithm})"
        )

    def phases(self) -> list[tuple[str, str, str, str, str, str]]:
        """Rows of a table: lane, what, start, end, bytes, algorithm."""
        return [
            (m.lane, m.what, f"{m.start * 1e3:,.2f} ms", f"{m.end * 1e3:,.2f} ms",
             show_bytes(m.size) if m.size else "", m.algorithm)
            for m in self.timeline
        ]  # fmt: skip

    def bytes_rows(self) -> list[tuple[str, str, str]]:
        """Rows of a table: level, bytes per step through its busiest port, bytes sent by all that meet there."""
        p = self.profile
        return [
            (name, show_bytes(p.bytes_per_level[i]), show_bytes(p.traffic_per_level[i]))
            for i, name in enumerate(self.levels)
        ]

    def sensitivity_rows(self) -> list[tuple[str, str, str, str, str]]:
        """Rows of a table: level, GPUs per machine, step, exposed share, step over step on one machine."""
        return [
            (
                s.level + (" (imagined)" if s.imagined else ""), s.shape, show_time(s.profile.alone),
                f"{100 * s.profile.exposed / s.profile.alone:.1f} %", f"{s.ratio:.3f}",
            )
            for s in self.sensitivity
        ]  # fmt: skip


def explain_step(network: Analytic, model: str, placement: Placement, *, levels: bool = True) -> StepReport:
    """The anatomy of one step; with `levels`, how it would fare at each level of the cluster."""
    from dally.catalog import batch_in_name, find_model

    found = find_model(model)  # a person who names a model wants that one or an error
    topology = network.topology
    kind = topology.machines[placement.slices[0][0]].gpu_type
    gpu = network.gpu_of(kind)
    shape = network.shapes.of(placement)
    timeline: list[Moment] = []
    step = profile(found, gpu, shape, network.shapes.wires, network.options, batch_in_name(model), timeline)
    rows = sensitivity(network, model, placement.gpus, kind) if levels else []
    return StepReport(
        found.name, gpu.name, placement.gpus, shape_text(shape, topology.machine_level), step, tuple(timeline),
        tuple(level.name for level in topology.levels), tuple(rows),
        tuple(dict.fromkeys([*(f"{found.name}: {note}" for note in step.notes), *network.notes])),
    )  # fmt: skip


def parse_placement(text: str | None, topology: Topology, gpus: int | None) -> Placement:
    """`4+4`: GPUs on machines of one rack; `4+4|8`: `|` begins another rack; `rack0/m1:4,rack1/m0:4`: by name.

    Machines are taken in the order of the cluster, racks likewise: the first rack with enough machines that
    are large enough. Nothing given: the first domain, as small as possible, that has room for the gang.
    """
    if text is None:
        if gpus is None:
            raise UserError("give the number of GPUs or a placement")
        found = _closest(topology, gpus)
    elif _COUNTS.fullmatch(text):
        found = _by_counts(text, topology)
    else:
        found = _by_name(text, topology)
    if gpus is not None and found.gpus != gpus:
        raise UserError(f"placement {text!r} has {found.gpus} GPUs, not {gpus}")
    return found


def _closest(topology: Topology, gpus: int) -> Placement:
    if gpus < 1:
        raise UserError(f"a job needs at least one GPU, not {gpus}")
    for level in range(topology.machine_level, len(topology.levels)):
        for domain in topology.domains[level]:
            if domain.gpus >= gpus:
                left, slices = gpus, []
                for index in domain.machines:
                    count = min(left, topology.machines[index].gpus)
                    left -= count
                    if count:
                        slices.append((index, (1 << count) - 1))
                return Placement.of(slices)
    raise UserError(f"cluster {topology.name!r} has {topology.gpus} GPUs, not {gpus}")


def _by_counts(text: str, topology: Topology) -> Placement:
    racks = [[int(count) for count in rack.split("+")] for rack in text.replace(" ", "").split("|")]
    if any(count < 1 for rack in racks for count in rack):
        raise UserError(f"placement {text!r}: every machine in it must have at least one GPU")
    rack_level = min(topology.machine_level + 1, len(topology.levels) - 1)
    slices: list[tuple[int, int]] = []
    free = list(topology.domains[rack_level])
    for counts in racks:
        for domain in free:
            taken: list[int] = []
            for count in counts:
                fits = (m for m in domain.machines if m not in taken and topology.machines[m].gpus >= count)
                machine = next(fits, None)
                if machine is None:
                    break
                taken.append(machine)
            if len(taken) == len(counts):
                slices += [(m, (1 << count) - 1) for m, count in zip(taken, counts, strict=True)]
                free.remove(domain)
                break
        else:
            name = topology.levels[rack_level].name
            raise UserError(
                f"placement {text!r}: no {name} left in cluster {topology.name!r} has machines for "
                + "+".join(map(str, counts))
            )
    return Placement.of(slices)


def _by_name(text: str, topology: Topology) -> Placement:
    slices: dict[int, int] = {}
    for part in text.split(","):
        name, colon, count = part.strip().rpartition(":")
        if not colon or not count.strip().isdecimal():
            raise UserError(f"placement {text!r}: {part.strip()!r} is neither counts such as 4+4 nor MACHINE:GPUS")
        machine = topology.machine_by_name.get(name.strip())
        if machine is None:
            raise UserError(f"placement {text!r}: cluster {topology.name!r} has no machine {name.strip()!r}")
        if machine in slices:
            raise UserError(f"placement {text!r}: machine {name.strip()!r} is there twice")
        if not 1 <= int(count) <= topology.machines[machine].gpus:
            raise UserError(
                f"placement {text!r}: machine {name.strip()!r} has {topology.machines[machine].gpus} GPUs, "
                f"not {count.strip()}"
            )
        slices[machine] = (1 << int(count)) - 1
    return Placement.of(slices.items())
