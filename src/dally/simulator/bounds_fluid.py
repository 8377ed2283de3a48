"""Fluid relaxations: what a schedule could reach if only the room for gangs and each job's own speed mattered.

Each function here is one theorem of docs/lower-bound.md, on plain arrays: `size` is a size function's value
per job (bounds_sizes.py) and `room` the largest total of it that can run at once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def srpt_completions(release: Floats, work: Floats, speed: float) -> Floats:
    """Completion times, ascending, of shortest remaining processing time first on one machine of `speed`.

    At every moment no schedule on that machine has completed more jobs (Schrage, "A proof of the optimality
    of the shortest remaining processing time discipline", Operations Research 16 (1968)).
    """
    order = np.lexsort((work, release))
    # Plain lists: the loop below touches each element once and NumPy scalars would triple its cost.
    done: list[float] = []
    waiting: list[float] = []  # remaining seconds on this machine; the head runs
    start, elapsed = 0.0, 0.0  # a busy period's begin, and its age: sums stay short, so rounding stays small
    for arrival, need in zip(release[order].tolist(), (work[order] / speed).tolist(), strict=True):
        until = arrival - start
        while waiting:
            after = elapsed + waiting[0]
            if after > until:
                waiting[0] -= until - elapsed
                elapsed = until
                break
            heapq.heappop(waiting)
            elapsed = after
            done.append(start + after)
        if not waiting:
            start, elapsed = arrival, 0.0
        heapq.heappush(waiting, need)
    waiting.sort()
    for need in waiting:
        elapsed += need
        done.append(start + elapsed)
    return np.asarray(done, dtype=np.float64)


def poured_delay(
    release: Floats,
    run_time: Floats,
    size: Floats,
    room_for: Callable[[Mask], float],
    evaluations: int,
) -> float:
    """Least total delay Σ (C − r − p) when every job pours its work at its own speed into one shared tank.

    The mean-busy-time relaxation with progressive release: Σ over thresholds of (1/u_k − 1/u_{k+1}) times the
    area under the backlog of the jobs whose work is at most u_k. Any subset of thresholds gives a valid lower
    sum, so thresholds are added where they can gain most until `evaluations` of them are spent.
    """
    work = size * run_time
    kept = work > 0
    if not kept.any():
        return 0.0
    release, run_time, size, work = release[kept], run_time[kept], size[kept], work[kept]
    times = np.concatenate((release, release + run_time))
    order = np.argsort(times, kind="stable")
    times = times[order]
    change = np.concatenate((size, -size))[order]
    event_work = np.concatenate((work, work))[order]
    works = np.unique(work)

    def area(k: int) -> float:
        chosen = event_work <= works[k]
        room = room_for(_spread(kept, work <= works[k]))
        return backlog_area(times[chosen], change[chosen], room)

    last = len(works) - 1
    areas = {-1: 0.0, last: area(last)}
    # Gaps between neighbouring thresholds a < b, by the most that thresholds between them could add.
    gaps: list[tuple[float, int, int]] = []

    def open_gap(a: int, b: int) -> None:
        gain = (areas[b] - areas[a]) * (1 / works[a + 1] - 1 / works[b])
        if b - a > 1 and gain > 0:
            heapq.heappush(gaps, (-gain, a, b))

    open_gap(-1, last)
    enough = 1e-4 * float(run_time.sum())
    for _ in range(evaluations - 1):
        if not gaps or -sum(gap[0] for gap in gaps) < enough:
            break
        _, a, b = heapq.heappop(gaps)
        middle = int(np.searchsorted(works, math.sqrt(works[a + 1] * works[b])))
        middle = min(max(middle, a + 1), b - 1)
        areas[middle] = area(middle)
        open_gap(a, middle)
        open_gap(middle, b)

    thresholds = sorted(k for k in areas if k >= 0)
    # More jobs never have less backlog, though the room of the larger class may be larger: keep the best so far.
    backlog = np.maximum.accumulate([areas[k] for k in thresholds])
    weight = 1 / works[thresholds]
    return float(np.sum((weight - np.append(weight[1:], 0.0)) * backlog))


def backlog_area(times: Floats, change: Floats, room: float) -> float:
    """∫ Q dt of a tank that drains at `room` and is filled at a rate that changes by `change` at `times`."""
    rate = np.cumsum(change)[:-1]
    length = np.diff(times)
    slope = rate - room
    if not np.any(slope > 0):
        return 0.0
    rise = slope * length
    # Rounded down to a grid on which float sums are exact: the backlog can only come out too small.
    total = float(np.abs(rise).sum())
    grid = 2.0 ** (math.ceil(math.log2(total)) - 51)
    level = np.cumsum(np.floor(rise / grid))
    after = (level - np.minimum(np.minimum.accumulate(level), 0.0)) * grid
    before = np.concatenate(([0.0], after[:-1]))
    runs_dry = (after == 0) & (slope < 0)
    dry = float(np.sum(before[runs_dry] ** 2 / (-2 * slope[runs_dry])))
    wet = ~runs_dry
    full = float(np.sum((before[wet] + after[wet]) / 2 * length[wet]))
    return dry + full + float(after[-1]) ** 2 / (2 * room)


def busy_until(times: Floats, change: Floats, room: float, moments: Floats) -> Floats:
    """For each moment, when the tank that is not empty then is empty next; 0 if it is empty."""
    slope = np.append(np.cumsum(change)[:-1], 0.0) - room
    level = np.cumsum(slope[:-1] * np.diff(times))
    before = np.concatenate(([0.0], level - np.minimum(np.minimum.accumulate(level), 0.0)))
    dry = np.where(slope < 0, times + before / np.maximum(-slope, 1e-300), np.inf)
    empties = np.where(dry <= np.append(times[1:], np.inf), dry, np.inf)
    following = np.minimum.accumulate(empties[::-1])[::-1]
    at = np.searchsorted(times, moments, side="right") - 1
    within = np.maximum(at, 0)
    empty = (at < 0) | ((slope[within] <= 0) & (dry[within] <= moments))
    return np.where(empty, 0.0, following[within])


def poured_end(release: Floats, run_time: Floats, size: Floats, room: float) -> float:
    """max over s of s + (work that cannot have been done before s) / room: when the tank is empty at last.

    A job released at r can have run at most s − r seconds before s. The expression is piecewise linear in
    s, so its maximum is at a release or at a release plus run time.
    """
    times = np.concatenate((release, release + run_time))
    order = np.argsort(times, kind="stable")
    times = times[order]
    rate = np.cumsum(np.concatenate((size, -size))[order])[:-1]
    left = np.append(np.cumsum((rate * np.diff(times))[::-1])[::-1], 0.0)
    return float(np.max(times + left / room))


def _spread(kept: Mask, chosen: Mask) -> Mask:
    """A choice among the kept jobs, as a choice among all."""
    everyone = np.zeros(len(kept), dtype=np.bool_)
    everyone[kept] = chosen
    return everyone
