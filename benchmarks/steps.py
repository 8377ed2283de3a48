"""Training steps: how long an answer takes, and how much of a step Dally's six models leave exposed where.

`--layers DIR` adds the same table by the Dally authors' own rules and layer tables (`layers_<model>.csv`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from dally.catalog import find_fabric, find_gpu, find_machine, find_model, wire
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.topology import Topology, regular
from dally.network import cuts, nccl, step
from dally.network.analytic import Analytic
from dally.network.fidelity import Artist
from dally.network.sensitivity import spread
from dally.network.step import StepOptions

SIX = ("vgg11", "alexnet", "mobilenetv3-small", "resnet18", "resnet50", "bert-large")
SIZES = (8, 16, 32)


def dally_cluster() -> Topology:
    levels = wire(find_machine("dally-8"), find_fabric("dally"), [8, 4])
    return regular((4, 8, 8), levels, gpu_type="A100-40GB", islands=(4, 4), name="Dally's fabric")


def seconds(ask: Callable[[], object], times: int, inner: int = 1) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        for _ in range(inner):
            ask()
        taken.append((time.perf_counter() - start) / inner)
    return median(taken)


def timed(topology: Topology) -> list[tuple[str, float, float]]:
    """(question, seconds, goal)."""
    network = Analytic(topology)
    job = Job("job", 0.0, 64, model="resnet50")
    placement = Placement.of((machine, 0xFF) for machine in range(8))
    network.step_time(job, placement, 0.0)
    shape, wires = network.shapes.of(placement), network.shapes.wires
    model, gpu = find_model("resnet50"), find_gpu("A100-40GB")

    def cold() -> None:
        nccl.costs.cache_clear()
        cuts.passes.cache_clear()
        cuts.cuts_of.cache_clear()
        step.profile(model, gpu, network.shapes.of(placement), wires)

    def other_placement() -> None:
        nccl.costs.cache_clear()
        step.profile(model, gpu, shape, wires)

    return [
        ("ResNet-50 on 64 GPUs, nothing remembered", seconds(cold, 300), 1e-3),
        ("ResNet-50 on 64 GPUs, compute times remembered", seconds(other_placement, 300), 1e-3),
        ("ResNet-50 on 64 GPUs, remembered",
         seconds(lambda: network.step_time(job, placement, 0.0), 100, 1000), 1e-6),
    ]  # fmt: skip


def speed(topology: Topology) -> None:
    print(f"{'question':<50}{'median':>12}{'goal':>12}{'goal/ours':>12}")
    for name, taken, goal in timed(topology):
        print(f"{name:<50}{taken * 1e6:>9.2f} µs{goal * 1e6:>9.0f} µs{goal / taken:>11.1f}x")


def ranks(values: Sequence[float]) -> list[float]:
    """Mean ranks of equals."""
    return [(sum(v < x for v in values) + sum(v <= x for v in values) - 1) / 2 for x in values]


def correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation."""
    x, y = ranks(a), ranks(b)
    mean = (len(x) - 1) / 2
    top = sum((p - mean) * (q - mean) for p, q in zip(x, y, strict=True))
    below = (sum((p - mean) ** 2 for p in x) * sum((q - mean) ** 2 for q in y)) ** 0.5
    return top / below if below else float("nan")


def table(title: str, share: Callable[[str, int, int], float], facts: dict[str, tuple[int, float, float]]) -> None:
    """`share(model, gpus, level)` → exposed share; `facts`: layers, skew, compute seconds."""
    levels = ("machine", "rack", "cluster")
    latency = 2 * 50e-6  # between racks, a switch is two hops
    print(f"\n{title}: exposed communication, % of the step")
    print(f"{'model':<20}{'layers':>7}{'skew':>6}{'layers × latency / compute':>28}"
          + "".join(f"{n:>5} {level:<8}" for n in SIZES for level in levels))  # fmt: skip
    pressure = {name: facts[name][0] * latency / facts[name][2] for name in facts}
    shares = {(m, n, i): share(m, n, i + 1) for m in facts for n in SIZES for i in range(3)}
    for name, (layers, skew, _) in facts.items():
        cells = "".join(f"{100 * shares[name, n, i]:>10.2f}    " for n in SIZES for i in range(3))
        print(f"{name:<20}{layers:>7}{skew:>6.2f}{pressure[name]:>28.4f}{cells}")
    for n in SIZES:
        across = [shares[name, n, 2] for name in facts]
        by_pressure = correlation(across, [pressure[name] for name in facts])
        by_skew = correlation(across, [facts[name][1] for name in facts])
        print(f"  {n} GPUs across racks, rank correlation with layers × latency / compute {by_pressure:+.2f}, "
              f"with skew {by_skew:+.2f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=Path, help="folder of the authors' layer tables")
    folder = parser.parse_args().layers
    topology = dally_cluster()
    speed(topology)
    gpu = find_gpu("A100-40GB")
    facts = {}
    for name in SIX:
        model = find_model(name)
        forward, backward, update = cuts.passes(model, gpu, model.batch_size)
        facts[name] = (len(model.layers), model.skew, sum(forward) + sum(backward) + update)
    for title, options in (
        ("25 MB buckets, NCCL's choice", StepOptions()),
        ("one ring all-reduce per layer", StepOptions("ring", None)),
    ):
        network = Analytic(topology, options, contention=False)

        def share(name: str, gpus: int, level: int, network: Analytic = network) -> float:
            found = network.shaped(name, spread(topology, gpus, level, 0, network))
            return found.exposed / found.alone

        table(title, share, facts)
    if folder is not None:
        artist = Artist(topology, folder)
        shapes = Analytic(topology, contention=False)
        own = {}
        for name in SIX:
            layers, _ = artist.table(name, "A100-40GB")
            sizes = [layer.gradient_bytes for layer in layers]
            compute = artist.step_ns(name, "A100-40GB", spread(topology, 1, 1, 0, shapes)).compute * 1e-9
            own[name] = (len(layers), max(sizes) / sum(sizes), compute)

        def original(name: str, gpus: int, level: int) -> float:
            found = artist.step_ns(name, "A100-40GB", spread(topology, gpus, level, 0, shapes))
            return (found.total - found.compute) / found.total

        table("the authors' rules and layer tables", original, own)


if __name__ == "__main__":
    main()
