"""Useful work and locality over time, from the journal alone: what Gandiva's figures are made of."""

from __future__ import annotations

from collections import Counter

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Entry, Instant
from dally.core.placement import Placement
from dally.core.topology import Topology

_STOPS = (pl.Preempt, ev.Interrupted, ev.StartFailed, ev.Finished, ev.Failed, ev.Cancelled)


class _Life:
    """One job's progress: work done up to `since`, at `speed` from `begin` on."""

    __slots__ = ("apart", "begin", "done", "gang", "gpus", "speed")

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.done = self.speed = self.begin = 0.0
        self.gang = self.apart = False


class UsefulWork:
    """A journal sink.

    Useful work counts in GPU-seconds at the job's reference speed: a job of g GPUs that runs alone at its best
    placement does g of them in a second.
    """

    def __init__(self, topology: Topology, window: float) -> None:
        self.window = window  # only work done before this time counts
        self.useful = 0.0  # GPU-seconds of work done inside the window
        self.actions: Counter[str] = Counter()
        self.apart: list[tuple[float, int, int]] = []  # (time, gangs, of these on more servers than needed)
        self._topology = topology
        self._lives: dict[str, _Life] = {}
        self._largest = {kind: max(m.gpus for m in topology.machines if m.gpu_type == kind)
                         for kind in topology.gpu_types}  # fmt: skip
        self._gangs = self._apart = 0

    def __call__(self, instant: Instant) -> None:
        for entry in instant.entries():
            self.see(instant.time, entry)

    def see(self, now: float, entry: Entry) -> None:
        if isinstance(entry, ev.Arrived):
            self._lives[entry.job.id] = _Life(entry.job.gpus)
        elif isinstance(entry, ev.Measured):
            life = self._lives[entry.job]
            loading = max(now, life.begin, now + entry.delay)
            self._book(now, life)
            life.speed, life.begin = entry.speed, loading
        elif isinstance(entry, _STOPS):
            life = self._lives[entry.job]
            self._book(now, life)
            life.speed = 0.0
            life.begin = now
            if isinstance(entry, ev.Interrupted):
                self.useful -= max(0.0, life.done - entry.work_done) * life.gpus if now <= self.window else 0.0
                life.done = entry.work_done
            self._place(now, life, None)
        elif isinstance(entry, (pl.Start, pl.Migrate, pl.Resize)):
            if not isinstance(entry, pl.Start):
                self._book(now, self._lives[entry.job])
                self._lives[entry.job].speed = 0.0
                self._lives[entry.job].begin = now
            self._place(now, self._lives[entry.job], entry.placement)
        if isinstance(entry, (pl.Migrate, pl.Resize, pl.Preempt)):
            self.actions[type(entry).__name__] += 1

    def _book(self, now: float, life: _Life) -> None:
        if now <= life.begin or life.speed <= 0:
            return
        life.done += life.speed * (now - life.begin)
        self.useful += life.speed * max(0.0, min(now, self.window) - min(life.begin, self.window)) * life.gpus
        life.begin = now

    def _place(self, now: float, life: _Life, placement: Placement | None) -> None:
        self._gangs -= life.gang
        self._apart -= life.apart
        life.gang = life.apart = False
        if placement is not None and placement.gpus > 1:
            kind = self._topology.machines[placement.slices[0][0]].gpu_type
            life.gang = True
            life.apart = len(placement.slices) > -(-placement.gpus // self._largest[kind])
        self._gangs += life.gang
        self._apart += life.apart
        self.apart.append((now, self._gangs, self._apart))

    def throughput(self) -> float:
        """GPUs' worth of useful work per second inside the window."""
        return self.useful / self.window

    def share_apart(self, until: float | None = None, since: float = 0.0) -> float:
        """Of the time gangs ran between these times: part on more servers than they need."""
        until = self.window if until is None else until
        gangs = apart = 0.0
        for (now, all_, far), (later, _, _) in zip(self.apart, self.apart[1:], strict=False):
            length = max(0.0, min(later, until) - max(now, since))
            gangs += all_ * length
            apart += far * length
        return apart / gangs if gangs else 0.0
