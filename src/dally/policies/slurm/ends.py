"""When and where a job could start if nobody else came: running jobs are taken to end at their time limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dally.core.plan import Demand
from dally.policies.slurm.nodes import Chosen, Nodes, RoomLater
from dally.policies.slurm.settings import Partition

FIRST_WINDOW = 30.0  # seconds: jobs that end within it are taken to end together, then within twice as many, …
KILL_WAIT = 30.0  # seconds between the end of a job's limit and its being killed


class End(NamedTuple):
    """A job that runs: when its limit ends, and what it then leaves."""

    time: float
    job: str
    gpus: Chosen
    nodes: int


class Answer(NamedTuple):
    start: float
    chosen: Chosen


def will_run(nodes: Nodes, room: RoomLater, ends: Sequence[End], demand: Demand, partition: Partition, allowed: int,
             near: str | None, now: float, one_by_one: bool = False) -> Answer | None:  # fmt: skip
    """The jobs on these nodes are let end one after the other, those that end close together at once, until it fits.

    The later, the coarser: a start may be foreseen too late, and never too early as long as limits are kept."""
    wanted = nodes.wanted(demand, partition, allowed)
    there = [end for end in ends if end.nodes & allowed]
    for together in ([end] for end in there) if one_by_one else groups(there):
        for end in together:
            room.give(end.gpus)
        if not any((room.at_least(each.gpus) & where).bit_count() >= each.nodes for each, where in wanted):
            continue
        chosen = nodes.find(room, demand, partition, allowed, near)
        if chosen is not None:
            last = together[-1].time
            return Answer(last if last > now else max(last + KILL_WAIT, now + 1.0), chosen)
    return None


def groups(ends: Sequence[End]) -> Iterator[Sequence[End]]:
    """Jobs that are taken to end at once: those within a window that begins at the first end, on a grid of its own
    width, and is twice as wide at each step, or wide enough to hold the next end."""
    window = FIRST_WINDOW
    edge = ends[0].time - ends[0].time % window + window if ends else 0.0
    begin = 0
    while begin < len(ends):
        stop = begin + 1
        while stop < len(ends) and ends[stop].time <= edge + window:
            stop += 1
        yield ends[begin:stop]
        window *= 2.0
        while stop < len(ends) and ends[stop].time > edge + window:
            window *= 2.0
        begin = stop
