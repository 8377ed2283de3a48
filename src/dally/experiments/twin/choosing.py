"""Which nodes the recorded scheduler took where it had a choice: read off the record, one start after the other.

Nothing is simulated here: before each start the nodes are as full as they really were, so that one start that differs
does not make the next ones differ.
"""

from __future__ import annotations

import heapq

from dally.core.plan import demand_of
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.experiments.twin.history import History, Recorded
from dally.policies.slurm.nodes import Nodes
from dally.policies.slurm.room import RoomLater
from dally.policies.slurm.settings import EVERYWHERE, Partition, Settings
from dally.simulator.shaping import shaped_for

RULES = ("order", "pack", "spread", "last", "flat", "tree")
MOST_STARTS = 3000  # that are looked at
ENOUGH = 30  # choices below which nothing is said


@dataclass(frozen=True, slots=True)
class Choices:
    """`agreed`: by rule, in how many of the choices it takes the nodes that were taken."""

    seen: int
    agreed: dict[str, int]

    @property
    def ranked(self) -> list[str]:
        """The likeliest rule first; the order of RULES among equals, and where too little was seen."""
        if self.seen < ENOUGH:
            return list(RULES)
        return sorted(RULES, key=lambda rule: -self.agreed[rule])

    @property
    def plain(self) -> bool:
        """Whether the likeliest rule need not be tried against others: it explains nearly everything, alone."""
        if self.seen < ENOUGH:
            return False
        best, second = (self.agreed[rule] / self.seen for rule in self.ranked[:2])
        return best >= 0.8 and best - second >= 0.1


def choices(history: History, topology: Topology, until: float = float("inf")) -> Choices:
    """Of starts that had more nodes with room than they took. `until`: of starts up to then. Ends
    of the same second are taken to come first."""
    shaped = {job.id: job for job in shaped_for(history.trace, topology).jobs}
    everywhere = Partition(EVERYWHERE)
    rules = {rule: Nodes(topology, Settings(topology=rule), any_nodes=False) for rule in RULES}
    kinds = rules[RULES[0]].kinds
    agreed, seen = dict.fromkeys(RULES, 0), 0
    free = [machine.gpus for machine in topology.machines]
    running: list[tuple[float, int, dict[int, int]]] = []
    begun = sorted((each for each in history.ran.values() if each.truth.ran_on and each.start <= until),
                   key=lambda each: (each.start, each.job.submit_time))  # fmt: skip
    for number, each in enumerate(begun):
        while running and running[0][0] <= each.start:
            for machine, gpus in heapq.heappop(running)[2].items():
                free[machine] += gpus
        held = _held(each, topology)
        job = shaped[each.job.id]
        even = len(held) == len(each.truth.ran_on) and len(set(held.values())) == 1
        if even and each.start >= history.begin:
            room, (first, each_gets) = RoomLater(list(free)), next(iter(held.items()))
            kind = topology.machines[first].gpu_type
            there = room.at_least(each_gets) & kinds[kind] & (topology.among(job.among) if job.among else -1)
            if there.bit_count() > len(held) and all(there >> machine & 1 for machine in held):
                seen += 1
                wanted = demand_of(each_gets * len(held), kind, nodes=len(held))
                for rule, nodes in rules.items():
                    found = nodes.find(room, wanted, everywhere, there, None)
                    agreed[rule] += found is not None and {machine for machine, _ in found} == set(held)
        for machine, gpus in held.items():
            free[machine] -= gpus
        heapq.heappush(running, (each.end, number, held))
        if seen >= MOST_STARTS:
            break
    return Choices(seen, agreed)


def _held(each: Recorded, topology: Topology) -> dict[int, int]:
    """GPUs by machine, of the machines that are known."""
    found: dict[int, int] = {}
    for name, gpus in each.truth.ran_on:
        machine = topology.machine_by_name.get(name)
        if machine is not None:
            found[machine] = found.get(machine, 0) + gpus
    return found
