"""The measuring window: which jobs of a stream are measured, and when the cluster is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dally.core.errors import UserError
from dally.core.ledger import Ledger
from dally.core.lives import FLOATS, INTS, OUTCOMES
from dally.core.records import dataclass
from dally.core.units import seconds
from dally.simulator.threads import inner
from dally.traces.reshape import BEFORE, arrivals
from dally.traces.trace import Trace

if TYPE_CHECKING:
    from dally.simulator.run import Run

ALL = "all"
STREAM = "10%..90%"  # of the time of submissions: the queue has built up, and later arrivals still press


@dataclass(frozen=True, slots=True)
class Window:
    """Jobs submitted from `start` to `end` are measured; those that were there before the stream began never are."""

    start: float
    end: float

    def holds(self, job_id: str, submit: float) -> bool:
        return self.start <= submit <= self.end and BEFORE not in job_id

    def holding(self, job_ids: Sequence[str], submit: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Of many at once."""
        new = np.fromiter((BEFORE not in job_id for job_id in job_ids), dtype=np.bool_, count=len(job_ids))
        return new & (self.start <= submit) & (submit <= self.end)


def parse_window(text: str, trace: Trace) -> Window:
    """`10%..90%` of the time of submissions, `1d..5d` from the first one, or `all` of it."""
    first, last = arrivals(trace)
    if text == ALL:
        return Window(first, last)
    parts = text.split("..")
    if len(parts) != 2:
        raise UserError(f"window {text!r}: write all, or from and to: 10%..90% of the time of submissions, or 1d..5d")
    start, end = (_moment(part.strip(), text, first, last) for part in parts)
    found = Window(start, end)
    if not start < end:
        raise UserError(f"window {text!r}: it must end after it begins")
    if not any(found.holds(job.id, job.submit_time) for job in trace.jobs):
        raise UserError(f"window {text!r}: no job of {trace.name} is submitted in it")
    return found


def _moment(text: str, whole: str, first: float, last: float) -> float:
    if text.endswith("%"):
        try:
            share = float(text[:-1]) / 100
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise UserError(f"window {whole!r}: {text!r} is not a share from 0% to 100%")
        return first + share * (last - first)
    return first + seconds(text)


def measured_ledger(whole: Ledger, window: Window) -> Ledger:
    """The measured jobs of a ledger, with the load of the whole cluster behind them."""
    whole.settle()
    floats = np.array(whole.lives.floats, dtype=np.float64).reshape(len(whole.lives), len(FLOATS))
    ints = np.array(whole.lives.ints, dtype=np.int32).reshape(len(whole.lives), len(INTS))
    submit, end = floats[:, FLOATS.index("submit")], floats[:, FLOATS.index("end")]
    inside = window.holding(whole.lives.ids, submit)
    numbers = np.flatnonzero(inside).tolist()
    lives = whole.lives.taken(numbers, floats[inside].tobytes(), ints[inside].tobytes())
    number = np.cumsum(inside) - 1
    rows = np.array(whole.segments.rows, dtype=np.int64)
    kept = np.flatnonzero(inside[rows])
    segments = whole.segments.taken(kept.tolist(), number[rows[kept]].tolist())
    done = inside & (ints[:, INTS.index("outcome")] == OUTCOMES.index("finished")) & ~np.isnan(end)
    return whole.of_some(lives, segments, float(submit[inside].min()) if inside.any() else None,
                         float(end[done].max()) if done.any() else None)  # fmt: skip


def measured(run: Run) -> Run:
    """The run with the ledger of the measured jobs alone; the run itself where all are."""
    return run if run.window is None else replace(run, ledger=measured_ledger(run.ledger, run.window))


def busy_share(ledger: Ledger, window: Window | None = None) -> float | None:
    """GPUs held, of all there are, on average over the window: by default from first submission to last end."""
    if window is None:
        if ledger.first_submit is None or ledger.last_end is None:
            return None
        window = Window(ledger.first_submit, ledger.last_end)
    if not len(ledger.time) or window.end <= window.start:
        return None
    edges = np.clip(np.append(np.array(ledger.time, dtype=np.float64), max(ledger.time[-1], window.end)),
                    window.start, window.end)  # fmt: skip
    held = inner(np.diff(edges), np.array(ledger.busy, dtype=np.float64))
    return held / (ledger.topology.gpus * (window.end - window.start))
