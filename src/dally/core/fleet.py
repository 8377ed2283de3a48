"""The machines of a cluster as they come and go: down, drained, up again, new, taken out. Part of the books."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.free import FreeGpus, lowest_gpus
from dally.core.placement import Placement
from dally.core.sharing import Groups
from dally.core.states import possible
from dally.core.topology import changed as laid_out

if TYPE_CHECKING:
    from dally.core.books import Books


class Fleet:
    """Which machines get no jobs, and what their jobs have to do with it. Each way in says why, where an event does not
    fit."""

    __slots__ = ("_books", "down", "drained", "masks", "withheld")

    def __init__(self, books: Books) -> None:
        self._books = books
        self.down: set[int] = set()  # machines that get no jobs: gone, or drained
        self.drained: set[str] = set()  # those of them whose jobs go on, by name
        self.withheld: dict[str, int] = {}  # GPUs that others have, by the machine's name
        self.masks: dict[str, int] = {}  # … and which of the machine's bits stand for them, as far as some were free

    def went_down(self, now: float, event: ev.MachineDown) -> str | None:
        machine = self._books.view.topology.machine_by_name.get(event.machine)
        if machine is None:
            return "the cluster has no such machine"
        if machine in self.down and event.machine not in self.drained:
            return "it is down already"
        self._close(machine)
        self.drained.discard(event.machine)
        for job in self._on(machine):  # the world has not said yet what became of them
            if possible(job.state, "lose"):
                self._books.lose(now, job)
        return None

    def _close(self, machine: int) -> None:
        """Nobody gets GPUs there."""
        if machine not in self.down:
            self._books.view.free.take_mask(machine, self._books.view.free.masks[machine])
            self.down.add(machine)
            self._books.view.layout += 1

    def was_drained(self, now: float, event: ev.MachineDrained) -> str | None:
        machine = self._books.view.topology.machine_by_name.get(event.machine)
        if machine is None:
            return "the cluster has no such machine"
        if machine in self.down:
            return "it is drained already" if event.machine in self.drained else "it is down"
        self._close(machine)
        self.drained.add(event.machine)
        self.pin()
        return None

    def withheld_now(self, now: float, event: ev.GpusWithheld) -> str | None:
        machine = self._books.view.topology.machine_by_name.get(event.machine)
        if machine is None:
            return "the cluster has no such machine"
        if not 0 <= event.gpus <= self._books.view.topology.machines[machine].gpus:
            return "the machine has not so many GPUs"
        if event.gpus == self.withheld.get(event.machine, 0):
            return "so many are withheld already"
        if event.gpus:
            self.withheld[event.machine] = event.gpus
        else:
            del self.withheld[event.machine]
        held = self.masks.get(event.machine, 0)
        kept = lowest_gpus(held, min(event.gpus, held.bit_count()))
        self._hold_back(event.machine, kept)
        if machine not in self.down:
            self._books.view.free.give_mask(machine, held & ~kept)
        return None

    def withhold(self) -> None:
        """Take what others have and is free by now. Not while a plan is carried out, which was made without it."""
        if not self.withheld:
            return
        if len(self.masks) == len(self.withheld) and \
                all(self.masks[name].bit_count() == count for name, count in self.withheld.items()):  # fmt: skip
            return
        free, machines = self._books.view.free, self._books.view.topology.machine_by_name
        for name, count in self.withheld.items():
            machine, held = machines[name], self.masks.get(name, 0)
            there = free.masks[machine] if machine not in self.down else self._idle(machine)
            if more := lowest_gpus(there, min(count - held.bit_count(), there.bit_count())):
                self._hold_back(name, held | more)
                if machine not in self.down:
                    free.take_mask(machine, more)

    def _hold_back(self, name: str, mask: int) -> None:
        if mask:
            self.masks[name] = mask
        else:
            self.masks.pop(name, None)

    def _idle(self, machine: int) -> int:
        """GPUs of a machine that no job has and that are not withheld, whether it is down or not."""
        topology = self._books.view.topology
        held = self.masks.get(topology.machine_names[machine], 0)
        for job in self._on(machine):
            for placement in (job.placement, job.leaving):
                held |= dict(placement.slices).get(machine, 0) if placement is not None else 0
        return topology.machines[machine].full_mask & ~held

    def pin(self) -> None:
        """Jobs on drained machines go on to their end: what they would leave, nobody could be given."""
        drained = {self._books.view.topology.machine_by_name[name] for name in self.drained}
        for job in self._books.holding.values():
            pinned = job.placement is not None and any(machine in drained for machine, _ in job.placement.slices)
            if pinned != job.pinned:
                job.pinned = pinned
                self._books.view.preemptible.discard(job)
                if job.movable:
                    self._books.unranked[job.id] = job

    def came_up(self, now: float, event: ev.MachineUp) -> str | None:
        machine = self._books.view.topology.machine_by_name.get(event.machine)
        if machine is None:
            return "the cluster has no such machine"
        if machine not in self.down:
            return "it was not down"
        self.down.discard(machine)
        if event.machine in self.drained:
            self.drained.discard(event.machine)
            self.pin()
        self._books.view.layout += 1
        self._books.view.free.give_mask(machine, self._idle(machine))
        return None

    def _on(self, machine: int) -> list[ActiveJob]:
        """Jobs with a GPU on the machine. Looks at all that hold any: machines seldom fail."""
        return [job for job in self._books.holding.values()
                if any(placement is not None and any(m == machine for m, _ in placement.slices)
                       for placement in (job.placement, job.leaving))]  # fmt: skip

    def changed(self, now: float, event: ev.MachinesChanged) -> str | None:
        view, before = self._books.view, self._books.view.topology
        try:
            view.topology = after = laid_out(before, event.added, event.removed)
        except UserError as error:
            return str(error)
        for machine in sorted(before.machine_by_name[name] for name in event.removed):
            for job in self._on(machine):
                if possible(job.state, "lose"):
                    self._books.lose(now, job)
        numbers = {machine.index: after.machine_by_name.get(machine.name) for machine in before.machines}
        down = {found for machine in self.down if (found := numbers[machine]) is not None}
        self.down.clear()
        self.down.update(down)
        self.drained.intersection_update(after.machine_by_name)
        view.free = FreeGpus(after)
        groups, view.groups = view.groups, Groups()
        for job in self._books.holding.values():
            job.placement = None if job.placement is None else _renumbered(job.placement, numbers)
            job.leaving = None if job.leaving is None else _renumbered(job.leaving, numbers)
        self._books.lay_out(self._books.residents.shares)
        for group in groups:
            view.groups.adopt(group, _renumbered(group.placement, numbers))
        taken: set[Placement] = set()
        for job in self._books.holding.values():
            for held in (job.placement, job.leaving):
                if held is not None and held not in taken:
                    taken.add(held)
                    view.free.take(held)
        for name in [name for name in self.withheld if name not in after.machine_by_name or name in event.removed]:
            del self.withheld[name]
            self.masks.pop(name, None)
        for name, mask in self.masks.items():
            view.free.take_mask(after.machine_by_name[name], mask)
        for machine in self.down:
            view.free.take_mask(machine, view.free.masks[machine])
        view.layout += 1
        if self._books.learning is not None:
            self._books.learning.lay_out(after)
        self._books.laid_out_before = self._books.laid_out_before or before
        return None


def _renumbered(placement: Placement, numbers: dict[int, int | None]) -> Placement:
    """The same GPUs under the machines' new numbers, without those that are gone."""
    pairs = ((numbers[machine], mask) for machine, mask in placement.slices)
    return Placement.of((machine, mask) for machine, mask in pairs if machine is not None)
