"""When each of Slurm's two schedulers looks at the queue, and what it has heard since it last did."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Entry
from dally.core.policy import View
from dally.policies.slurm.backfill import Backfill
from dally.policies.slurm.ends import Ends
from dally.policies.slurm.memory import GONE, NO_NEWS, SlurmMemory
from dally.policies.slurm.nodes import Nodes
from dally.policies.slurm.rules import SlurmRules
from dally.policies.slurm.settings import Settings
from dally.policies.slurm.turn import Line, Turn, unlooked


def hear_news(rules: SlurmRules, ends: Ends, view: View, memory: SlurmMemory, now: float,
              entries: Sequence[Entry]) -> None:  # fmt: skip
    """Who has GPUs, who has none any more, and that there is something to look at."""
    heard = False
    for entry in entries:
        if type(entry) in NO_NEWS:
            continue
        if not heard:
            heard = memory.wanted = memory.changed = True
        _touch(ends, memory, entry)
        if isinstance(entry, pl.Start):
            job = view.job(entry.job)
            rules.began(memory, view, job, job.placement, now, job.last_change)
            memory.told.pop(job.id, None)
            memory.stopped.pop(job.id, None)
        elif isinstance(entry, GONE):
            rules.ended(memory, view, entry.job, now)
            memory.told.pop(entry.job, None)


def _touch(ends: Ends, memory: SlurmMemory, entry: Entry) -> None:
    """Whose GPUs may be others from now on."""
    if isinstance(entry, ev.Arrived):
        return
    job = getattr(entry, "job", None)
    if isinstance(job, str):
        ends.touched[job] = None
    else:  # of machines
        ends.touched.update(dict.fromkeys(memory.limits))


def plan_passes(rules: SlurmRules, nodes: Nodes, line: Line, ends: Ends, view: View, memory: SlurmMemory,
                now: float) -> pl.Plan:  # fmt: skip
    """Whatever is due: a pass of the main scheduler, one of backfill, and to be asked again when the next one is."""
    settings = rules.settings
    if now >= memory.timer:
        memory.wanted = memory.changed = True
        memory.timer = math.inf  # who still waits says so again when it is looked at
    main = memory.wanted and now >= memory.main + settings.batch_sched_delay
    backfill = settings.backfill and memory.changed and now >= memory.backfilled + settings.bf_interval
    if main or backfill:
        with view.free.trial() as free:
            turn = Turn(rules, nodes, line, ends, view, memory, free, now)
            if main:
                full = now >= memory.full + settings.sched_interval
                turn.main_pass(full)
                memory.wanted, memory.main = False, now
                memory.full = now if full else memory.full
            if backfill:
                memory.changed = Backfill(turn).run()
                memory.backfilled = now
        plan = turn.plan()
    else:
        plan = unlooked(view)
    if nodes.reserved:  # when a reservation begins or ends, others may start
        memory.timer = min(memory.timer, nodes.next_change(now) or math.inf)
    due = _due(settings, memory)
    if now < due < math.inf:
        plan.append(pl.WakeAt(due))
    return plan


def _due(settings: Settings, memory: SlurmMemory) -> float:
    """When somebody will look again, as far as is known."""
    due = memory.timer
    if memory.wanted:
        due = min(due, memory.main + settings.batch_sched_delay)
    if memory.changed and settings.backfill:
        due = min(due, memory.backfilled + settings.bf_interval)
    if settings.ages:
        due = min(due, memory.calculated + settings.calc_period)
    return due
