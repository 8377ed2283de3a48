"""Clusters written in one word: shapes such as `4x8x8` and pools such as `v100=8,p100=16,k80=24`."""

from __future__ import annotations

import itertools
import math
import re

from dally.catalog.clusters.assembly import MOST_GPUS, OUTER_NAMES, Planned
from dally.catalog.clusters.insides import Inside, catalog_gpu, inside_of, usual_machine
from dally.core.errors import UserError

_SHAPE = re.compile(r"^\s*\d+(\s*[xX×]\s*\d+)*\s*$")
_POOL = re.compile(r"^\s*([^=@,\s][^=@,]*?)\s*=\s*(\d+)\s*(?:@\s*(\d+)\s*)?$")
GPUS_PER_MACHINE = 8  # of a pool, where nobody says
MOST_MACHINES = 1_000_000  # a slip of the finger should not fill the memory
_MOST_DIGITS = 40


def is_shape(text: str) -> bool:
    return _SHAPE.match(text) is not None


def parse_shape(text: str) -> tuple[int, ...]:
    """`4x8x8` → (4, 8, 8), GPUs per machine last; `8` is one machine and `4x8` one rack of four."""
    parts = re.split(r"[xX×]", text)
    if any(len(part) > _MOST_DIGITS for part in parts):
        raise UserError(f"cluster {text[:40]!r}…: a number of a shape is not that long")
    counts = tuple(int(part) for part in parts)
    if len(counts) > len(OUTER_NAMES) + 2:
        raise UserError(
            f"cluster {text!r}: a shape has at most five numbers: zones x blocks x racks x machines x GPUs"
        )
    if 0 in counts:
        raise UserError(f"cluster {text!r}: every number of a shape must be at least 1")
    if math.prod(counts[:-1]) > MOST_MACHINES:
        raise UserError(f"cluster {text!r} has more than {MOST_MACHINES} machines")
    if counts[-1] > MOST_GPUS:
        raise UserError(f"cluster {text!r} has more than {MOST_GPUS:,} GPUs in a machine")
    return (1,) * (3 - len(counts)) + counts


def plan_shape(counts: tuple[int, ...], inside: Inside) -> list[Planned]:
    """Domains are named after their level and numbered inside the one above: `block0/rack3`, machine `m7`."""
    *outer, machines, _ = counts
    stems = OUTER_NAMES[: len(outer)][::-1]
    named = [[f"{stem}{i}" for i in range(count)] for stem, count in zip(stems, outer, strict=True)]
    return [
        Planned(domains, f"m{number}", inside)
        for domains in itertools.product(*named)
        for number in range(machines)
    ]


def is_pools(text: str) -> bool:
    return "=" in text


def plan_pools(text: str) -> list[Planned]:
    """One rack per GPU type; machines of 8 GPUs or as many as `@` says, the last one with what is left."""
    planned: list[Planned] = []
    seen: set[str] = set()
    for part in text.split(","):
        match = _POOL.match(part)
        if match is None:
            raise UserError(
                f"cluster {text!r}: {part.strip()!r} is not a pool; write TYPE=GPUS or TYPE=GPUS@PER_MACHINE,"
                " such as v100=8,p100=16@4"
            )
        try:
            kind = catalog_gpu(match[1])
        except UserError as error:
            raise UserError(f"cluster {text!r}: {error}") from None
        if kind in seen:
            raise UserError(f"cluster {text!r}: there are two pools of {kind}")
        seen.add(kind)
        if max(len(match[2]), len(match[3] or "")) > _MOST_DIGITS:
            raise UserError(f"cluster {text[:40]!r}…: a number of GPUs is not that long")
        total, each = int(match[2]), int(match[3] or GPUS_PER_MACHINE)
        if total < 1 or each < 1:
            raise UserError(
                f"cluster {text!r}: {part.strip()!r} must have at least one GPU, and one per machine"
            )
        if total / each > MOST_MACHINES:
            raise UserError(f"cluster {text!r}: {part.strip()!r} has more than {MOST_MACHINES} machines")
        if min(total, each) > MOST_GPUS:
            raise UserError(f"cluster {text!r}: {part.strip()!r} has more than {MOST_GPUS:,} GPUs in a machine")
        preset = usual_machine(kind)
        for number, first in enumerate(range(0, total, each)):
            inside = inside_of(preset, min(each, total - first), kind)
            planned.append(Planned((kind,), f"m{number}", inside))
    return planned
