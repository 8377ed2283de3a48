"""What is inside a machine of a cluster: GPUs, islands, links and NICs, from a preset or departing from it."""

from __future__ import annotations

from dataclasses import replace

from dally.catalog.machine import Machine
from dally.catalog.store import find_gpu, find_machine, gpus, machines
from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Level

DEFAULT_MACHINE = "dgx-a100"
# The machine meant where only a GPU type is named. Several presets have the same GPU; these are the usual ones.
_USUAL = {
    "K80": "p2.8xlarge",
    "P100": "dgx-1-p100",
    "V100": "dgx-1",
    "V100-32GB": "p3dn.24xlarge",
    "T4": "pcie3-8",
    "A10": "pcie4-8",
    "A100-40GB": "dgx-a100",
    "A100-80GB": "dgx-a100-80gb",
    "H100": "dgx-h100",
    "H200": "dgx-h200",
    "B200": "dgx-b200",
    "L40S": "l40s-8",
    "A10G": "g5.48xlarge",
    "L4": "g6.48xlarge",
}
_OF_FABRIC = {"dally": "dally-8", "dally-congested": "dally-8"}  # fabrics that were published with their machine
_UNKNOWN = "pcie4-8"  # links assumed in a machine whose GPUs the catalog does not know


@dataclass(frozen=True, slots=True)
class Inside:
    """One machine as it is wired: `links` from the GPUs outwards, each with the port of the unit it joins."""

    gpus: int
    gpu_type: str
    links: tuple[Level, ...]
    islands: tuple[int, ...]  # GPUs per island; empty where the machine has none
    nics: int
    nic_bandwidth: float


def inside_of(preset: Machine, gpus: int | None = None, gpu_type: str | None = None) -> Inside:
    """A preset as it is, or with another number of GPUs: islands as far as they go, NICs in proportion."""
    count = preset.gpus if gpus is None else gpus
    if count < 1:
        raise UserError(f"a machine needs at least one GPU, not {count}")
    if len(preset.levels) > 2:
        raise UserError(
            f"machine {preset.name!r} has {len(preset.levels)} levels inside; at most two are supported"
        )
    first = preset.levels[0]
    kind = gpu_type if gpu_type is not None else preset.gpu
    nics = max(1, round(preset.nics * count / preset.gpus)) if preset.nics else 0
    if len(preset.levels) == 1 or count <= first.units:  # a single island is the machine
        links: tuple[Level, ...] = (replace(first.link, name="machine"),)
        return Inside(count, kind, links, (), nics, preset.nic_bandwidth)
    second = preset.levels[1].link
    # Presets state bandwidth per GPU; the port of an island is that of its GPUs together.
    port = second.bandwidth * min(first.units, count)
    links = (replace(first.link, name="island"), replace(second, name="machine", bandwidth=port))
    return Inside(count, kind, links, island_sizes(count, first.units), nics, preset.nic_bandwidth)


def island_sizes(gpus: int, size: int) -> tuple[int, ...]:
    """Islands of `size` as far as they go, the rest in a smaller one."""
    whole, rest = divmod(gpus, size)
    return (size,) * whole + ((rest,) if rest else ())


def usual_machine(gpu_type: str) -> Machine:
    """The machine meant by a GPU type alone; for types the catalog does not know, one with PCIe links."""
    name = gpus().resolve(gpu_type)
    if name in _USUAL:
        return find_machine(_USUAL[name])
    for machine in machines().values():  # a type that a user's own catalog adds
        if name is not None and gpus().resolve(machine.gpu) == name:
            return machine
    return find_machine(_UNKNOWN)


def catalog_gpu(text: str) -> str:
    """The catalog's name of a GPU type; an unknown one is an error that offers near matches."""
    name = gpus().resolve(text)
    return find_gpu(text).name if name is None else name


def shape_inside(fabric: str, gpus: int, gpu_type: str | None) -> Inside:
    """The machine meant by a shape alone: Dally's own on Dally's fabrics, else the usual one of the GPU type."""
    kind = None if gpu_type is None else catalog_gpu(gpu_type)
    if fabric in _OF_FABRIC:
        return inside_of(find_machine(_OF_FABRIC[fabric]), gpus, kind)
    preset = find_machine(DEFAULT_MACHINE) if kind is None else usual_machine(kind)
    return inside_of(preset, gpus, kind)
