"""Servers as Gandiva sees them: which size of job a server is for, how high it is loaded, who takes turns on it.

Who is on which GPUs is read from the view's groups, of a plan in the making from the groups it is tried on. What
follows from them is indexed here, on the memory's draft; only the affinities depend on what was before.
"""

from __future__ import annotations

from typing import cast

from dally.core.memory import Table
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand
from dally.core.policy import View
from dally.core.shape import broken
from dally.core.sharing import Group
from dally.policies.gandiva.memory import Class, GandivaMemory
from dally.policies.gandiva.peers import Index, Listed, Peers, listed


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
        self._kinds = [machine.gpu_type for machine in machines]
        self._packed = memory.packed
        self.peers: list[Peers] = []  # of all classes there have been
        self._of: dict[str, dict[int, Peers]] = {}  # the same by GPU type and size
        self._listed: Index[Placement, Listed] = Index(draft)  # as what a group is listed among its peers
        self._kept: Index[Placement, int] = Index(draft)  # turns kept for jobs on trial, should it be undone
        self._where: Index[str, Placement] = Index(draft)  # on which GPUs a job was counted
        self._affine: Index[int, int] = Index(draft)  # size → bit set of servers; 0: for none yet
        self._build()

    def _build(self) -> None:
        """From who is where, and from what is remembered."""
        memory, groups = self._memory, self.view.groups
        for job_id, trial in memory.trials.items():
            if job_id < trial.partner:  # both of a pair have a note of their trial
                self._kept.put(trial.placement, (self._kept.get(trial.placement) or 0) + 1)
        for machine in range(len(self.view.topology.machines)):
            found = _mostly(self._held(machine, None), self.affinity(machine))
            if found != self.affinity(machine):  # the cluster is another one than it was
                self._affinity[machine] = found
            self._affine.put(found, self.affine(found) | 1 << machine)
        for group in groups:
            self._list(group.placement, group)
            for member in group.members:
                self._where.put(member, group.placement)
                self._note_choosy(member, group.placement)
                if member in memory.packed and group.placement.slices:
                    self._own_peers(member, group.placement).packed.add((memory.packed[member], member))

    # --- what is asked ------------------------------------------------------------------------------------

    @property
    def idle(self) -> int:
        """Bit set of servers that no job has a GPU of."""
        return self._affine.get(0) or 0

    def affinity(self, machine: int) -> int:
        """Size of the jobs it is for; 0: none yet."""
        return self._affinity.get(machine, 0)

    def affine(self, size: int) -> int:
        """Bit set of the servers for jobs of this size."""
        return self._affine.get(size) or 0

    def fewest(self, gpu_type: str, size: int) -> int:
        """How many servers a gang needs at least."""
        return -(-size // self._largest[gpu_type])

    def height(self, machine: int) -> int:
        gpus = self.view.topology.machines[machine].gpus
        return -(-sum(self._held(machine, None).values()) // gpus)

    def gpu_type(self, placement: Placement) -> str:
        """None, as text, where all its machines were taken out of the cluster."""
        slices = placement.slices
        return self._kinds[slices[0][0]] if slices else ""

    def size(self, group: Group) -> int:
        """Of the group's jobs as submitted; grown ones hold more."""
        return self.view.job(group.turns[0][0]).gpus

    def of(self, gpu_type: str, size: int) -> Peers:
        """Jobs of a class."""
        sizes = self._of.get(gpu_type)
        if sizes is None:
            sizes = self._of[gpu_type] = {}
        found = sizes.get(size)
        if found is None:
            found = sizes[size] = Peers(self._memory.draft, Class(gpu_type, size))
            self.peers.append(found)
        return found

    def peers_of(self, group: Group) -> Peers:
        """Those of its class, itself among them."""
        return self.of(self.gpu_type(group.placement), self.size(group))

    def turns(self, group: Group) -> int:
        """Turns on these GPUs, with those that are kept for jobs on trial."""
        return len(group.turns) + (self._kept.get(group.placement) or 0)

    def lowest(self, peers: Peers, demand: Demand) -> tuple[int, Group] | None:
        """Turns and group with the fewest turns on servers of this affinity, on GPUs where such a gang may be."""
        for entry in peers.groups:
            placement: Placement = entry[3]
            if demand.where is None or not demand.bound or self.may_be_on(placement, demand):
                group = self.view.groups.at(placement)
                assert group is not None
                return entry[0], group
        return None

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

    def sliced(self, peers: Peers, most: int) -> list[Group]:
        """Groups of the class whose jobs take turns, the highest first."""
        found: list[Group] = []
        listed = peers.groups
        for at in range(len(listed) - 1, len(listed) - 1 - peers.high, -1):
            group = self.view.groups.at(listed[at][3])
            if group is not None and group.sliced:
                found.append(group)
                if len(found) == most:
                    break
        return found

    def takes_turns(self, peers: Peers) -> bool:
        """Whether jobs of any group of the class do."""
        return peers.high > 0 and len(self.sliced(peers, 1)) > 0

    def up(self, placement: Placement) -> bool:
        """Whether all of its servers are there."""
        down = self.view.down
        return not down or not any(machine in down for machine, _ in placement.slices)

    # --- what changes -------------------------------------------------------------------------------------

    def entered(self, job_id: str, placement: Placement) -> None:
        """The job is on these GPUs now."""
        self._where.put(job_id, placement)
        self._note_choosy(job_id, placement)
        self.recount(placement)

    def left(self, job_id: str, *, for_good: bool = True) -> Placement | None:
        """The job is off its GPUs; which they were, None where it held none."""
        placement = self._where.get(job_id)
        if placement is None:
            self._packed.pop(job_id, None)
            return None
        if for_good:
            self._where.take(job_id)
        self._unpacked(job_id, placement)
        self.recount(placement)
        return placement

    def recount(self, placement: Placement) -> None:
        """Somebody came to these GPUs, left them or is in another turn: what that does to their servers."""
        group = self.view.groups.at(placement)
        size = 0 if group is None else self.size(group)
        for machine, mask in placement.slices:
            before = self.affinity(machine)
            held = self._held(machine, group)
            after = _mostly(held, before)
            if group is not None:  # counted anew: what is left without it decides where there are equals
                held[size] = held.get(size, 0) + len(group.turns) * gpus_in(mask)
                after = _mostly(held, after)
            if after != before:
                self._change(machine, before, after)
        self._list(placement, group)
        if group is None:
            return
        self.of(self.gpu_type(placement), size).changed()
        if self._packed:
            for turn in group.turns:
                if len(turn) == 1:  # who was packed beside it is gone
                    self._unpacked(turn[0], placement)

    def relist(self, machine: int) -> None:
        """The server went or came back: nobody is sent to one that is down."""
        for group in self.view.groups.on(machine):
            self._list(group.placement, group)

    def _note_choosy(self, job_id: str, placement: Placement) -> None:
        if self.view.job(job_id).demand.where is not None:
            self._own_peers(job_id, placement).choosy = True

    def note_packed(self, job_id: str) -> None:
        """The job came to run beside another: it is the one to leave when there is room again."""
        if job_id not in self._packed:
            order = self._packed[job_id] = self._memory.next()
            self._own_peers(job_id, self.view.groups.of(job_id).placement).packed.add((order, job_id))

    def _unpacked(self, job_id: str, placement: Placement) -> None:
        if job_id in self._packed:
            order = self._packed.pop(job_id)
            self._own_peers(job_id, placement).packed.discard((order, job_id))

    def _own_peers(self, job_id: str, placement: Placement) -> Peers:
        return self.of(self.gpu_type(placement), self.view.job(job_id).gpus)

    def keep_turn(self, placement: Placement, count: int) -> None:
        """Keep so many turns more for jobs whose packing on these GPUs is on trial; a negative number: fewer."""
        kept = (self._kept.get(placement) or 0) + count
        if kept > 0:
            self._kept.put(placement, kept)
        else:
            self._kept.take(placement)
        group = self.view.groups.at(placement)
        self._list(placement, group)
        if group is not None:
            self.peers_of(group).changed()

    def _list(self, placement: Placement, group: Group | None) -> None:
        """Put the group where arrivals of its class look for it: only on servers for its size, and never grown."""
        turns = 0  # not at all
        if group is not None:
            size = self.size(group)
            if placement.gpus == size and self.affinity(placement.slices[0][0]) == size and self.up(placement):
                turns = self.turns(group)
        known = self._listed.get(placement)
        before: int = 0 if known is None else known[0]
        if before == turns:
            return
        peers = self.of(self.gpu_type(placement), placement.gpus)
        if known is not None:
            peers.unlist(known)
        if turns:
            entry = listed(turns, placement)
            peers.list(entry)
            self._listed.put(placement, entry)
        else:
            self._listed.take(placement)

    def _held(self, machine: int, but: Group | None) -> dict[int, int]:
        """GPUs × turns on a server by size of job, without those of one group."""
        held: dict[int, int] = {}
        last, together = 0, 0  # mostly they are of one size
        for group in self.view.groups.on(machine):
            if group is not but:  # objects
                size = self.size(group)
                for server, mask in group.placement.slices:
                    if server == machine:
                        if size != last:
                            if together:
                                held[last] = held.get(last, 0) + together
                            last, together = size, 0
                        together += len(group.turns) * gpus_in(mask)
                        break
        if together:
            held[last] = held.get(last, 0) + together
        return held

    def _change(self, machine: int, before: int, after: int) -> None:
        """The server is for jobs of another size from now on."""
        self._affinity[machine] = after
        bit = 1 << machine
        self._affine.put(before, self.affine(before) & ~bit)
        self._affine.put(after, self.affine(after) | bit)
        for group in self.view.groups.on(machine):
            if group.placement.slices[0][0] == machine:
                self._list(group.placement, group)


def _mostly(held: dict[int, int], before: int) -> int:
    """The size that holds most; among equals the one it was for stays, then the smaller one."""
    found, most = 0, -1
    for size, gpus in held.items():
        if gpus > most or (gpus == most and found != before and (size == before or size < found)):
            found, most = size, gpus
    return found
