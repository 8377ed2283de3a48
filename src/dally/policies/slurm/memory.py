"""What slurmctld has in mind between two passes: who runs until when, who has used how much, when it last looked."""

from __future__ import annotations

import math

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.memory import Memory, Table
from dally.policies.slurm.priority import NO_USAGE, Usage, decayed

Held = tuple[int, int, int, float]  # jobs, GPUs, nodes, and GPUs × the end of the limit, summed
NOTHING: Held = (0, 0, 0, 0.0)
GONE = (ev.Finished, ev.Failed, ev.Cancelled, ev.Yielded, ev.StartFailed, ev.Interrupted)
NO_NEWS: frozenset[type] = frozenset((ev.TimerDue, ev.Measured, ev.Started, ev.LeaseEnded, pl.Wait, pl.WakeAt))


class SlurmMemory(Memory):
    wanted: bool = False  # something happened that the main scheduler has not looked at yet
    changed: bool = False  # … that the backfill scheduler has not
    main: float = -math.inf  # when each last looked
    full: float = -math.inf
    backfilled: float = -math.inf
    calculated: float = -math.inf  # when priorities were last calculated
    timer: float = math.inf  # when the next job will have waited for its switches long enough
    limits: Table[str, float]  # jobs that have GPUs → when their time limit ends
    usage: Table[str, Usage]
    fair: Table[str, float]  # fair-share factors as last calculated
    told: Table[str, bool]  # jobs that were told their planned start
    held: Table[str, Held]  # what jobs that are counted together have (`limits.Bound.key`)
    booked: Table[str, tuple[float, int, str]]  # who is counted there: end of its limit, nodes, GPU type, as counted
    stopped: Table[str, bool]  # waiting jobs that were told of a limit in their way


def book(memory: SlurmMemory, who: str, gpus: float, now: float, half_life: float) -> None:
    """So many GPUs more (or less) are in use by an association from now on."""
    before = memory.usage.get(who, NO_USAGE)
    memory.usage[who] = (decayed(before, now, half_life), max(0.0, before[1] + gpus), now)
