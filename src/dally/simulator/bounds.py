"""Lower bounds: an average JCT and a makespan that no schedule of these jobs on this cluster can beat.

The setting is generous to the schedule: it knows the future, preempts and moves jobs for nothing, and gives
every job its best placement all the time. What it must respect: a gang runs whole or not at all, jobs that
run at the same time fit into the GPUs together, no job runs before its release or faster than its best. All
bounds are proved in docs/lower-bound.md; the names there are the keys of `avg_jct_by` and `makespan_by`.

Jobs may be left out (cancelled, failed): a schedule of all jobs is also one of the others, so a bound for
those others holds for them in every schedule of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.simulator.bounds_fluid import poured_delay, poured_end, srpt_completions
from dally.simulator.bounds_prices import priced_delay
from dally.simulator.bounds_sizes import GangSizes, SizeFunction, fullest_load, size_functions

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Rounding must never lift a bound above the truth. Sums lose less than the first, relative to the result;
# clock readings less than the second, relative to the span of the clock.
_RELATIVE_SLACK = 1e-9
_CLOCK_SLACK = 1e-12

_THRESHOLDS = 32  # of the mean-busy-time sum; twice as many gain less than 1 %


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The best bounds, and each single bound by its name."""

    avg_jct: float  # seconds
    makespan: float  # seconds from the first release to the last completion
    avg_jct_by: dict[str, float]
    makespan_by: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Jobs that compete for one capacity; times count from the first release."""

    release: Floats
    gpus: Floats
    run_time: Floats
    capacity: float
    rigid: bool

    def part(self, chosen: Mask, capacity: float) -> _Jobs:
        return _Jobs(self.release[chosen], self.gpus[chosen], self.run_time[chosen], capacity, self.rigid)


@dataclass(frozen=True, slots=True)
class _Totals:
    """Bounds on Σ (C − r) and on the last completion, by name."""

    jct: dict[str, float]
    end: dict[str, float]

    @property
    def best_jct(self) -> float:
        return max(self.jct.values())


def lower_bounds(
    release: ArrayLike,
    gpus: ArrayLike,
    run_time: ArrayLike,
    capacity: float | Mapping[str, float],
    pool: Sequence[str | None] | None = None,
    *,
    rigid: bool = True,
) -> LowerBound:
    """Lower bounds on average JCT and makespan of any schedule of these jobs.

    `run_time` is each job's time at the best placement this cluster could ever give it. `capacity` is the
    number of GPUs, or the number per pool (GPU type); `pool` names the pool a job must use, None for any.
    Where jobs are packed or resized, `rigid` is False, `run_time` is the shortest a job can have and `gpus` ×
    `run_time` the least GPU-seconds it can take (docs/lower-bound.md).
    """
    jobs, pools = _checked(release, gpus, run_time, capacity, pool, rigid)
    count = len(jobs.release)
    if count == 0:
        return LowerBound(0.0, 0.0, {"own time": 0.0}, {"own time": 0.0})
    whole = _totals(jobs)
    if len(pools) > 1 or pools[0].capacity < jobs.capacity:
        # Each job is in one part, so totals add up; a part is delayed at least by its own jobs alone.
        apart = [_totals(part) for part in pools]
        whole.jct["pools apart"] = sum(part.best_jct for part in apart)
        whole.end["pools apart"] = max(max(part.end.values()) for part in apart)
    slack = _CLOCK_SLACK * float(np.max(jobs.release + jobs.run_time))
    avg_jct_by = {name: _lowered(value / count, slack) for name, value in whole.jct.items()}
    makespan_by = {name: _lowered(value, slack) for name, value in whole.end.items()}
    return LowerBound(max(avg_jct_by.values()), max(makespan_by.values()), avg_jct_by, makespan_by)


def _lowered(value: float, slack: float) -> float:
    return max(value * (1 - _RELATIVE_SLACK) - slack, 0.0)


def _totals(jobs: _Jobs) -> _Totals:
    gangs = GangSizes.of(jobs.gpus, jobs.capacity, rigid=jobs.rigid)
    functions = size_functions(gangs, jobs.run_time, jobs.capacity)
    own = float(jobs.run_time.sum())
    end = _end_by(jobs, gangs, functions)
    bounds = {"own time": own}
    bounds |= _srpt_bounds(jobs, gangs, functions)

    def room_of_class(chosen: Mask) -> float:
        if not gangs.whole:
            return jobs.capacity
        count = np.bincount(gangs.index[chosen], minlength=len(gangs.demand))
        present = count > 0
        return fullest_load(gangs.demand[present], count[present], jobs.capacity)

    bounds["mean busy time"] = own + poured_delay(
        jobs.release, jobs.run_time, jobs.gpus, room_of_class, _THRESHOLDS
    )
    known = max(bounds.values()) - own
    reach = max(end.values())
    bounds["priced time"] = own + max(
        priced_delay(jobs.release, jobs.run_time, each.size[gangs.index], each.room, reach, known)
        for each in functions
        if each.name in ("gpus", "prices")
    )
    if len(functions) > 1:
        bounds["large gangs"] = own + max(_delay_by_size(jobs, gangs, each) for each in functions[1:])
    large = jobs.gpus > jobs.capacity / 2
    if large.any() and not large.all():
        alone = _totals(jobs.part(large, jobs.capacity))
        # Worth the second half only if the large ones delay each other at all.
        if alone.best_jct > alone.jct["own time"] * (1 + 1e-9):
            bounds["large gangs apart"] = (
                alone.best_jct + _totals(jobs.part(~large, jobs.capacity)).best_jct
            )
    return _Totals(bounds, end)


def _srpt_bounds(jobs: _Jobs, gangs: GangSizes, functions: list[SizeFunction]) -> dict[str, float]:
    """The j-th completion of any schedule is not before the j-th of a relaxation, whichever one it is."""
    released = float(jobs.release.sum())
    nth_end = np.sort(jobs.release + jobs.run_time)
    pooled = srpt_completions(jobs.release, jobs.gpus * jobs.run_time, jobs.capacity)
    nth_end = np.maximum(nth_end, pooled)
    bounds = {"pooled SRPT": float(nth_end.sum()) - released}
    sharper = [each for each in functions if each.name != "gpus" or each.room < jobs.capacity]
    for each in sharper:
        work = each.size[gangs.index] * jobs.run_time
        nth_end = np.maximum(nth_end, srpt_completions(jobs.release, work, each.room))
    if sharper:
        bounds["gang SRPT"] = float(nth_end.sum()) - released
    return bounds


def _delay_by_size(jobs: _Jobs, gangs: GangSizes, function: SizeFunction) -> float:
    size = function.size[gangs.index]
    return poured_delay(jobs.release, jobs.run_time, size, lambda _: function.room, _THRESHOLDS)


def _end_by(jobs: _Jobs, gangs: GangSizes, functions: list[SizeFunction]) -> dict[str, float]:
    """The last completion from below, by the name of the bound."""
    ends = {
        "own time": float(np.max(jobs.release + jobs.run_time)),
        "pooled work": poured_end(jobs.release, jobs.run_time, jobs.gpus, jobs.capacity),
    }
    sharper = [each for each in functions if each.name != "gpus" or each.room < jobs.capacity]
    if sharper:
        ends["gang work"] = max(
            poured_end(jobs.release, jobs.run_time, each.size[gangs.index], each.room) for each in sharper
        )
    return ends


def _checked(
    release: ArrayLike,
    gpus: ArrayLike,
    run_time: ArrayLike,
    capacity: float | Mapping[str, float],
    pool: Sequence[str | None] | None,
    rigid: bool,
) -> tuple[_Jobs, list[_Jobs]]:
    """The jobs on all GPUs together, and the jobs of each pool (those bound to none: on all GPUs)."""
    columns = {"release": release, "gpus": gpus, "run_time": run_time}
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
    count = len(arrays["release"])
    for name, values in arrays.items():
        if values.shape != (count,):
            raise UserError(f"lower bound: {name} has {values.size} values for {count} jobs")
        if not np.all(np.isfinite(values)):
            raise UserError(f"lower bound: {name} of job {int(np.argmin(np.isfinite(values)))} is not finite")
    for name, bad in (("gpus", arrays["gpus"] <= 0), ("run_time", arrays["run_time"] < 0)):
        if bad.any():
            row = int(np.argmax(bad))
            raise UserError(f"lower bound: {name} of job {row} is {arrays[name][row]:g}")
    rooms = dict(capacity) if isinstance(capacity, Mapping) else {"": capacity}
    everything = float(sum(rooms.values()))
    first = float(arrays["release"].min()) if count else 0.0
    jobs = _Jobs(arrays["release"] - first, arrays["gpus"], arrays["run_time"], everything, rigid)
    wanted = [None] * count if pool is None else list(pool)
    if len(wanted) != count:
        raise UserError(f"lower bound: pool has {len(wanted)} values for {count} jobs")
    names = np.asarray([-1 if name is None else _pool_number(name, rooms) for name in wanted], dtype=np.int64)
    parts = []
    for number, room in [(-1, everything), *enumerate(float(room) for room in rooms.values())]:
        chosen = names == number
        if chosen.any():
            parts.append(jobs.part(chosen, room))
            if parts[-1].gpus.max() > room:
                raise UserError(
                    f"lower bound: a job of {parts[-1].gpus.max():g} GPUs can never run on {room:g} GPUs"
                )
    return jobs, parts


def _pool_number(name: str, rooms: Mapping[str, float]) -> int:
    for number, known in enumerate(rooms):
        if known == name:
            return number
    raise UserError(f"lower bound: pool {name!r} is not one of {', '.join(map(repr, rooms))}")
