"""What people see of a job: when it came, when and where it ran, how it ended. Follows from the journal alone."""

from __future__ import annotations

import re
from typing import Any

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Entry, Instant, Rejected
from dally.core.placement import Placement
from dally.core.topology import Topology

Row = dict[str, Any]

MOVED = "moved"
_END = {ev.Finished: "finished", ev.Failed: "failed", ev.Cancelled: "cancelled"}


def new_row(arrived: float) -> Row:
    return {"arrived": arrived, "started": None, "ended": None, "state": None, "cause": None, "exit_code": None,
            "attempts": 0, "history": []}  # fmt: skip


class Board:
    """Rows by job. `after` says what an instant would change; `take` makes it so once it is written."""

    def __init__(self, rows: dict[str, Row] | None = None) -> None:
        self.rows: dict[str, Row] = rows or {}

    def after(self, instant: Instant, topology: Topology) -> dict[str, Row]:
        """Rows that an instant changes, as they will be."""
        changed: dict[str, Row] = {}
        for entry in instant.entries():
            self._see(changed, instant.time, entry, topology)
        return changed

    def take(self, changed: dict[str, Row]) -> None:
        self.rows.update(changed)

    def put(self, job: str, attempt: int, topology: Topology) -> tuple[Placement, bool] | None:
        """Where an attempt was put, as far as those machines are still there, and whether the job was then moved."""
        row = self.rows.get(job)
        if row is None or not 1 <= attempt <= len(row["history"]):
            return None
        kept = row["history"][attempt - 1]
        slices = ((topology.machine_by_name[name], sum(1 << gpu for gpu in gpus))
                  for name, gpus in kept["machines"].items() if name in topology.machine_by_name)  # fmt: skip
        return Placement.of(slices), kept["how"] == MOVED

    def _see(self, changed: dict[str, Row], now: float, entry: Entry, topology: Topology) -> None:
        kind = type(entry)
        if isinstance(entry, ev.Arrived):
            self._draft(changed, entry.job.id, now)
        elif isinstance(entry, (pl.Start, pl.Migrate)):
            row = self._draft(changed, entry.job, now)
            _over(row, now, MOVED)
            row["history"].append({"number": len(row["history"]) + 1, "machines": machines(entry.placement, topology),
                                   "decided": now, "began": None, "ended": None, "how": None,
                                   "step": None})  # fmt: skip
        elif isinstance(entry, ev.Started):
            row = self._draft(changed, entry.job, now)
            row["attempts"] += 1
            row["started"] = now if row["started"] is None else row["started"]
            if row["history"]:
                row["history"][-1]["began"] = now
        elif isinstance(entry, ev.Measured):
            if entry.step_time > 0:
                row = self._draft(changed, entry.job, now)
                if row["history"] and row["history"][-1]["ended"] is None:
                    row["history"][-1]["step"] = entry.step_time
        elif isinstance(entry, ev.Yielded):
            row = self._draft(changed, entry.job, now)
            _began_unseen(row, now)
            _over(row, now, "preempted, with a checkpoint")
        elif isinstance(entry, (ev.StartFailed, ev.Interrupted)):
            row = self._draft(changed, entry.job, now)
            if isinstance(entry, ev.Interrupted):
                _began_unseen(row, now)
            _over(row, now, entry.cause)
        elif isinstance(entry, Rejected):
            row = self._draft(changed, entry.job, now)
            row.update(state="rejected", ended=now, cause=entry.reason.sentence)
        elif kind in _END:
            row = self._draft(changed, entry.job, now)  # type: ignore[union-attr]
            cause = entry.cause if isinstance(entry, ev.Failed) else None
            if _code(entry) is not None:
                _began_unseen(row, now)
            row.update(state=_END[kind], ended=now, cause=cause, exit_code=_code(entry))
            _over(row, now, cause or _END[kind])

    def _draft(self, changed: dict[str, Row], job: str, now: float) -> Row:
        """A copy to write on; history is copied one level deep, since its last entry changes."""
        if job not in changed:
            row = self.rows.get(job)
            changed[job] = new_row(now) if row is None else {**row, "history": [*map(dict, row["history"])]}
        return changed[job]


def _began_unseen(row: Row, now: float) -> None:
    """What has run to an end has begun, whether or not anybody was there to hear of it."""
    if row["history"] and row["history"][-1]["ended"] is None and row["history"][-1]["began"] is None:
        row["history"][-1]["began"] = now
        row["attempts"] += 1
        row["started"] = now if row["started"] is None else row["started"]


def _over(row: Row, now: float, how: str) -> None:
    """The attempt that is under way, if there is one, ends."""
    if row["history"] and row["history"][-1]["ended"] is None:
        row["history"][-1].update(ended=now, how=how)


def _code(entry: Entry) -> int | None:
    if isinstance(entry, ev.Finished):
        return 0
    found = re.search(r"exit code (-?\d+)", entry.cause) if isinstance(entry, ev.Failed) else None
    return int(found[1]) if found else None


def machines(placement: Placement, topology: Topology) -> dict[str, list[int]]:
    """Numbers of the GPUs by the name of their machine."""
    return {topology.machine_names[machine]: [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
            for machine, mask in placement.slices}  # fmt: skip
