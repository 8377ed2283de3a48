"""Servers as Gandiva sees them: which size of job a server is for, how high it is loaded, who takes turns on it.

Who is on which GPUs is read from the view's groups, of a plan in the making from the groups it is tried on. What
follows from them is indexed here, on the memory's draft; only the affinities depend on what was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Generic, TypeVar, cast

from dally.core.memory import Draft, Order, Table
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand
from dally.core.policy import View
from dally.core.shape import broken
from dally.core.sharing import Group
from dally.policies.gandiva.memory import Class, GandivaMemory

V = TypeVar("V")


@lru_cache(maxsize=4096)
def class_of(gpu_type: str, gpus: int) -> Class:
    """Equal ones are one object: whoever looks them up sees that they are the same, and need not compare them."""
    return Class(gpu_type, gpus)


class ByClass(dict[Class, Order[V]], Generic[V]):
    """An order for each class; an empty one is as good as none."""

    def __init__(self, draft: Draft) -> None:
        super().__init__()
        self._draft = draft

    def __missing__(self, wanted: Class) -> Order[V]:
        made: Order[V] = Order(self._draft)
        self[wanted] = made
        return made


class Servers:
    """Affinity and height per server, groups of a class by turns, packed jobs by age.

    A server's affinity is the size of the jobs that hold most of its GPUs (OSDI'18: the size of its
    jobs; ours where sizes are mixed). Its height is ⌈allocated GPUs / GPUs⌉; packed jobs run at once, count once.
    """

    def __init__(self, view: View, memory: GandivaMemory) -> None:
        self.view, self._memory = view, memory
        self._affinity = cast("Table[int, int]", memory.affinity)  # numbers of machines are numbers here
        machines, draft = view.topology.machines, memory.draft
        sizes = {kind: [m.gpus for m in machines if m.gpu_type == kind] for kind in view.topology.gpu_types}
        self._largest = {kind: max(gpus) for kind, gpus in sizes.items()}
        self.smallest = {kind: min(gpus) for kind, gpus in sizes.items()}  # GPUs of the smallest server
        self.classes: ByClass[tuple[int, Placement]] = ByClass(draft)  # (turns, GPUs) where servers are for the class
        self.packed: ByClass[tuple[int, str]] = ByClass(draft)  # (order, job) of jobs packed beside another
        self.high: Table[Class, int] = Table(draft)  # how many of them have more than one turn
        self._listed: Table[Placement, tuple[Class, int]] = Table(draft)  # under which turns a group is in `classes`
        self._kept: Table[Placement, int] = Table(draft)  # turns kept for jobs on trial, should it be undone
        self._where: Table[str, Placement] = Table(draft)  # on which GPUs a job was counted
        self._affine: Table[int, int] = Table(draft)  # size → bit set of servers; 0: for none yet
        # classes in which nobody can be packed, though somebody waits, and nothing has changed since that was seen
        self.in_vain: Table[Class, bool] = Table(draft)
        self.cramped: dict[Class, int] = {}  # no free GPUs are near enough for such a gang, by `FreeGpus.changes`
        self._build()

    def _build(self) -> None:
        """From who is where, and from what is remembered."""
        memory, groups = self._memory, self.view.groups
        for trial in memory.trials.values():
            self._kept[trial.placement] = self._kept.get(trial.placement, 0) + 1
        for placement, both in list(self._kept.items()):
            self._kept[placement] = both // 2  # both of a pair have a note of their trial
        for machine in range(len(self.view.topology.machines)):
            found = _mostly(self._held(machine, None), self.affinity(machine))
            if found != self.affinity(machine):  # the cluster is another one than it was
                self._affinity[machine] = found
            self._affine[found] = self._affine.get(found, 0) | 1 << machine
        for group in groups:
            self._list(group.placement)
            for member in group.members:
                self._where[member] = group.placement
                if member in memory.packed and group.placement.slices:
                    self.packed[self._own_class(member, group.placement)].add((memory.packed[member], member))

    # --- what is asked ------------------------------------------------------------------------------------

    @property
    def idle(self) -> int:
        """Bit set of servers that no job has a GPU of."""
        return self._affine.get(0, 0)

    def affinity(self, machine: int) -> int:
        """Size of the jobs it is for; 0: none yet."""
        return self._affinity.get(machine, 0)

    def affine(self, size: int) -> int:
        """Bit set of the servers for jobs of this size."""
        return self._affine.get(size, 0)

    def fewest(self, gpu_type: str, size: int) -> int:
        """How many servers a gang needs at least."""
        return -(-size // self._largest[gpu_type])

    def height(self, machine: int) -> int:
        gpus = self.view.topology.machines[machine].gpus
        return -(-sum(self._held(machine, None).values()) // gpus)

    def gpu_type(self, placement: Placement) -> str:
        """None, as text, where all its machines were taken out of the cluster."""
        return self.view.topology.machines[placement.slices[0][0]].gpu_type if placement.slices else ""

    def size(self, group: Group) -> int:
        """Of the group's jobs as submitted; grown ones hold more."""
        return self.view.job(group.turns[0][0]).gpus

    def class_of(self, group: Group) -> Class:
        return class_of(self.gpu_type(group.placement), self.size(group))

    def turns(self, group: Group) -> int:
        """Turns on these GPUs, with those that are kept for jobs on trial."""
        return len(group.turns) + self._kept.get(group.placement, 0)

    def lowest(self, wanted: Class, demand: Demand) -> tuple[int, Group] | None:
        """Turns and group with the fewest turns on servers of this affinity, on GPUs where such a gang may be."""
        listed = self.classes.get(wanted)
        if not listed:
            return None
        if demand.where is None or not demand.bound:
            return self._entry(listed[0])
        return next((self._entry(entry) for entry in listed if self.may_be_on(entry[1], demand)), None)

    def steepest(self, wanted: Class) -> int:
        """By how many turns groups of the class differ at most."""
        listed = self.classes.get(wanted)
        return listed[-1][0] - listed[0][0] if listed else 0

    def any_part(self, within: str | None) -> bool:
        """Whether any GPUs of one server are inside one domain of a level."""
        topology = self.view.topology
        return within is None or topology.level_index(within) >= topology.machine_level

    def may_be_on(self, placement: Placement, demand: Demand) -> bool:
        """Whether such a gang may be on these GPUs: they are inside one domain of the level it must be inside of, and
        of its shape."""
        topology, within = self.view.topology, demand.within
        inside = within is None or placement.level(topology) <= topology.level_index(within)
        return inside and broken(topology, demand, placement) is None

    def sliced(self, wanted: Class) -> Iterator[Group]:
        """Groups of the class whose jobs take turns, the highest first."""
        for entry in reversed(self.classes.get(wanted, ())):
            if entry[0] == 1:
                return
            group = self._entry(entry)[1]
            if group.sliced:
                yield group

    def takes_turns(self, wanted: Class) -> bool:
        """Whether jobs of any group of the class do."""
        for _ in self.sliced(wanted):
            return True
        return False

    def _entry(self, entry: tuple[int, Placement]) -> tuple[int, Group]:
        group = self.view.groups.at(entry[1])
        assert group is not None
        return entry[0], group

    def up(self, placement: Placement) -> bool:
        """Whether all of its servers are there."""
        down = self.view.down
        return not down or not any(machine in down for machine, _ in placement.slices)

    # --- what changes -------------------------------------------------------------------------------------

    def entered(self, job_id: str, placement: Placement) -> None:
        """The job is on these GPUs now."""
        self._where[job_id] = placement
        self.recount(placement)

    def left(self, job_id: str, *, for_good: bool = True) -> Placement | None:
        """The job is off its GPUs; which they were, None where it held none."""
        placement = self._where.get(job_id)
        if placement is None:
            self._memory.packed.pop(job_id, None)
            return None
        if for_good:
            del self._where[job_id]
        self._unpacked(job_id, placement)
        self.recount(placement)
        return placement

    def recount(self, placement: Placement) -> None:
        """Somebody came to these GPUs, left them or is in another turn: what that does to their servers."""
        group = self.view.groups.at(placement)
        for machine, mask in placement.slices:
            before = self.affinity(machine)
            held = self._held(machine, group)
            after = _mostly(held, before)
            if group is not None:  # counted anew: what is left without it decides where there are equals
                size = self.size(group)
                held[size] = held.get(size, 0) + len(group.turns) * gpus_in(mask)
                after = _mostly(held, after)
            if after != before:
                self._change(machine, before, after)
        self._list(placement)
        if group is not None and self.in_vain:
            self.changed(self.class_of(group))
        for turn in group.turns if group is not None and self._memory.packed else ():
            if len(turn) == 1:  # who was packed beside it is gone
                self._unpacked(turn[0], placement)

    def relist(self, machine: int) -> None:
        """The server went or came back: nobody is sent to one that is down."""
        for group in self.view.groups.on(machine):
            self._list(group.placement)

    def note_packed(self, job_id: str) -> None:
        """The job came to run beside another: it is the one to leave when there is room again."""
        if job_id not in self._memory.packed:
            order = self._memory.packed[job_id] = self._memory.next()
            self.packed[self._own_class(job_id, self.view.groups.of(job_id).placement)].add((order, job_id))

    def _unpacked(self, job_id: str, placement: Placement) -> None:
        order = self._memory.packed.pop(job_id, None)
        if order is not None:
            self.packed[self._own_class(job_id, placement)].discard((order, job_id))

    def _own_class(self, job_id: str, placement: Placement) -> Class:
        return class_of(self.gpu_type(placement), self.view.job(job_id).gpus)

    def keep_turn(self, placement: Placement, count: int) -> None:
        """Keep so many turns more for jobs whose packing on these GPUs is on trial; a negative number: fewer."""
        kept = self._kept.get(placement, 0) + count
        if kept > 0:
            self._kept[placement] = kept
        else:
            self._kept.pop(placement, None)
        self._list(placement)
        group = self.view.groups.at(placement)
        if group is not None:
            self.changed(self.class_of(group))

    def changed(self, wanted: Class) -> None:
        """Who has which GPUs, who is profiled there or how many turns they have: a pair may be possible by now."""
        if wanted in self.in_vain:
            del self.in_vain[wanted]

    def _list(self, placement: Placement) -> None:
        """Put the group where arrivals of its class look for it: only on servers for its size, and never grown."""
        group = self.view.groups.at(placement)
        entry: tuple[Class, int] | None = None
        fits = group is not None and placement.gpus == self.size(group) == self.affinity(placement.slices[0][0])
        if group is not None and fits and self.up(placement):
            entry = class_of(self.gpu_type(placement), placement.gpus), self.turns(group)
        known = self._listed.get(placement)
        if known == entry:
            return
        if known is not None:
            wanted, turns = known
            self.classes[wanted].remove((turns, placement))
            if turns > 1:
                self.high[wanted] -= 1
        if entry is None:
            del self._listed[placement]
        else:
            wanted, turns = self._listed[placement] = entry
            self.classes[wanted].add((turns, placement))
            if turns > 1:
                self.high[wanted] = self.high.get(wanted, 0) + 1

    def _held(self, machine: int, but: Group | None) -> dict[int, int]:
        """GPUs × turns on a server by size of job, without those of one group."""
        held: dict[int, int] = {}
        for group in self.view.groups.on(machine):
            if group is not but:  # objects
                size = self.size(group)
                for server, mask in group.placement.slices:
                    if server == machine:
                        held[size] = held.get(size, 0) + len(group.turns) * gpus_in(mask)
                        break
        return held

    def _change(self, machine: int, before: int, after: int) -> None:
        """The server is for jobs of another size from now on."""
        self._affinity[machine] = after
        bit = 1 << machine
        self._affine[before] = self._affine.get(before, 0) & ~bit
        self._affine[after] = self._affine.get(after, 0) | bit
        for group in self.view.groups.on(machine):
            if group.placement.slices[0][0] == machine:
                self._list(group.placement)


def _mostly(held: dict[int, int], before: int) -> int:
    """The size that holds most; among equals the one it was for stays, then the smaller one."""
    found, most = 0, -1
    for size, gpus in held.items():
        if gpus > most or (gpus == most and found != before and (size == before or size < found)):
            found, most = size, gpus
    return found
