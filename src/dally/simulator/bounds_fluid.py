"""Fluid relaxations: what a schedule could reach if only room for gangs and each job's own speed mattered.

Each function here is one theorem of docs/lower-bound.md, on plain arrays: `size` is a size function's value
per job (bounds_sizes.py) and `room` the largest total of it that can run at once.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dally.core.records import dataclass

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Ascending, each once. `np.unique` first loads NumPy's masked arrays, longer than a small bound takes."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def srpt_completions(release: Floats, work: Floats, speed: float) -> Floats:
    """Completion times, ascending, of shortest remaining processing time first on one machine of `speed`.

    At every moment no schedule on that machine has completed more jobs (Schrage, "A proof of the optimality
    of the shortest remaining processing time discipline", Operations Research 16 (1968)).
    """
    idle = work == 0  # done at once; they need no place in the queue
    at_once = release[idle]
    release, work = release[~idle], work[~idle]
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
    return np.sort(np.concatenate((done, at_once)))


@dataclass(frozen=True, slots=True)
class Tank:
    """What happens in a tank: the area under its backlog, and its busy periods in order."""

    area: float
    begin: Floats
    end: Floats

    def busy_until(self, moments: Floats) -> Floats:
        """For each moment, when the tank that is not empty then is empty next; 0 if it is empty."""
        if not len(self.begin):
            return np.zeros(len(moments))
        at = np.searchsorted(self.begin, moments, side="right") - 1
        until = self.end[np.maximum(at, 0)]
        return np.where((at >= 0) & (moments < until), until, 0.0)

    def wait_poured(self, release: Floats, run_time: Floats) -> Floats:
        """∫ from r to r + p of the time until the tank is empty: how long what is poured behind it waits."""
        if not len(self.begin):
            return np.zeros(len(release))
        triangle = (self.end - self.begin) ** 2 / 2
        grid = 2.0 ** (math.ceil(math.log2(float(triangle.sum()))) - 51)  # exact sums, as in `fill`
        before = np.concatenate(([0.0], np.cumsum(np.floor(triangle / grid)))) * grid
        # The periods that end after the release, up to the one that begins before the job's own end.
        first = np.searchsorted(self.end, release, side="right")
        last = np.searchsorted(self.begin, release + run_time, side="left") - 1
        some = first <= last
        first, last = first[some], last[some]
        start = np.maximum(release[some], self.begin[first])
        stop = np.minimum((release + run_time)[some], self.end[last])
        alone = (stop - start) * (self.end[first] - (start + stop) / 2)
        head = (self.end[first] - start) ** 2 / 2
        tail = (stop - self.begin[last]) * (self.end[last] - (self.begin[last] + stop) / 2)
        between = np.maximum(before[last] - before[np.minimum(first + 1, last)], 0.0)
        waits = np.zeros(len(release))
        waits[some] = np.where(first == last, alone, head + between + tail)
        return waits


def fill(times: Floats, change: Floats, room: float) -> Tank:
    """A tank that drains at `room` and is filled at a rate that changes by `change` at the sorted `times`."""
    slope = np.cumsum(change)[:-1] - room
    if not np.any(slope > 0):
        return Tank(0.0, np.zeros(0), np.zeros(0))
    length = np.diff(times)
    rise = slope * length
    total = float(np.abs(rise).sum())
    if total == 0:
        return Tank(0.0, np.zeros(0), np.zeros(0))
    # Rounded down to a grid on which float sums are exact: the backlog can only come out too small.
    grid = 2.0 ** (math.ceil(math.log2(total)) - 51)
    level = np.cumsum(np.floor(rise / grid))
    after = (level - np.minimum(np.minimum.accumulate(level), 0.0)) * grid
    before = np.concatenate(([0.0], after[:-1]))
    dries = (before > 0) & (after == 0)
    needs = before[dries] / -slope[dries]
    rest = float(after[-1])
    area = float(np.sum((before + after)[~dries] / 2 * length[~dries]))
    area += float(np.sum(before[dries] / 2 * needs)) + rest**2 / (2 * room)
    end = times[:-1][dries] + needs
    if rest > 0:
        end = np.append(end, times[-1] + rest / room)
    return Tank(area, times[:-1][(before == 0) & (after > 0)], end)


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
    sum, so thresholds are added where they can gain most until `evaluations` of them are spent. The jobs
    between two thresholds at least wait behind the tank of the lower one.
    """
    kept = size * run_time > 0
    if not kept.any():
        return 0.0
    release, run_time, size = release[kept], run_time[kept], size[kept]
    work = size * run_time
    times = np.concatenate((release, release + run_time))
    order = np.argsort(times, kind="stable")
    times = times[order]
    change = np.concatenate((size, -size))[order]
    event_work = np.concatenate((work, work))[order]
    works = distinct(work)
    rooms: dict[int, float] = {}
    tanks: dict[int, Tank] = {-1: Tank(0.0, np.zeros(0), np.zeros(0))}

    def evaluate(k: int) -> None:
        chosen = event_work <= works[k]
        everyone = np.zeros(len(kept), dtype=np.bool_)
        everyone[kept] = work <= works[k]
        rooms[k] = room_for(everyone)
        tanks[k] = fill(times[chosen], change[chosen], rooms[k])

    # Gaps between neighbouring thresholds a < b, by the most that thresholds between them could add.
    gaps: list[tuple[float, int, int]] = []

    def open_gap(a: int, b: int) -> None:
        gain = (tanks[b].area - tanks[a].area) * (1 / works[a + 1] - 1 / works[b])
        if b - a > 1 and gain > 0:
            heapq.heappush(gaps, (-gain, a, b))

    evaluate(len(works) - 1)
    open_gap(-1, len(works) - 1)
    enough = 1e-4 * float(run_time.sum())
    for _ in range(evaluations - 1):
        if not gaps or -sum(gap[0] for gap in gaps) < enough:
            break
        _, a, b = heapq.heappop(gaps)
        middle = int(np.searchsorted(works, math.sqrt(works[a + 1] * works[b])))
        middle = min(max(middle, a + 1), b - 1)
        evaluate(middle)
        open_gap(a, middle)
        open_gap(middle, b)

    thresholds = sorted(rooms)
    # More jobs never have less backlog, though their room may be larger: keep the best so far.
    backlog = np.maximum.accumulate([tanks[k].area for k in thresholds])
    weight = 1 / works[thresholds]
    delay = float(np.sum((weight - np.append(weight[1:], 0.0)) * backlog))
    for kth, (a, b) in enumerate(itertools.pairwise(thresholds)):
        if rooms[a] == rooms[b] and tanks[a].area == backlog[kth]:
            between = (work > works[a]) & (work < works[b])
            waits = size[between] * tanks[a].wait_poured(release[between], run_time[between])
            delay += float(np.sum(waits * (1 / work[between] - weight[kth + 1])))
    return delay


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
