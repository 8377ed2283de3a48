"""Stalls from the five measurements (Stash, arXiv 2208.14344, after DS-Analyzer), each with its spread.

interconnect = (1) − (0), % of (1)        network = (1′) − (1), % of (1): may pass 100 %
prep (CPU)   = (3) − (1), % of (3)        fetch (disk) = (2) − (3), % of (2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot

from dally.profiler.document import Run, Stall

RUNS = {
    "one": "one device, synthetic",
    "all": "all devices, synthetic",
    "cold": "real data, cold cache",
    "cached": "real data, cached",
}
TITLES = {
    "interconnect": "interconnect: waiting for the other devices of the machine",
    "network": "network: waiting for other machines",
    "prep": "CPU: waiting for batches to be prepared",
    "fetch": "disk: waiting for data to be read",
}


def difference(slower: Run, faster: Run, of: Run, *, data: bool = False) -> Stall:
    seconds = slower.step - faster.step
    spread = hypot(slower.spread, faster.spread)
    return Stall(
        seconds=seconds,
        percent=100 * seconds / of.step,
        spread=spread,
        spread_percent=100 * spread / of.step,
        seen=slower.wait - faster.wait if data else None,
    )


def stalls(runs: Mapping[str, Run], apart: Sequence[Run] = ()) -> dict[str, Stall]:
    """Those stalls whose two measurements are there. Of several networks the last measured counts."""
    found = {}
    one, all_, cold, cached = (runs.get(name) for name in ("one", "all", "cold", "cached"))
    if one and all_ and all_.processes > 1:
        found["interconnect"] = difference(all_, one, all_)
    if all_ and apart:
        found["network"] = difference(apart[-1], all_, all_)
    if all_ and cached:
        found["prep"] = difference(cached, all_, cached, data=True)
    if cold and cached:
        found["fetch"] = difference(cold, cached, cold, data=True)
    return found


def rates(runs: Mapping[str, Run], batch: int | None) -> dict[str, float]:
    """Samples per second: as fast as devices take them, as CPUs prepare them, as the disk gives them."""
    all_, cold, cached = (runs.get(name) for name in ("all", "cold", "cached"))
    if all_ is None or not batch:
        return {}
    samples = batch * all_.processes
    found = {"ingestion": samples / all_.step}
    if cached:
        found["prep"] = samples / cached.step
    if cold and cached and cold.step > cached.step:
        found["fetch"] = samples / (cold.step - cached.step)
    return found


def host_share(runs: Mapping[str, Run]) -> float | None:
    """Seconds by which ranks on one host slow each other's compute even when they exchange nothing."""
    one, all_ = runs.get("one"), runs.get("all")
    if one is None or all_ is None or all_.silent is None:
        return None
    return all_.silent - one.step


def largest(found: Mapping[str, Stall]) -> str | None:
    """The stall that costs most, if any is clear of the noise."""
    clear = {name: stall.seconds for name, stall in found.items() if stall.clear}
    return max(clear, key=lambda name: clear[name]) if clear else None
