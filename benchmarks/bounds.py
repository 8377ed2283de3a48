"""How tight the lower bound is, and how long it takes: `python benchmarks/bounds.py [--jobs N] [--speed]`.

Tightness is the bound divided by the best of a few clairvoyant preemptive greedy schedules, so 1.00 would
mean that both are optimal. The truth lies between; the distance from 1 is the two gaps together.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dally.simulator.bounds import LowerBound, lower_bounds

Floats = NDArray[np.float64]
Jobs = tuple[Floats, Floats, Floats]  # release, GPUs, run time
Key = Callable[[float, float], float]  # (remaining seconds, GPUs) → smaller runs first

KEYS: dict[str, Key] = {
    "shortest remaining time": lambda left, gpus: left,
    "least remaining GPU-time": lambda left, gpus: left * gpus,
    "in between": lambda left, gpus: left * gpus**0.5,
    "least remaining GPU-time, large gangs forward": lambda left, gpus: left * gpus**-0.5,
    "longest remaining time": lambda left, gpus: -left,
    "largest gang": lambda left, gpus: -gpus,
}

MAIN = ("own time", "pooled SRPT", "mean busy time", "priced time")


def greedy_completions(release: Floats, gpus: Floats, run_time: Floats, capacity: float, key: Key) -> Floats:
    """Completions when, at every arrival and completion, gangs start in order of `key` wherever they fit."""
    count = len(release)
    order = np.argsort(release, kind="stable").tolist()
    left = run_time.tolist()
    width = gpus.tolist()
    done = np.zeros(count)
    active: set[int] = set()
    now, upcoming = 0.0, 0
    while upcoming < count or active:
        if not active:
            now = max(now, float(release[order[upcoming]]))
        while upcoming < count and release[order[upcoming]] <= now:
            active.add(order[upcoming])
            upcoming += 1
        free = capacity
        running = []
        for job in sorted(active, key=lambda job: (key(left[job], width[job]), job)):
            if width[job] <= free:
                free -= width[job]
                running.append(job)
                if free == 0:
                    break
        step = min(left[job] for job in running)
        if upcoming < count:
            step = min(step, float(release[order[upcoming]]) - now)
        now += step
        for job in running:
            left[job] -= step
            if left[job] <= 1e-9 * run_time[job]:
                active.remove(job)
                done[job] = now
    return done


def philly_like(count: int, seed: int) -> Jobs:
    """Mostly one GPU, a tail of larger gangs; log-normal run times with a median of minutes, σ of 2."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 8, 16, 32], count, p=[0.7, 0.1, 0.1, 0.07, 0.02, 0.01]).astype(np.float64)
    run_time = np.clip(rng.lognormal(np.log(900), 2.0, count), 10, 30 * 86400)
    return _arrivals(rng, count), gpus, run_time


def helios_like(count: int, seed: int) -> Jobs:
    """More large gangs than Philly and shorter medians, longer with more GPUs (Hu et al., SC 2021)."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 8, 16, 32, 64], count, p=[0.5, 0.1, 0.1, 0.2, 0.05, 0.03, 0.02])
    run_time = np.clip(rng.lognormal(np.log(200 * gpus**0.5), 2.2), 5, 20 * 86400)
    return _arrivals(rng, count), gpus.astype(np.float64), run_time


def large_gangs(count: int, seed: int) -> Jobs:
    """Gangs that do not fit together well: 3 to 44 of 64 GPUs, run times within a factor of ten."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([3, 8, 12, 24, 36, 44], count, p=[0.2, 0.3, 0.2, 0.1, 0.1, 0.1]).astype(np.float64)
    return _arrivals(rng, count), gpus, rng.uniform(600, 6000, count)


def _arrivals(rng: np.random.Generator, count: int) -> Floats:
    """Unit-rate Poisson arrivals with a daily wave; `scaled` stretches them to the wanted load."""
    steady = np.cumsum(rng.exponential(1.0, count))
    return np.asarray(steady + 0.08 * count * np.sin(steady * 2 * np.pi / (count / 5)) / (2 * np.pi))


def scaled(jobs: Jobs, capacity: float, load: float) -> Jobs:
    """The same jobs, arriving over so long that they ask for `load` of the cluster; at once if it is inf."""
    release, gpus, run_time = jobs
    span = float(gpus @ run_time) / (capacity * load)
    release = release - release.min()
    return release / release.max() * span, gpus, run_time


def tightness(jobs: Jobs, capacity: float) -> tuple[LowerBound, float, float]:
    """The bound, and the best average JCT and makespan of the greedy schedules."""
    release, gpus, run_time = jobs
    ends = [greedy_completions(release, gpus, run_time, capacity, key) for key in KEYS.values()]
    bound = lower_bounds(release, gpus, run_time, capacity)
    best_jct = min(float(np.mean(done - release)) for done in ends)
    return bound, best_jct, min(float(done.max() - release.min()) for done in ends)


def show_tightness(count: int) -> None:
    columns = ("workload", "GPUs", "load", "JCT", "makespan", *MAIN, "others")
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for name, make, capacity in (
        ("Philly-like", philly_like, 64),
        ("Philly-like", philly_like, 256),
        ("Helios-like", helios_like, 128),
        ("large gangs", large_gangs, 64),
    ):
        for load in (0.5, 0.8, 1.0, 1.5, float("inf")):
            bound, jct, makespan = tightness(scaled(make(count, 1), capacity, load), capacity)
            by = {key: value / jct for key, value in bound.avg_jct_by.items()}
            main = [by.pop(key) for key in MAIN]
            others = ", ".join(f"{key} {value:.2f}" for key, value in by.items()) or "–"
            cells = " | ".join(f"{value:.2f}" for value in main)
            print(f"| {name} | {capacity} | {load:g} | {bound.avg_jct / jct:.3f} | "
                  f"{bound.makespan / makespan:.3f} | {cells} | {others} |", flush=True)  # fmt: skip


def show_speed() -> None:
    sort_of = np.random.default_rng(0).random(1_000_000)
    heap: list[float] = []
    begin = time.perf_counter()
    for value in sort_of.tolist():
        heapq.heappush(heap, value)
    while heap:
        heapq.heappop(heap)
    unit = time.perf_counter() - begin
    print(f"one push and pop per value of a heap of 1,000,000: {unit:.2f} s")
    for count in (10_000, 100_000, 1_000_000):
        jobs = scaled(helios_like(count, 2), 1024, 0.9)
        begin = time.perf_counter()
        lower_bounds(*jobs, 1024)
        took = time.perf_counter() - begin
        print(f"{count:>9,} jobs: {took:6.2f} s, {took / unit:.2f} × that")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--jobs", type=int, default=2000)
    arguments.add_argument("--speed", action="store_true", help="time the bound instead")
    chosen = arguments.parse_args()
    if chosen.speed:
        show_speed()
    else:
        show_tightness(chosen.jobs)
