"""What a GPU costs by the hour: from the catalog's cloud instances."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from dally.catalog.throughputs import gpu_name

# For GPUs no instance of the catalog has: Google Cloud, on demand, about 2020, from memory and not checked; the
# prices of the paper's experiments are not known to us.
_PAPER = {"V100": 2.48, "P100": 1.46, "K80": 0.45}


def dollars_per_hour(gpu_type: str, said: Mapping[str, float] | None = None) -> float | None:
    """What the user said, else the cheapest instance of the catalog with this GPU, else the paper's price."""
    wanted = gpu_name(gpu_type)
    for name, price in (said or {}).items():
        if gpu_name(name) == wanted:
            return price
    return _cheapest(wanted)


@lru_cache(maxsize=256)
def _cheapest(gpu: str) -> float | None:
    from dally.catalog.store import instances, machines

    offers, known = instances(), machines()
    prices = []
    for name in offers:
        machine = known.resolve(offers.written(name, "machine"))
        if machine is None or gpu_name(known.written(machine, "gpu")) == gpu:  # only these are built
            prices.append(offers[name].price / known.find(offers[name].machine).gpus)
    return min(prices, default=_PAPER.get(gpu))
