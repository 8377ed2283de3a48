"""The cluster that this machine is: its own GPUs, or virtual ones, in racks if somebody wants racks.

A virtual GPU is a number and nothing else: jobs that hold it run here like all others. With it policies, placement and
preemption can be tried with real processes where there are no GPUs.
"""

from __future__ import annotations

import csv
import io
import subprocess
from collections.abc import Mapping
from dataclasses import field

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Level, MachineSpec, Topology, build_topology

VIRTUAL_GPUS = 8
_FIELDS = ("index", "name", "uuid")
_QUERY = ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader")
_LEVELS = (Level("machine"), Level("cluster"))


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A topology, and which of the machine's devices its GPUs are; virtual ones are none."""

    topology: Topology
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # machine → device of each of its GPUs
    note: str = ""  # where it comes from, in a sentence


def local_cluster(text: str | None = None, query: tuple[str, ...] = _QUERY) -> LocalCluster:
    """What `text` describes (a shape, a preset, a file: docs/clusters.md), on virtual GPUs; without it this machine's
    GPUs, or eight virtual ones where it has none."""
    if text is not None:
        from dally.catalog.clusters.load import load_cluster

        return LocalCluster(load_cluster(text), note=f"{text}: virtual machines, all of them on this one")
    listing = _listing(query)
    found = parse_gpus(listing) if listing is not None else []
    if not found:
        spec = MachineSpec(("localhost",), VIRTUAL_GPUS)
        return LocalCluster(build_topology(_LEVELS, [spec], name="localhost"),
                            note=f"this machine has no GPUs: {VIRTUAL_GPUS} virtual ones")  # fmt: skip
    return _of(found)


def _listing(query: tuple[str, ...]) -> str | None:
    """What the driver says; None where there is no driver, or it does not answer."""
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout if done.returncode == 0 else None


def parse_gpus(listing: str) -> list[tuple[int, str]]:
    """Index and name of every GPU. A line that is not one is an error: a GPU must not be overlooked or made up."""
    found: list[tuple[int, str]] = []
    for number, row in enumerate(csv.reader(io.StringIO(listing)), start=1):
        fields = [part.strip() for part in row]
        if not any(fields):
            continue
        whole = len(fields) == len(_FIELDS) and fields[0].isdecimal() and fields[1] and fields[2].startswith("GPU-")
        if not whole:
            raise UserError(f"nvidia-smi, line {number}: {','.join(row)!r} is no GPU; "
                            "declare the cluster instead (`--cluster 1x1x8`)")  # fmt: skip
        found.append((int(fields[0]), fields[1]))
    return sorted(found)


def _of(found: list[tuple[int, str]]) -> LocalCluster:
    """One machine; where it holds GPUs of several types, one machine per type, since a gang never mixes them."""
    from dally.catalog.store import gpus

    by_type: dict[str, list[str]] = {}
    for index, name in found:
        by_type.setdefault(gpus().resolve(name) or name, []).append(str(index))
    names = {kind: "localhost" if len(by_type) == 1 else f"localhost-{kind}".replace(" ", "-") for kind in by_type}
    specs = [MachineSpec((names[kind],), len(devices), kind) for kind, devices in by_type.items()]
    devices = {names[kind]: tuple(numbers) for kind, numbers in by_type.items()}
    counts = ", ".join(f"{len(numbers)} {kind}" for kind, numbers in by_type.items())
    return LocalCluster(build_topology(_LEVELS, specs, name="localhost"), devices, f"this machine's GPUs: {counts}")
