"""When and where a job could start if nobody else came: running jobs are taken to end at their time limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.policies.slurm.nodes import Chosen, Nodes, RoomLater
from dally.policies.slurm.settings import Partition

FIRST_WINDOW = 30.0  # seconds: jobs that end within it are taken to end together, then within twice as many, …
KILL_WAIT = 30.0  # seconds between the end of a job's limit and its being killed


class End(NamedTuple):
    """A job that runs: when its limit ends, and what it then leaves."""

    time: float
    job: str
    placement: Placement
    nodes: int


class Answer(NamedTuple):
    start: float
    chosen: Chosen


def will_run(nodes: Nodes, room: RoomLater, ends: Sequence[End], demand: Demand, partition: Partition, allowed: int,
             near: str | None, now: float) -> Answer | None:  # fmt: skip
    """The jobs on these nodes are let end one after the other, those that end close together at once, until it fits.

    The later, the coarser: after each look the window is twice as wide, so that a start may be foreseen too late, and
    never too early as long as limits are kept."""
    window, edge = FIRST_WINDOW, 0.0
    mine = [end for end in ends if end.nodes & allowed]
    index = 0
    while index < len(mine):
        if not edge:
            edge = mine[0].time - mine[0].time % window + window
        last = mine[index]
        while True:
            last = mine[index]
            room.give(last.placement)
            index += 1
            if index == len(mine) or mine[index].time > edge + window:
                break
        window *= 2.0
        while index < len(mine) and mine[index].time > edge + window:
            window *= 2.0
        chosen = nodes.find(room, demand, partition, allowed, near)
        if chosen is not None:
            return Answer(last.time if last.time > now else max(last.time + KILL_WAIT, now + 1.0), chosen)
    return None
