"""Even ways to lie on a cluster: equal units at every level, which is all that `astra` and `artist` tell apart.

Their steps depend on how many units are joined per level, so the ways are few (the ordered factors of the gang's
size) and can be looked at one by one. What is left are uneven placements, which they fold into one dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from dally.network.least import slot_rate
from dally.network.room import Room, Span
from dally.network.shape import Wires

Units = tuple[int, ...]  # GPUs per innermost domain, then units per domain of each level up to the top


def factors(n: int, parts: int) -> Iterator[Units]:
    """Every way to write n as an ordered product."""
    if parts == 1:
        yield (n,)
        return
    for first in range(1, n + 1):
        if n % first == 0:
            yield from ((first, *rest) for rest in factors(n // first, parts - 1))


def even_units(n: int, room: Room, own: int, base: int) -> Iterator[Units]:
    """Units from level `base` (0, or the machine's: islands do not matter) to the top, where counts allow them."""
    for units in factors(n, room.top - base + 1):
        if room.top > own and units[-1] < 2:
            continue  # a smaller domain would hold it
        inside = prod(units[: own - base + 1])
        enough = sum(count for kind, count in room.kinds if kind.gpus >= inside)
        wide: list[Span] = [(1, min(n, len(held) - 1)) for held in room.gpus]
        for level in range(base, room.top):
            domains = prod(units[level - base + 1 :])
            wide[level] = (domains, domains)
            enough = enough if room.largest(level) * domains >= n else 0
        machines = prod(units[own - base + 1 :])
        if machines <= enough and room.narrowed(n, wide) is not None:
            yield units


def spread_of(units: Units, room: Room, base: int) -> tuple[int, ...]:
    """The same as counts of domains per level; where islands do not matter, one per machine."""
    domains = [prod(units[level - base + 1 :]) for level in range(base, room.top + 1)]
    return (*domains[:1] * base, *domains)


def fewest_behind(n: int, room: Room) -> int | None:
    """GPUs in the fullest child of the top of an uneven gang, at least; None: every gang there is even.

    With one GPU in each child a gang is even. So it is where the children must all be full and have no inside.
    """
    if room.top == 0 or n < 3:
        return None
    children = room.inside[room.top - 1][1]
    behind = max(2, room.fullest(room.top - 1, n, children))
    if room.top == 1 and behind * children == n:
        behind += 1
    return behind if behind < n or room.top > 1 else None


def uneven_spreads(n: int, room: Room) -> Iterator[tuple[int, ...]]:
    """A few ways that are uneven at the top and as wide as can be: for those who look for a good one."""
    if room.top == 0 or room.narrowed(n, [(1, min(n, len(held) - 1)) for held in room.gpus]) is None:
        return
    widest = min(room.inside[room.top - 1][1], n)
    children = next((d for d in range(widest, 1, -1) if n % d), widest)
    below = [min(n, len(held) - 1) for held in room.gpus[: room.top - 1]]
    yield (*below, children, 1)
    yield (*(children for _ in below), children, 1)


def best_slots(machines: int, gpus: int, room: Room, wires: Wires) -> float:
    """Bytes per second of a GPU's slot on the slowest of so many machines of so many GPUs, at most."""
    found = 0
    slowest = 0.0
    rates = sorted(((slot_rate(kind, wires), count) for kind, count in room.kinds if kind.gpus >= gpus), reverse=True)
    for rate, count in rates:
        found, slowest = found + count, rate
        if found >= machines:
            break
    return slowest
