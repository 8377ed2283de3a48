"""Jobs to places in line at the least total cost: a matching by successive shortest paths.

A place is (GPU type, turn from the end), with room for one job per GPU of the type, at the cost turn × seconds.
Jobs come one by one; each takes the cheapest way in, which may push jobs already placed from place to place. After
every job the matching is optimal for the jobs so far (the usual argument of successive shortest paths), so it is at
the end. The next turn of a type opens when the one before is full: earlier turns are cheaper, so a later one is
never needed before, and the paths stay short: as many places as jobs per GPU.
"""

from __future__ import annotations

import numpy as np

from dally.policies.gavel.allocation.grid import Floats, Ints

SLACK = 1e-12  # relative: a way in counts as shorter only beyond rounding


class Lines:
    """The places that are open, who is in them, and the cheapest move between any two."""

    def __init__(self, seconds: Floats, gpus: Ints) -> None:
        self.seconds, self.gpus = seconds, gpus
        self.kinds = np.zeros(0, dtype=np.int64)
        self.turns = np.zeros(0)
        self.members: list[list[int]] = []
        self.move = np.zeros((0, 0))  # what it costs more to have the cheapest member of a (row) in b (column)
        self.mover = np.zeros((0, 0), dtype=np.int64)
        finite = seconds[np.isfinite(seconds)]
        self.slack = SLACK * float(finite.max(initial=0.0)) * max(1, len(seconds))
        for kind in np.flatnonzero(gpus > 0).tolist():
            self._open(kind, 1)

    def enter(self, job: int) -> None:
        """The cheapest way in for one more job."""
        way, came_from = self._cost(job), np.full(len(self.kinds), -1)
        while True:
            through = way[:, None] + self.move
            before = np.argmin(through, axis=0)
            shorter = through[before, np.arange(len(way))]
            better = shorter < way - self.slack
            if not better.any():
                break
            way, came_from = np.where(better, shorter, way), np.where(better, before, came_from)
        room = np.array([len(members) for members in self.members]) < self.gpus[self.kinds]
        place = last = int(np.argmin(np.where(room, way, np.inf)))
        touched = [place]
        while came_from[place] >= 0:
            before_it = int(came_from[place])
            pushed = int(self.mover[before_it, place])
            self.members[before_it].remove(pushed)
            self.members[place].append(pushed)
            place = before_it
            touched.append(place)
        self.members[place].append(job)
        for place in touched:
            self._refresh(place)
        if len(self.members[last]) == self.gpus[self.kinds[last]]:
            self._open(int(self.kinds[last]), int(self.turns[last]) + 1)

    def _cost(self, jobs: int | list[int]) -> Floats:
        return np.asarray(self.seconds[jobs][..., self.kinds] * self.turns)

    def _refresh(self, place: int) -> None:
        """The cheapest moves out of a place; ties go to the job that came first."""
        members = self.members[place]
        if not members:
            self.move[place] = np.inf
            return
        members.sort()
        costs = self._cost(members)
        extra = costs - costs[:, place][:, None]
        first = np.argmin(extra, axis=0)
        self.move[place] = extra[first, np.arange(len(first))]
        self.mover[place] = np.array(members)[first]

    def _open(self, kind: int, turn: int) -> None:
        self.kinds, self.turns = np.append(self.kinds, kind), np.append(self.turns, float(turn))
        self.members.append([])
        self.move = np.pad(self.move, ((0, 1), (0, 1)), constant_values=np.inf)
        self.mover = np.pad(self.mover, ((0, 1), (0, 1)), constant_values=-1)
        for place in range(len(self.members) - 1):
            self._refresh(place)


def shortest_lines(seconds: Floats, gpus: Ints) -> tuple[Ints, Ints, float]:
    """Each job's GPU type and turn from the end, and the total cost.

    `seconds` is (jobs, types), infinite where a job cannot run; every job needs a GPU that it can run on.
    """
    lines = Lines(seconds, gpus)
    for job in range(len(seconds)):
        lines.enter(job)
    kind, turn = np.zeros(len(seconds), dtype=np.int64), np.zeros(len(seconds), dtype=np.int64)
    for place, members in enumerate(lines.members):
        kind[members] = lines.kinds[place]
        turn[members] = int(lines.turns[place])
    return kind, turn, float((turn * seconds[np.arange(len(seconds)), kind]).sum())
