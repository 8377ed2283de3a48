"""Size functions: how much of the cluster a rigid gang really takes, once no other gang can fill the rest.

A size function gives every gang size d a number g(d) ≥ 0, and `room` is the largest total of g that gangs
running at the same time can have. g(d) = d is the plain count of GPUs; its room is not the cluster but the
largest sum of gangs that fits (gangs of 8 in 60 GPUs: 56). Other functions see what a count of GPUs cannot,
for instance that gangs larger than half the cluster run one at a time. Every function is normalised by an
exact knapsack over the gangs at hand, so no property of the function itself is needed for the bound to
hold. The rounding functions are those of Fekete and Schepers, "New classes of fast lower bounds for bin
packing problems", Mathematical Programming 91 (2001), section 3; the prices are those of Gilmore and Gomory,
"A linear programming approach to the cutting-stock problem", Operations Research 9 (1961). See
docs/lower-bound.md, "Room".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dally.core.records import dataclass

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDINGS = (1, 2, 3, 4)  # k of the rounding functions; beyond 4 they hardly differ from the count of GPUs
_KNAPSACK_LIMIT = 1_000_000  # GPUs; a cluster larger than this has no gangs that would make the search pay
_PRICED_CAPACITY = 4096  # in units of the gangs' common divisor; more is slow and gains little
_PRICED_SHARE = 1 / 16  # gangs smaller than this share of the cluster lose too little to be priced
_PRICED_SIZES = 64  # distinct gang sizes
_PIVOTS = 200


@dataclass(frozen=True, slots=True)
class GangSizes:
    """The gang sizes that occur, how many jobs have each, and which one every job has."""

    demand: Floats  # distinct, ascending
    count: Ints
    index: Ints  # per job
    whole: bool  # all sizes and the capacity are whole GPUs, and gangs run whole or not at all

    @classmethod
    def of(cls, gpus: Floats, capacity: float, *, rigid: bool = True) -> GangSizes:
        demand, index, count = np.unique(gpus, return_inverse=True, return_counts=True)
        whole = rigid and bool(np.all(demand == np.floor(demand))) and float(capacity).is_integer()
        return cls(demand, count.astype(np.int64), index.astype(np.int64).reshape(-1), whole)


@dataclass(frozen=True, slots=True)
class SizeFunction:
    """g per distinct gang size, and the largest total of g that can run at once."""

    name: str
    size: Floats
    room: float


def fullest_load(demand: Floats, count: Ints, capacity: float) -> float:
    """The largest number of GPUs that gangs out of these can keep busy at once: an exact subset sum.

    Sums are the bits of one integer; a size that occurs c times enters as 1, 2, 4, … and a rest of gangs.
    """
    limit = int(capacity)
    if float(demand @ count) <= capacity:
        return float(demand @ count)
    rest = limit
    for d, c in zip(demand[::-1].tolist(), count[::-1].tolist(), strict=True):
        rest -= int(d) * min(c, rest // int(d))
    if rest == 0:
        return float(limit)
    within = (1 << (limit + 1)) - 1
    sums = 1
    for d, c in zip(demand.tolist(), count.tolist(), strict=True):
        for pack in _packs(min(c, limit // int(d))):
            sums |= (sums << (int(d) * pack)) & within
    return float(sums.bit_length() - 1)


def heaviest_load(demand: Floats, count: Ints, size: Floats, capacity: float) -> float:
    """The largest total of `size` over gangs that fit into the capacity together: an exact knapsack."""
    limit = int(capacity)
    best = np.zeros(limit + 1)
    for d, c, g in zip(demand.tolist(), count.tolist(), size.tolist(), strict=True):
        if g == 0:
            continue
        for pack in _packs(min(c, limit // int(d))):
            width = int(d) * pack
            if width <= limit:
                best[width:] = np.maximum(best[width:], best[: limit + 1 - width] + g * pack)
    return float(best[-1])


def packing_prices(demand: Floats, need: Floats, capacity: float) -> Floats:
    """Prices per gang size that make the `need` (seconds per gang size) as dear as its shortest packing.

    The dual of the cutting-stock program, by column generation: a price is raised until no set of gangs that
    fits costs more than one second. Stopping early gives other prices, never wrong ones.
    """
    limit = int(capacity)
    patterns = np.diag(np.floor(limit / demand))
    prices = 1 / np.diag(patterns)
    for _ in range(_PIVOTS):
        value, pattern = _dearest_pattern(demand, np.maximum(prices, 0.0), limit)
        if value <= 1 + 1e-9:
            break
        entering = np.linalg.solve(patterns, pattern)
        seconds = np.linalg.solve(patterns, need)
        ratio = np.full(len(demand), np.inf)
        np.divide(seconds, entering, out=ratio, where=entering > 1e-12)
        patterns[:, int(np.argmin(ratio))] = pattern
        prices = np.linalg.solve(patterns.T, np.ones(len(demand)))
    return np.maximum(prices, 0.0)


def size_functions(gangs: GangSizes, run_time: Floats, capacity: float) -> list[SizeFunction]:
    """The count of GPUs first, then every other size function that says more for some gang size."""
    if not gangs.whole:
        return [SizeFunction("gpus", gangs.demand, float(capacity))]
    gpus = SizeFunction("gpus", gangs.demand, fullest_load(gangs.demand, gangs.count, capacity))
    found = [gpus]
    if capacity > _KNAPSACK_LIMIT:
        return found
    demand = gangs.demand.astype(np.int64)
    limit = int(capacity)
    candidates: list[tuple[str, Floats]] = []
    unit = int(np.gcd.reduce(demand))
    worth = demand[-1] > _PRICED_SHARE * limit and len(demand) <= _PRICED_SIZES
    if worth and limit // unit <= _PRICED_CAPACITY:
        need = np.zeros(len(demand))
        np.add.at(need, gangs.index, run_time)
        candidates.append(("prices", packing_prices(gangs.demand / unit, need, limit // unit)))
    for k in _ROUNDINGS:
        # u^(k)(x) = x if (k+1)x is whole, else ⌊(k+1)x⌋/k, times k(k+1) so that it is a whole number
        scaled = (k + 1) * demand
        rounded = np.where(scaled % limit == 0, k * (scaled // limit), (k + 1) * (scaled // limit))
        candidates.append((f"rounding-{k}", rounded.astype(np.float64)))
        # The larger gangs alone: without the small ones to fill gaps their room may be smaller.
        candidates.append((f"above-1/{k + 1}", np.where(scaled > limit, gangs.demand, 0.0)))
    for name, size in candidates:
        if not size.any():
            continue
        room = heaviest_load(gangs.demand, gangs.count, size, capacity)
        share = size / room
        if all(np.any(share > (1 + 1e-6) * (other.size / other.room)) for other in found):
            found.append(SizeFunction(name, size, room))
    return found


def _dearest_pattern(demand: Floats, prices: Floats, limit: int) -> tuple[float, Floats]:
    """The set of gangs, as a number per size, that fits into `limit` GPUs and has the highest price."""
    best = np.zeros(limit + 1)
    stages: list[tuple[int, int, NDArray[np.bool_]]] = []
    for kind, (d, price) in enumerate(zip(demand.tolist(), prices.tolist(), strict=True)):
        for pack in _packs(limit // int(d)):
            width = int(d) * pack
            packed = best[: limit + 1 - width] + price * pack
            taken = packed > best[width:]
            best[width:][taken] = packed[taken]
            stages.append((kind, pack, taken))
    pattern = np.zeros(len(demand))
    left = limit
    for kind, pack, taken in reversed(stages):
        width = int(demand[kind]) * pack
        if left >= width and taken[left - width]:
            pattern[kind] += pack
            left -= width
    return float(best[-1]), pattern


def _packs(count: int) -> list[int]:
    """1, 2, 4, … and a rest, so that the sums of subsets are exactly 0 … count."""
    packs = []
    pack = 1
    while count > 0:
        packs.append(min(pack, count))
        count -= packs[-1]
        pack *= 2
    return packs
