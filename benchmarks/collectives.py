"""How much faster the collective model answers than ASTRA-sim computes: prints medians and ratios.

ASTRA-sim's CPU times are those measured for its analytical backends: one all-reduce on 64 GPUs 20 to 50 ms,
one ResNet-50 data-parallel step on 64 GPUs 0.8 to 1.3 s. The lower end is compared with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from dally.network.astra import Dimension, Fabric, Layer, System, data_parallel_step_ns
from dally.network.astra.model import GIB

ASTRA_ALL_REDUCE_S = 20e-3
ASTRA_STEP_S = 0.8
SIZE = 100_000_000  # bytes, about a ResNet-50 gradient

# (blocks, width) of ResNet-50's four stages, as published.
_BLOCKS = ((3, 64), (4, 128), (6, 256), (3, 512))


def resnet50() -> tuple[Layer, ...]:
    """ResNet-50's 54 weight tensors with an equal share of a 12 ms step each."""
    sizes = [7 * 7 * 3 * 64]
    channels = 64
    for blocks, width in _BLOCKS:
        for block in range(blocks):
            sizes += [channels * width, 9 * width * width, 4 * width * width]
            if block == 0:
                sizes.append(channels * 4 * width)
            channels = 4 * width
    sizes.append(2048 * 1000)
    return tuple(Layer(f"layer {i}", 74_000, 74_000, 74_000, 4 * size) for i, size in enumerate(sizes))


def fabric(splits: int = 4) -> Fabric:
    """Eight machines of eight GPUs."""
    dims = (Dimension("switch", 8, 300 * GIB, 250.0), Dimension("switch", 8, 12.5 * GIB, 2500.0))
    return Fabric(dims, System(("ring", "ring"), splits=splits))


def deep_fabric() -> Fabric:
    """Three levels, where the pipeline has no closed form."""
    dims = (
        Dimension("switch", 8, 300 * GIB, 250.0),
        Dimension("switch", 4, 25 * GIB, 1500.0),
        Dimension("switch", 2, 12.5 * GIB, 2500.0),
    )
    return Fabric(dims, System(("ring", "ring", "halving-doubling"), splits=16))


def seconds(ask: Callable[[], object], times: int, inner: int = 1) -> float:
    """The median time of one call."""
    taken: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        for _ in range(inner):
            ask()
        taken.append((time.perf_counter() - start) / inner)
    return median(taken)


def main() -> None:
    layers = resnet50()
    known = fabric()
    known.collective_ns("all-reduce", SIZE)
    rows = [
        ("all-reduce, 8x8 GPUs, cold",
         seconds(lambda: fabric().collective_ns("all-reduce", SIZE), 2000), 100e-6, ASTRA_ALL_REDUCE_S),
        ("all-reduce, 8x8 GPUs, 64 chunks, cold",
         seconds(lambda: fabric(64).collective_ns("all-reduce", SIZE), 2000), 100e-6, ASTRA_ALL_REDUCE_S),
        ("all-reduce, 8x4x2 GPUs, 16 chunks, cold",
         seconds(lambda: deep_fabric().collective_ns("all-reduce", SIZE), 1000), 100e-6,
         ASTRA_ALL_REDUCE_S),
        ("all-reduce, 8x8 GPUs, remembered",
         seconds(lambda: known.collective_ns("all-reduce", SIZE), 200, 1000), 1e-6, ASTRA_ALL_REDUCE_S),
        ("ResNet-50 step, 8x8 GPUs, 25 MB buckets, cold",
         seconds(lambda: data_parallel_step_ns(layers, fabric()), 500), 1e-3, ASTRA_STEP_S),
        ("ResNet-50 step, 8x8 GPUs, per layer, cold",
         seconds(lambda: data_parallel_step_ns(layers, fabric(), None), 500), 1e-3, ASTRA_STEP_S),
    ]  # fmt: skip
    print(f"{'question':<48}{'median':>12}{'goal':>10}{'ASTRA-sim / ours':>19}")
    for name, taken, goal, theirs in rows:
        print(f"{name:<48}{taken * 1e6:>9.2f} µs{goal * 1e6:>7.0f} µs{theirs / taken:>18,.0f}x")


if __name__ == "__main__":
    main()
