"""GPUs that several jobs hold, as the simulated world runs them: in fluid shares, or quantum by quantum.

Fluid: a turn of weight w in a group with quantum q and n turns makes progress all the time, at the fraction
w·q / (Σ w·q + n·s) of its pace, s being the price of one switch. Quanta: one turn at a time is served for w·q,
rounded up to a whole step, and every switch costs s. docs/sharing.md says how far the two are apart.

On the links a group stands for one turn: the one being served, or (fluid) the first. The members of the other turns
are as much slowed down by neighbours as it is, and its own members never meet on the links.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.sharing import Group, Groups, Interference, NoInterference, Share
from dally.network.model import NetworkModel, Step
from dally.simulator.costs import SUSPEND_RESUME
from dally.simulator.running import RunningJob

Entered = list[tuple[Job, Placement]]


@dataclass(frozen=True, slots=True)
class SharingRules:
    """How shared GPUs behave in a simulated world."""

    interference: Interference = field(default_factory=NoInterference)
    gpu_types: Sequence[str] = ()  # per machine; empty: nobody asks
    switch: float = SUSPEND_RESUME  # seconds between the end of a turn and the beginning of the next
    quanta: bool = False  # whether turns are run one by one


class Wheel:
    """The turns of one group, one of which is being served."""

    __slots__ = ("begins", "epoch", "group", "index", "scheduled", "turn")

    def __init__(self, group: Group, now: float) -> None:
        self.group, self.turn, self.index = group, group.turns[0], 0
        self.begins = now
        self.epoch = 0
        self.scheduled = False

    def serve(self, index: int, begins: float) -> None:
        self.index = index % len(self.group.turns)
        self.turn, self.begins = self.group.turns[self.index], begins
        self.epoch += 1
        self.scheduled = False

    def position(self) -> int | None:
        """Where its turn is now; None where it is gone."""
        return next((i for i, turn in enumerate(self.group.turns) if turn is self.turn), None)  # objects


class Slices:
    """The groups of a world in which somebody shares."""

    def __init__(self, rules: SharingRules, network: NetworkModel, running: Mapping[str, RunningJob]) -> None:
        self.rules = rules
        self.groups = Groups()
        self.changed: dict[Placement, Group] = {}  # in this instant
        self.quiet: set[Placement] = set()  # of these, groups in which only the turn went on
        self._network, self._running = network, running
        self._linked: set[str] = set()  # jobs the network knows
        self._wheels: dict[Placement, Wheel] = {}
        for job_id, run in running.items():
            assert run.placement is not None
            self.groups.enter(job_id, run.placement)
            self._linked.add(job_id)

    # --- who comes, goes and changes ------------------------------------------------------------------------

    def enter(self, job_id: str, placement: Placement, share: Share | None) -> bool:
        """True where nobody is on these GPUs yet."""
        first = self.groups.enter(job_id, placement, share)
        self._touch(self.groups.of(job_id))
        return first

    def leave(self, job_id: str) -> None:
        self._touch(self.groups.leave(job_id))

    def reshare(self, job_id: str, share: Share) -> None:
        self._touch(self.groups.reshare(job_id, share))

    def _touch(self, group: Group) -> None:
        self.changed[group.placement] = group
        self.quiet.discard(group.placement)

    # --- speeds ----------------------------------------------------------------------------------------------

    def on_the_links(self, now: float, left: Iterable[str], placed: Entered) -> tuple[list[str], Entered]:
        """Who left the links and who entered them, given who left and who was placed on GPUs."""
        out = list(left)
        self._linked.difference_update(out, (job.id for job, _ in placed))
        for job, _ in placed:
            self._touch(self.groups.of(job.id))
        entered: Entered = []
        for group in self.changed.values():
            if self.rules.quanta:
                self._turn_wheel(now, group)
            if not group:
                continue
            served = self._served(group)
            for member in group.members:
                if member in served and member not in self._linked:
                    self._linked.add(member)
                    entered.append((self._running[member].job, group.placement))
                elif member not in served and member in self._linked:
                    self._linked.discard(member)
                    out.append(member)
        return out, entered

    def steps(self, now: float, moved: Mapping[str, Step]) -> tuple[dict[str, Step], set[str]]:
        """Steps of everybody whose speed may have changed; and of these, who only waits for the next turn."""
        answer = dict(moved)
        groups = {placement: group for placement, group in self.changed.items() if group}
        for job_id in moved:
            group = self.groups.of(job_id)
            if len(group) > 1:
                groups[group.placement] = group
        for group in groups.values():
            linked = [answer.get(m) or self._running[m].network_step for m in group.members if m in self._linked]
            neighbours = max(step.neighbours for step in linked)
            for member in group.members:
                if member not in answer:
                    run = self._running[member]
                    answer[member] = run.network_step if member in self._linked else _slowed(
                        self._network.step_time(run.job, group.placement, now), neighbours)  # fmt: skip
        quiet = {member for placement in self.quiet for member in groups[placement].members}
        self.changed.clear()
        self.quiet.clear()
        return answer, quiet

    def scale(self, run: RunningJob) -> tuple[float, float]:
        """(part of the time it makes progress in, slowdown by those packed with it)."""
        group = self.groups.of(run.job.id)
        slowdown = 1.0
        others = group.others(run.job.id)
        if others:
            jobs = [self._running[other].job for other in others]
            slowdown = max(1.0, self.rules.interference.slowdown(run.job, jobs, self._gpu_type(group)))
        if not group.sliced:
            return 1.0, slowdown
        quantum = group.quantum
        whole = sum(group.weight(turn) for turn in group.turns) * quantum
        weight = group.weight(group.turn(run.job.id))
        return weight * quantum / (whole + len(group.turns) * self.rules.switch), slowdown

    def is_served(self, job_id: str) -> bool:
        """Whether it makes progress at this moment."""
        wheel = self._wheels.get(self.groups.of(job_id).placement)
        return wheel is None or job_id in wheel.turn

    def _served(self, group: Group) -> Sequence[str]:
        wheel = self._wheels.get(group.placement)
        return group.turns[0] if wheel is None else wheel.turn

    def _gpu_type(self, group: Group) -> str:
        return self.rules.gpu_types[group.placement.slices[0][0]] if self.rules.gpu_types else "gpu"

    # --- quantum by quantum ------------------------------------------------------------------------------------

    def _turn_wheel(self, now: float, group: Group) -> None:
        """The group changed: a wheel begins, ends, or passes over a turn that is gone."""
        wheel = self._wheels.get(group.placement)
        if wheel is not None and wheel.group is not group:  # objects: another group on the same GPUs
            wheel.epoch += 1
            wheel = None
            del self._wheels[group.placement]
        if wheel is None:
            if group.sliced:
                self._wheels[group.placement] = Wheel(group, now)
            return
        position = wheel.position()
        if position is not None:
            wheel.index = position
        elif group:
            self._serve(wheel, wheel.index, now)
        if not group.sliced:
            wheel.epoch += 1
            del self._wheels[group.placement]

    def turn_over(self, now: float, wheel: Wheel, epoch: int) -> None:
        """The turn that is being served has had its time."""
        if wheel.epoch != epoch:
            return
        group = wheel.group
        if group.placement not in self.changed:
            self.changed[group.placement] = group
            self.quiet.add(group.placement)
        position = wheel.position()
        if position is not None:  # else the change of the group passes on to the next
            self._serve(wheel, position + 1, now)

    def _serve(self, wheel: Wheel, index: int, now: float) -> None:
        wheel.serve(index, now + self.rules.switch)
        for job_id in wheel.turn:
            self._running[job_id].paused_until = wheel.begins

    def ends_of_turns(self) -> list[tuple[float, Wheel]]:
        """Turns that have begun and not been told yet when they end: at the first step boundary after w quanta."""
        ends = []
        for wheel in self._wheels.values():
            if not wheel.scheduled:
                wheel.scheduled = True
                step = self._running[wheel.turn[0]].step
                length = wheel.group.quantum * wheel.group.weight(wheel.turn)
                ends.append((wheel.begins + math.ceil(length / step - 1e-9) * step, wheel))
        return ends


def _slowed(step: Step, neighbours: float) -> Step:
    seconds = step.alone * neighbours
    return Step(seconds, step.compute, step.exposed + seconds - step.seconds, step.alone)
