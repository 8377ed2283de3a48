"""What one placement change costs among many running jobs: prints the median time and what it touched.

1,000 jobs run on a cluster of 300 shared links (10 racks of 29 machines: 290 machine ports and 10 uplinks). One job
leaves and the same gang enters on other GPUs; `moved` says who is slower or faster now. The goal is a median of
1 ms of wall-clock time; CPU time is printed beside it, since other work on the machine stretches the former.
"""

from __future__ import annotations

import time
from random import Random
from statistics import median, quantiles
from typing import NamedTuple

from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.topology import Level, Topology, regular
from dally.network.analytic import Analytic

RACKS, MACHINES, GPUS, JOBS, CHANGES = 10, 29, 16, 1000, 1000
MODELS = ("resnet50", "vgg16", "bert-large", "gpt2", "resnet18", "deepspeech2")


def cluster(racks: int = RACKS) -> Topology:
    """25 Gbit/s per machine, uplinks oversubscribed four to one."""
    port = 25e9 / 8
    levels = [Level("machine", bandwidth=300e9, latency=1e-6), Level("rack", bandwidth=port, latency=5e-6),
              Level("cluster", bandwidth=port * MACHINES / 4, latency=1e-5)]  # fmt: skip
    return regular((racks, MACHINES, GPUS), levels, gpu_type="V100")


class Running:
    """GPUs in use, and gangs drawn at random over machines: of one rack, or of any."""

    def __init__(self, topology: Topology, seed: int, near: float, racks: int = RACKS) -> None:
        self.random, self.near, self.racks = Random(seed), near, racks
        self.free = [machine.full_mask for machine in topology.machines]
        self.held: dict[str, Placement] = {}

    def place(self, job: str, gpus: int) -> Placement:
        while True:
            rack = self.random.randrange(self.racks)
            near = self.random.random() < self.near
            pool = range(rack * MACHINES, (rack + 1) * MACHINES) if near else range(self.racks * MACHINES)
            slices, left = [], gpus
            for machine in self.random.sample(pool, 2 if gpus <= 8 else 4):
                share = min(left, -(-gpus // (2 if gpus <= 8 else 4)), self.free[machine].bit_count())
                mask = 0
                for _ in range(share):
                    mask |= (self.free[machine] & ~mask) & -(self.free[machine] & ~mask)
                if mask:
                    slices.append((machine, mask))
                    left -= share
            if left == 0 and len(slices) > 1:
                break
        for machine, mask in slices:
            self.free[machine] &= ~mask
        self.held[job] = Placement.of(slices)
        return self.held[job]

    def release(self, job: str) -> None:
        for machine, mask in self.held.pop(job).slices:
            self.free[machine] |= mask


class Change(NamedTuple):
    """One job left and entered elsewhere."""

    wall: float
    cpu: float
    touched: int  # jobs that are slower or faster now


def changed(running: Running, network: Analytic, count: int) -> list[Change]:
    """So many jobs run, and one after the other is moved."""
    random = running.random
    jobs = [Job(str(i), 0.0, random.choice((2, 2, 4, 4, 8)), model=random.choice(MODELS)) for i in range(count)]
    network.moved([], [(job, running.place(job.id, job.gpus)) for job in jobs], 0.0)
    found = []
    for _ in range(CHANGES):
        job = random.choice(jobs)
        running.release(job.id)
        entered = [(job, running.place(job.id, job.gpus))]
        network.profile(job.model, entered[0][1])  # a step that was never asked for is another benchmark
        wall, cpu = time.perf_counter(), time.process_time()
        touched = network.moved([job.id], entered, 0.0)
        cpu_after, wall_after = time.process_time(), time.perf_counter()
        found.append(Change(wall_after - wall, cpu_after - cpu, len(touched)))
    return found


def changes(gangs: int, near: float) -> dict[str, float]:
    """Among so many gangs, on a cluster that grows with them: CPU milliseconds of one change."""
    racks = max(1, round(gangs * RACKS / JOBS))
    topology = cluster(racks)
    found = changed(Running(topology, 1, near, racks), Analytic(topology), gangs)
    cpu = [each.cpu for each in found]
    return {"links": racks * MACHINES + racks, "touched": median(each.touched for each in found),
            "median_ms": median(cpu) * 1e3, "p99_ms": quantiles(cpu, n=100)[98] * 1e3}  # fmt: skip


def measure(near: float) -> None:
    topology = cluster()
    running = Running(topology, 1, near)
    found = changed(running, Analytic(topology), JOBS)
    times, spent = [each.wall for each in found], [each.cpu for each in found]
    per_link = sum(len(p.slices) for p in running.held.values()) / (RACKS * MACHINES)
    touched = median(each.touched for each in found)
    print(f"{100 * near:>6.0f} %{per_link:>12.1f}{touched:>14.0f}{median(times) * 1e3:>12.3f} ms"
          f"{quantiles(times, n=100)[98] * 1e3:>10.3f} ms{median(spent) * 1e3:>12.3f} ms"
          f"{1e-3 / median(times):>9.1f}x")  # fmt: skip


def main() -> None:
    links = RACKS * MACHINES + RACKS
    print(f"{JOBS} running jobs, {links} links, {CHANGES} changes (one job leaves and enters elsewhere)")
    print(f"{'in rack':>8}{'jobs/port':>12}{'jobs changed':>14}{'median':>15}"
          f"{'p99':>13}{'median CPU':>15}{'goal/ours':>10}")  # fmt: skip
    for near in (1.0, 0.9, 0.5, 0.0):
        measure(near)


if __name__ == "__main__":
    main()
