"""Small clusters and placements that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from dally.core.placement import Placement
from dally.core.topology import Level, LinkKind, Topology, regular

RACKS, MACHINES, GPUS = 3, 3, 8


def cluster(
    machine: float = 300e9, nic: float = 12.5e9, uplink: float = 25e9,
    latencies: Sequence[float] = (1e-6, 5e-6, 2e-5), kind: LinkKind = LinkKind.SWITCH, islands: bool = False,
) -> Topology:  # fmt: skip
    """Three racks of three machines of eight GPUs; with islands, two of four in each machine."""
    levels = [
        Level("machine", LinkKind.SWITCH, machine, latencies[0]),
        Level("rack", kind, nic, latencies[1]),
        Level("cluster", LinkKind.SWITCH, uplink, latencies[2]),
    ]
    if islands:
        levels.insert(0, Level("island", LinkKind.FULLY_CONNECTED, 2 * machine, latencies[0] / 2))
    return regular((RACKS, MACHINES, GPUS), levels, gpu_type="V100", islands=(4, 4) if islands else ())


def place(*counts: tuple[int, int]) -> Placement:
    """(machine, GPUs) pairs; the lowest GPUs of each machine."""
    return Placement.of((machine, (1 << gpus) - 1) for machine, gpus in counts)


@st.composite
def placements(draw: st.DrawFn, least: int = 1) -> Placement:
    masks = draw(
        st.dictionaries(st.integers(0, RACKS * MACHINES - 1), st.integers(1, 2**GPUS - 1), min_size=1, max_size=5)
    )
    found = Placement.of(masks.items())
    if found.gpus < least:
        found = Placement.of({**masks, 0: 0b11}.items())
    return found
