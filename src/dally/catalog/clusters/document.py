"""The project's own description of a cluster, as a YAML file of its own or as a preset in the catalog."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from dally.catalog.builders import build_fabric
from dally.catalog.clusters import shorthand
from dally.catalog.clusters.assembly import Planned, assemble
from dally.catalog.clusters.groups import Group, group_of, read_group
from dally.catalog.clusters.hostlist import expand
from dally.catalog.clusters.insides import catalog_gpu
from dally.catalog.entries import Entry
from dally.catalog.machine import Fabric
from dally.catalog.store import find_fabric
from dally.core.errors import UserError
from dally.core.nested import MOST, written_out
from dally.core.topology import Path as DomainPath
from dally.core.topology import Topology

VERSION = 1
_MARK = "dally-cluster"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_COUNTS = ("zones", "blocks", "racks", "machines")
_WAYS = ("shape", "machines", "pools", "tree")


def compose(path: Path, text: str) -> Any:
    """The YAML text as nodes, which know their lines."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise UserError(f"{path}{where}: {getattr(error, 'problem', None) or 'it is not YAML'}") from None
    if root is None:
        raise UserError(f"{path} is empty")
    if MOST < written_out(root) < math.inf:  # where it refers to itself, the field says so
        raise UserError(f"{path}: its parts hold each other, and stand for more than {MOST:,} values")
    return root


def is_list(root: Any) -> bool:
    return isinstance(root, yaml.SequenceNode)


def entry_of(path: Path, name: str, node: Any) -> Entry:
    entry = Entry(path, 1, "the file", {name: node}).entry(name)
    assert entry is not None  # the node is there
    entry.name = name
    return entry


def build_file(entry: Entry, stem: str, fabric: str | None, gpu_type: str | None) -> Topology:
    """A file of its own: says that it is one, in which version, and may name the cluster."""
    if _MARK not in entry:
        raise UserError(f"{entry.path}, line {entry.line}: a cluster file begins with `{_MARK}: {VERSION}`")
    version = entry.value(_MARK)
    if version != VERSION or isinstance(version, bool):
        raise entry.fail(f"this is version {version!r}; version {VERSION} can be read", _MARK)
    return build_cluster(entry, entry.text("name", stem), fabric, gpu_type)


def build_cluster(entry: Entry, name: str, fabric: str | None, gpu_type: str | None) -> Topology:
    """`fabric` replaces the one in the entry; `gpu_type` the GPUs, where the entry has a single type."""
    for key in ("title", "source"):
        entry.text(key, "")
    entry.texts("aliases")
    own = _fabric(entry)
    links = own if fabric is None else find_fabric(fabric)
    common = _common_group(entry)
    given = [way for way in _WAYS if way in entry]
    if len(given) != 1:
        raise entry.fail("needs exactly one of shape, machines (with racks, …), pools and tree")
    if given[0] == "pools":
        text = entry.text("pools")
        if "machine" in entry:
            raise entry.fail("pools take their machines from their GPU types", "machine")
        try:
            planned = shorthand.plan_pools(text)
        except UserError as error:
            raise entry.fail(str(error), "pools") from None
    elif given[0] == "tree":
        planned = _tree(entry, common, own)
    else:
        planned = _regular(entry, common, own)
    entry.finish(None)
    if gpu_type is not None:
        planned = _with_gpu_type(planned, name, gpu_type)
    try:
        return assemble(name, planned, links)
    except UserError as error:
        raise entry.fail(str(error)) from None


def _fabric(entry: Entry) -> Fabric:
    """A preset by name, or levels of its own as the catalog's fabrics have them."""
    value = entry.value("fabric")
    if isinstance(value, str):
        try:
            return find_fabric(value)
        except UserError as error:
            raise entry.fail(str(error), "fabric") from None
    inner = entry.entry("fabric")
    assert inner is not None  # the field is there
    # A fabric of the catalog must say where its figures come from; here the file itself is the source.
    nodes = {"source": yaml.ScalarNode("tag:yaml.org,2002:str", str(entry.path)), **inner.nodes}
    return build_fabric("of the file", replace(inner, nodes=nodes))


def _common_group(entry: Entry) -> Group:
    """What `machine` says about all machines: a preset's name or a description."""
    value = entry.value("machine", None)
    if value is None:
        return Group()
    if isinstance(value, str):
        return Group(preset=value)
    inner = entry.entry("machine")
    assert inner is not None  # the field is there
    return inner.finish(read_group(inner))


def _with_gpu_type(planned: Sequence[Planned], name: str, gpu_type: str) -> list[Planned]:
    kind = catalog_gpu(gpu_type)
    types = list(dict.fromkeys(machine.inside.gpu_type for machine in planned))
    if len(types) > 1:
        raise UserError(f"cluster {name!r} has GPUs of types {', '.join(types)}; another one cannot be given")
    return [replace(machine, inside=replace(machine.inside, gpu_type=kind)) for machine in planned]


def _regular(entry: Entry, common: Group, fabric: Fabric) -> list[Planned]:
    """A shape, or counts by name: `racks: 4`, `machines: 8`, GPUs from the machine."""
    if "shape" in entry:
        try:
            counts = shorthand.parse_shape(entry.text("shape"))
        except (UserError, ValueError):
            raise entry.fail("must be a shape such as 4x8x8 (racks x machines x GPUs)", "shape") from None
        if common.gpus is not None and common.gpus != counts[-1]:
            raise entry.fail(f"the shape has {counts[-1]} GPUs per machine, machine.gpus {common.gpus}", "shape")
        inside = group_of(entry, replace(common, gpus=counts[-1]), fabric)
        return shorthand.plan_shape(counts, inside)
    first = next(index for index, key in enumerate(_COUNTS) if key in entry)
    numbers = [entry.integer(key, low=1) for key in _COUNTS[first:]]
    if math.prod(numbers) > shorthand.MOST_MACHINES:
        raise entry.fail(f"has more than {shorthand.MOST_MACHINES} machines", _COUNTS[first])
    inside = group_of(entry, common, fabric)
    numbers = [1] * (2 - len(numbers)) + numbers
    return shorthand.plan_shape((*numbers, inside.gpus), inside)


def _tree(entry: Entry, common: Group, fabric: Fabric) -> list[Planned]:
    planned: list[Planned] = []
    _units(entry, "tree", (), common, fabric, planned)
    return planned


def _units(entry: Entry, key: str, above: DomainPath, common: Group, fabric: Fabric,
           planned: list[Planned]) -> None:  # fmt: skip
    """Units in document order; a name may repeat elsewhere in the tree but not beside itself."""
    seen: set[str] = set()
    for unit in entry.entries(key):
        for name in _names(unit):
            if name in seen:
                raise unit.fail(f"{name!r} is there twice in {'/'.join(above) or 'the cluster'}")
            if len(planned) > shorthand.MOST_MACHINES:
                raise unit.fail(f"the tree has more than {shorthand.MOST_MACHINES} machines")
            seen.add(name)
            domains = (*above, name)
            _units(unit, "units", domains, common, fabric, planned)
            _machines(unit, domains, common, fabric, planned, beside="units" in unit)
        if "units" not in unit and "machines" not in unit:
            raise unit.fail("has neither units nor machines")
        unit.finish(None)


def _names(unit: Entry) -> list[str]:
    """`name` for one, `names` with a hostlist for several alike."""
    if ("name" in unit) == ("names" in unit):
        raise unit.fail("needs either name or names")
    key = "name" if "name" in unit else "names"
    value = unit.value(key)
    if isinstance(value, (bool, dict, list)) or value is None or str(value).strip() == "":
        raise unit.fail(f"must be a text, not {value!r}", key)
    if key == "name":
        if "/" in str(value):
            raise unit.fail("must not contain a slash", key)
        return [str(value)]
    try:
        return expand(str(value))
    except UserError as error:
        raise unit.fail(str(error), key) from None


def _machines(unit: Entry, domains: DomainPath, common: Group, fabric: Fabric, planned: list[Planned], *,
              beside: bool) -> None:  # fmt: skip
    """The machines of a unit, named by a hostlist or numbered through the unit: m0, m1, …"""
    number = itertools.count()
    seen: set[str] = set()
    for group in unit.entries("machines"):
        names = _machine_names(group, number)
        inside = group_of(group, common.overridden_by(read_group(group)), fabric)
        sets = tuple(group.texts("sets"))
        group.finish(None)
        for name in names:
            if name in seen:
                raise group.fail(f"machine {name!r} is there twice in {'/'.join(domains)}")
            seen.add(name)
            # Beside units, a machine is in none of them: the levels between are its own.
            own = (*domains, name) if beside else domains
            planned.append(Planned(own, name, inside, sets))


def _machine_names(group: Entry, number: itertools.count[int]) -> list[str]:
    if "names" in group or "name" in group:
        names = _names(group)
        if group.integer("count", len(names), low=1) != len(names):
            raise group.fail(f"count is not the number of names, {len(names)}", "count")
        return names
    count = group.integer("count", low=1)
    if count > shorthand.MOST_MACHINES:
        raise group.fail(f"must be at most {shorthand.MOST_MACHINES}", "count")
    return [f"m{next(number)}" for _ in range(count)]
