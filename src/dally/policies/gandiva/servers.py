"""Servers as Gandiva sees them: who is on which GPUs, which size of job a server is for, how high it is loaded.

A mirror of the scheduler's own record that a plan can be tried on. It changes with the policy's own plans and with
what the world reports, so the two agree at the start of every plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedList

from dally.core.placement import Placement
from dally.core.sharing import Group, Groups, Share
from dally.core.topology import Topology

Class = tuple[str, int]  # GPU type and size of the gang: jobs of one class can share GPUs


class Servers:
    """Groups of jobs on identical GPUs, with affinity and height per server and the groups of a class by turns.

    A server's affinity is the size of the jobs that hold most of its GPUs (OSDI'18: the size of its
    jobs; ours where sizes are mixed). Its height is ⌈allocated GPUs / GPUs⌉; packed jobs run at once, count once.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.groups = Groups()
        self.idle = (1 << len(topology.machines)) - 1  # bit set of servers that no job has a GPU of
        self.classes: dict[Class, SortedList] = {}  # (turns, slices) of groups on servers of their affinity
        self.packed: dict[Class, dict[str, None]] = {}  # jobs that were packed beside another, oldest first
        self._largest = {kind: max(m.gpus for m in topology.machines if m.gpu_type == kind)
                         for kind in topology.gpu_types}  # fmt: skip
        self._size: dict[Placement, int] = {}  # of a group's jobs as submitted; grown ones hold more
        self._kept: dict[Placement, int] = {}  # turns kept for jobs whose packing is on trial, should it be undone
        self._listed: dict[Placement, int] = {}  # turns under which a group is in `classes`
        self._held: list[dict[int, int]] = [{} for _ in topology.machines]  # GPUs × turns by size of job
        self._affinity = [0] * len(topology.machines)
        self._affine: dict[int, int] = {}  # size → bit set of servers

    # --- what is asked ------------------------------------------------------------------------------------

    def affinity(self, machine: int) -> int:
        """Size of the jobs it is for; 0: none yet."""
        return self._affinity[machine]

    def affine(self, size: int) -> int:
        """Bit set of the servers for jobs of this size."""
        return self._affine.get(size, 0)

    def fewest(self, gpu_type: str, size: int) -> int:
        """How many servers a gang needs at least."""
        return -(-size // self._largest[gpu_type])

    def height(self, machine: int) -> int:
        gpus = self.topology.machines[machine].gpus
        return -(-sum(self._held[machine].values()) // gpus)

    def gpu_type(self, placement: Placement) -> str:
        return self.topology.machines[placement.slices[0][0]].gpu_type

    def class_of(self, group: Group) -> Class:
        return self.gpu_type(group.placement), self._size[group.placement]

    def turns(self, group: Group) -> int:
        """Turns on these GPUs, with those that are kept for jobs on trial."""
        return len(group.turns) + self._kept.get(group.placement, 0)

    def lowest(self, wanted: Class) -> tuple[int, Group] | None:
        """Turns and group with the fewest turns on servers of this affinity."""
        listed = self.classes.get(wanted)
        return self._entry(listed[0]) if listed else None

    def sliced(self, wanted: Class) -> Iterator[Group]:
        """Groups of the class whose jobs take turns, the highest first."""
        for entry in reversed(self.classes.get(wanted, ())):
            if entry[0] == 1:
                return
            group = self._entry(entry)[1]
            if group.sliced:
                yield group

    def _entry(self, entry: tuple[int, tuple[tuple[int, int], ...], int]) -> tuple[int, Group]:
        group = self.groups.at(Placement(entry[1], entry[2]))
        assert group is not None
        return entry[0], group

    # --- what changes -------------------------------------------------------------------------------------

    def enter(self, job_id: str, size: int, placement: Placement, share: Share) -> bool:
        """True where nobody held these GPUs before."""
        group = self.groups.at(placement)
        if group is not None:
            self._forget(group)
        new = self.groups.enter(job_id, placement, share)
        if new:
            self._size[placement] = size
        self._note(self.groups.of(job_id))
        return new

    def leave(self, job_id: str) -> Group | None:
        """The group it left, empty where it was the last; None where it held nothing."""
        if job_id not in self.groups:
            return None
        group = self.groups.of(job_id)
        self._forget(group)
        self.packed.get(self.class_of(group), {}).pop(job_id, None)
        turn = group.turn(job_id)
        self.groups.leave(job_id)
        if len(turn) == 1:  # who was packed beside it is alone now
            self.packed.get(self.class_of(group), {}).pop(turn[0], None)
        if group.turns:
            self._note(group)
        else:
            del self._size[group.placement]
        return group

    def reshare(self, job_id: str, share: Share) -> None:
        group = self.groups.of(job_id)
        self._forget(group)
        before = group.turn(job_id)
        self.groups.reshare(job_id, share)
        packed = self.packed.setdefault(self.class_of(group), {})
        for each in (job_id, *before):
            if len(group.turn(each)) == 1:
                packed.pop(each, None)
        self._note(group)

    def note_packed(self, job_id: str) -> None:
        """The job came to run beside another: it is the one to leave when there is room again."""
        self.packed.setdefault(self.class_of(self.groups.of(job_id)), {})[job_id] = None

    def keep_turn(self, placement: Placement, count: int) -> None:
        """Keep so many turns more for jobs whose packing on these GPUs is on trial; a negative number: fewer."""
        self._kept[placement] = self._kept.get(placement, 0) + count
        if not self._kept[placement]:
            del self._kept[placement]
        group = self.groups.at(placement)
        if group is not None:
            self._unlist(group)
            self._list(group)

    def _forget(self, group: Group) -> None:
        self._weigh(group, -len(group.turns))
        self._unlist(group)

    def _note(self, group: Group) -> None:
        self._weigh(group, len(group.turns))
        self._list(group)

    def _list(self, group: Group) -> None:
        """Put the group where arrivals of its class look for it: only on servers for its size, and never grown."""
        placement, size = group.placement, self._size[group.placement]
        if placement.gpus == size == self._affinity[placement.slices[0][0]] and placement not in self._listed:
            listed = self.classes.setdefault((self.gpu_type(placement), size), SortedList())
            turns = self._listed[placement] = self.turns(group)
            listed.add((turns, placement.slices, placement.gpus))

    def _unlist(self, group: Group) -> None:
        placement = group.placement
        turns = self._listed.pop(placement, None)
        if turns is not None:
            listed = self.classes[self.class_of(group)]
            listed.remove((turns, placement.slices, placement.gpus))
            if not listed:
                del self.classes[self.class_of(group)]

    def _weigh(self, group: Group, turns: int) -> None:
        """Count so many more turns of the group on its servers, and see what that does to their affinity."""
        size = self._size[group.placement]
        for machine, mask in group.placement.slices:
            held = self._held[machine]
            left = held.get(size, 0) + turns * mask.bit_count()
            if left:
                held[size] = left
            else:
                held.pop(size, None)
            before = self._affinity[machine]
            # among equals the size it was for stays, then the smaller one
            after = max(held, key=lambda s: (held[s], s == before, -s)) if held else 0
            if after == before:
                continue
            self._affinity[machine] = after
            bit = 1 << machine
            self.idle = self.idle & ~bit if after else self.idle | bit
            self._affine[before] = self._affine.get(before, 0) & ~bit
            self._affine[after] = self._affine.get(after, 0) | bit
            for other in self.groups.on(machine):
                if other is not group and other.placement in self._size:
                    self._unlist(other)
                    self._list(other)
