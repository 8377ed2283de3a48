"""Groups of machines in a cluster description: a preset, a GPU type, and whatever departs from them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from dally.catalog.clusters.insides import Inside, catalog_gpu, inside_of, island_sizes, shape_inside, usual_machine
from dally.catalog.entries import Entry, bandwidth, seconds
from dally.catalog.machine import Fabric
from dally.catalog.store import find_machine
from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Level, LinkKind

_KINDS = [kind.value for kind in LinkKind]


@dataclass(frozen=True, slots=True)
class Group:
    """What a description says about machines; None where it says nothing."""

    preset: str | None = None
    gpus: int | None = None
    gpu: str | None = None
    islands: tuple[int, ...] | None = None  # one number: islands of that size; several: each island
    links: tuple[Level, ...] | None = None  # from the GPUs outwards, bandwidth per GPU
    nics: tuple[int, float] | None = None

    def overridden_by(self, other: Group) -> Group:
        """Field by field; a preset or a GPU type of its own replaces what belonged to the other's."""
        base = Group() if other.preset is not None or (other.gpu is not None and other.gpu != self.gpu) else self
        changed: dict[str, Any] = {f.name: getattr(other, f.name) for f in fields(other)}
        return replace(base, **{name: value for name, value in changed.items() if value is not None})


def read_group(entry: Entry) -> Group:
    links = tuple(_link(link) for link in entry.entries("links")) if "links" in entry else None
    if links is not None and len(links) not in (1, 2):
        raise entry.fail("must be one link inside the machine, or two: in the island, and between islands", "links")
    nics = entry.entry("nics")
    ports = None
    if nics is not None:
        ports = nics.finish((nics.integer("count", low=1), nics.quantity("bandwidth", bandwidth)))
        if not ports[1] > 0:
            raise nics.fail("must be more than zero", "bandwidth")
    return Group(
        preset=entry.text("preset") if "preset" in entry else entry.value("preset", None),
        gpus=entry.integer("gpus", low=1) if "gpus" in entry else entry.value("gpus", None),
        gpu=entry.text("gpu") if "gpu" in entry else entry.value("gpu", None),
        islands=_islands(entry),
        links=links,
        nics=ports,
    )


def _islands(entry: Entry) -> tuple[int, ...] | None:
    value = entry.value("islands", None)
    if value is None:
        return None
    sizes = value if isinstance(value, list) else [value]
    if not sizes or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        raise entry.fail(f"must be GPUs per island, such as 4 or [4, 2], not {value!r}", "islands")
    return tuple(sizes)


def _link(entry: Entry) -> Level:
    kind = LinkKind(entry.choice("kind", _KINDS, "switch"))
    rate = entry.quantity("bandwidth", bandwidth)
    if not rate > 0:
        raise entry.fail("must be more than zero", "bandwidth")
    return entry.finish(Level("machine", kind, rate, entry.quantity("latency", seconds, 0.0)))


def group_of(entry: Entry, group: Group, fabric: Fabric) -> Inside:
    """The machine that a group describes; errors point at the entry that describes it."""
    try:
        inside = _base(group, fabric)
    except UserError as error:
        raise entry.fail(str(error)) from None
    if group.nics is not None:
        inside = replace(inside, nics=group.nics[0], nic_bandwidth=group.nics[1])
    if group.links is not None:
        inside = replace(inside, links=group.links, islands=())
        if len(group.links) == 2 and group.islands is None:
            raise entry.fail("two links need islands: how many GPUs the inner one joins")
    if group.islands is None:
        return inside
    if len(inside.links) == 1:
        raise entry.fail("islands need two links: one in the island, one between islands")
    sizes = group.islands if len(group.islands) > 1 else island_sizes(inside.gpus, group.islands[0])
    if sum(sizes) != inside.gpus:
        raise entry.fail(f"islands of {' + '.join(map(str, sizes))} are not the {inside.gpus} GPUs of a machine")
    return _with_islands(inside, sizes, given=group.links)


def _base(group: Group, fabric: Fabric) -> Inside:
    kind = None if group.gpu is None else catalog_gpu(group.gpu)
    if group.preset is not None:
        return inside_of(find_machine(group.preset), group.gpus, kind)
    if kind is not None:
        return inside_of(usual_machine(kind), group.gpus, kind)
    if group.gpus is None:
        raise UserError("says neither preset nor gpu nor gpus of its machines")
    return shape_inside(fabric.name, group.gpus, None)


def _with_islands(inside: Inside, sizes: tuple[int, ...], given: tuple[Level, ...] | None) -> Inside:
    """The port of an island is that of its GPUs together; given links state bandwidth per GPU."""
    inner, outer = inside.links
    per_gpu = outer.bandwidth if given is not None else outer.bandwidth / max(inside.islands)
    outer = replace(outer, name="machine", bandwidth=per_gpu * max(sizes))
    return replace(inside, islands=sizes, links=(replace(inner, name="island"), outer))
