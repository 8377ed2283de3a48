"""What the released simulator's rules remember. Never compiled: a memory's fields are its annotations."""

from __future__ import annotations

import math
from typing import NamedTuple

from dally.core.memory import Memory, Order, Table


class Standing(NamedTuple):
    """Where a job stands: its queue, its place in it, and the two clocks that move it between queues."""

    number: int
    gpus: int
    order: int
    queue: int = 0
    running: bool = False
    tail: bool = False  # demoted at this event: behind the pending ones for one placement
    restart: float = 0.0  # executed time at its last promotion
    executed: float = 0.0  # since then, as of its last preemption
    since: float = 0.0  # while it runs: now − executed time since its last promotion
    waited: float = 0.0  # pending time since it last entered queue 0, up to its last start
    idle_since: float = 0.0
    promotion: float | None = None  # when it is due, while it waits below queue 0
    crossing: float | None = None  # when its index becomes another one, while it runs

    @property
    def place(self) -> tuple[int, int, int]:
        return (self.queue, 0 if self.running and not self.tail else 1, self.order)


Due = tuple[float, int, str]  # time or virtual start, order of arrival, job


class ReleasedMemory(Memory):
    planned: float = -math.inf  # when a plan was last made
    standings: Table[str, Standing]
    clocks: Table[tuple[int, int], tuple[Due, ...]]  # (queue, GPUs) → running jobs, longest executed first
    promotions: Order[Due]  # as the standings have them, and so the crossings
    crossings: Order[Due]
    demoted: tuple[str, ...] = ()  # at the last event
    front: int = 0  # first place among the pending
    back: int = 0  # last place among the pending
    runs: int = 0  # last place among the running
    jump: float | None = None  # the next timer
    demotion: float = -math.inf  # nobody is demoted before
    stale: bool = False  # whether a timer has woken us that does not hold any more
