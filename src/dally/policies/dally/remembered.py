"""All that waiting by value remembers, in one memory, and what timers do. Never compiled: a memory's fields are its
annotations."""

from __future__ import annotations

from dally.core.memory import Memory, Table
from dally.core.plan import Demand
from dally.policies.dally.arrivals import Arrivals
from dally.policies.dally.beliefs import Beliefs
from dally.policies.dally.ends import Ends
from dally.policies.dally.queue import Queue


class ValueMemory(Arrivals, Beliefs, Ends, Queue):
    """What comes, what is believed of jobs, when running ones end, who waits for what; and, per demand and tier, how
    much longer than expected openings took (others are faster, jobs run longer than declared)."""

    late: Table[tuple[Demand, int], float]
    forecasts: Table[tuple[Demand, int], tuple[int, int]]  # of openings: how many came true, of how many
    starves: str = ""  # the job that GPUs were last kept for
    apart: Table[str, bool]  # running jobs that could be nearer together when they got their GPUs
    paces: Table[str, float]  # of jobs that have not ended: work a second near, as believed when they last queued


History = tuple[tuple[float, float], ...]  # when an offer of one tier was taken, after how many leases; oldest first


class Histories(Memory):
    """The waits at which offers were taken, per demand and tier. Those that have left the window may still be in it."""

    taken: Table[Demand, tuple[History, ...]]
