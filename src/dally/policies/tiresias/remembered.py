"""What Tiresias remembers of its jobs: on how many machines they run, what their ends taught about placement and about
total GPU time, who has not been told yet why it waits, and where they stand in the queues. Never compiled: a memory's
fields are its annotations."""

from __future__ import annotations

import math
from typing import NamedTuple

from dally.core.memory import Memory, Order, Table
from dally.policies.tiresias.profile import Seen


class Standing(NamedTuple):
    """Where a job stands, and when it moves on by itself."""

    queue: int = 0
    start: float = math.inf  # its place in the order of starts
    restart: float = 0.0  # service it had had at its last promotion
    restart_executed: float = 0.0  # and time it had executed
    running: bool = False
    promoted: bool = False  # until it is demoted again
    due: float | None = None  # its demotion, while it runs, or promotion, while it waits
    look: float | None = None  # when its index is to be worked out again


Due = tuple[float, int, str]  # time, order of arrival, job


class PaperMemory(Memory):
    planned: float = -math.inf  # when a plan was last made
    machines: Table[str, int]  # gangs that run → on how many machines they were measured
    seen: Table[str, Seen]  # model → what its gangs showed
    unexplained: Table[str, bool]  # began to wait, or to wait for something else, and nobody has said why yet
    totals: Table[str, float]  # jobs that ended → GPU-seconds they took, in the order of their ends
    fitted: int = 0  # so many of the totals, the first ones, are in the distribution that counts


class QueuesMemory(PaperMemory):
    standings: Table[str, Standing]
    due: Order[Due]  # demotions and promotions, as the standings have them
    looks: Order[Due]  # likewise


class ContinuousMemory(PaperMemory):
    next_look: float = 0.0  # when the indexes of running jobs are worked out again
