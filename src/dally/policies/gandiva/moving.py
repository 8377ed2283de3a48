"""Migration (OSDI'18): lower heights, bring gangs together, empty servers that are nearly empty.

Nothing goes in circles. Heights are levelled only where they differ by two. A gang that ran no faster closer
together is never moved for that again, nor are others of its model and size. A server is emptied into fuller ones.
"""

from __future__ import annotations

import math
from typing import Final

from dally.core.active import ActiveJob
from dally.core.free import Pool, bits, lowest_gpus
from dally.core.placement import Placement, gpus_in
from dally.core.plan import Demand
from dally.core.sharing import Group
from dally.core.topology import Topology
from dally.policies.gandiva.arrival import on_free_gpus
from dally.policies.gandiva.draft import Draft, Moment
from dally.policies.gandiva.introspection import Introspection, Verdict
from dally.policies.gandiva.memory import Check, Class, GandivaMemory, Gang
from dally.policies.gandiva.peers import Peers
from dally.policies.placing import place_best_fit

_MOVES: Final = 4  # of one kind per event: bounds its cost, and a cluster does not move house at once


class Migration:
    """What may be moved where, and what moving has taught."""

    def __init__(self, watch: Introspection, gain: float, threshold: float) -> None:
        self.watch, self.gain, self.threshold = watch, gain, threshold
        self.attach()

    def attach(self) -> None:
        """To another view."""
        self._nothing_closer: dict[str, int] = {}  # gangs that are apart, by `FreeGpus.changes`

    # --- what is seen -------------------------------------------------------------------------------------

    def settled(self, moment: Moment, job: ActiveJob, placement: Placement) -> None:
        """A job got GPUs: note whether they are far apart."""
        self.forget(moment.memory, job.id)
        if len(placement.slices) > 1 and _name(job) not in moment.memory.no_use:
            needed = moment.servers.fewest(moment.servers.gpu_type(placement), placement.gpus)
            topology = moment.view.topology
            if len(placement.slices) > needed or placement.level(topology) > _lowest(topology, job):
                _note_apart(moment.memory, job.id)

    def forget(self, memory: GandivaMemory, job_id: str) -> None:
        apart = memory.apart
        if job_id in apart:
            memory.apart_first.remove((apart.pop(job_id), job_id))
            if job_id in self._nothing_closer:
                del self._nothing_closer[job_id]

    def judge(self, moment: Moment, job: ActiveJob, verdict: Verdict) -> None:
        """Remember a move that did not help: neither this gang nor others of its kind are moved for it again."""
        assert verdict.check.before is not None
        if verdict.seconds > verdict.check.before * (1.0 - self.gain):
            moment.memory.no_use[_name(job)] = moment.now
            self.forget(moment.memory, job.id)

    @staticmethod
    def _movable(draft: Draft, job_id: str) -> bool:
        """Not touched in this plan, nobody's trial, and long enough in place to have been profiled there."""
        memory = draft.memory
        return job_id in memory.alone and job_id not in memory.trials and draft.may_touch(job_id)

    # --- heights ------------------------------------------------------------------------------------------

    def lower_heights(self, draft: Draft, overloaded: bool) -> None:
        """Free GPUs take over turns and, once nobody waits any more, packed jobs. Without any, the highest group
        hands a turn to the lowest."""
        found = _high(draft)
        hopeful = {peers.wanted: peers for peers in found if _roomy(draft, peers) or peers.steepest > 1}
        for first in sorted(hopeful):
            if self._lower(draft, hopeful[first], overloaded):  # who moves gives room to others, of whatever class
                for peers in sorted(found, key=_wanted):
                    if peers.wanted >= first:
                        self._lower_more(draft, peers, overloaded, _MOVES - (peers.wanted == first))
                return

    def _lower_more(self, draft: Draft, peers: Peers, overloaded: bool, most: int) -> None:
        for _ in range(most):
            if not self._lower(draft, peers, overloaded):
                return

    def _lower(self, draft: Draft, peers: Peers, overloaded: bool) -> bool:
        servers, wanted = draft.servers, peers.wanted
        room, target = _roomy(draft, peers), None
        if room and not peers.choosy:
            target = _near(draft, peers, peers.demand)
        if target is None and not (room and peers.choosy) and peers.steepest < 2:
            return False  # whoever takes turns: nobody has two fewer
        found = self._who_takes_turns(draft, peers)
        if found is None:
            job, turns = (self._packed(draft, peers) if room and not overloaded else None), 0
        else:
            job, turns = found
        if job is None:
            return False
        if room and peers.choosy:
            target = _near(draft, peers, Demand(wanted.gpus, wanted.gpu_type, job.demand.where))
        if target is None and turns:
            lowest = servers.lowest(peers, job.demand)
            if lowest is not None and turns - lowest[0] >= 2:
                target = lowest[1].placement
        if target is None:
            return False
        draft.migrate(job, target)
        return True

    def _who_takes_turns(self, draft: Draft, peers: Peers) -> tuple[ActiveJob, int] | None:
        """A job of one of the highest groups that can be moved, and the turns there."""
        for group in draft.servers.sliced(peers, _MOVES):
            job = self._last_turn(draft, group)
            if job is not None:
                return job, len(group.turns)
        return None

    def _last_turn(self, draft: Draft, group: Group) -> ActiveJob | None:
        """Who came last to take turns; a pair stays together as long as there is anybody else."""
        newest_first = list(reversed(group.turns))
        for turn in sorted(newest_first, key=len):
            if all(self._movable(draft, job_id) for job_id in turn):
                return draft.view.job(turn[-1])
        return None

    def _packed(self, draft: Draft, peers: Peers) -> ActiveJob | None:
        """Packing is for overload: where there is room again, who was packed gets GPUs of its own."""
        for _, job_id in peers.packed:
            if self._movable(draft, job_id):
                return draft.view.job(job_id)
        return None

    # --- locality -----------------------------------------------------------------------------------------

    def bring_together(self, draft: Draft) -> None:
        """Gangs that are apart go where they are closer, if they have been measured where they are."""
        memory = draft.memory
        if not memory.apart_first:
            return
        turns = len(memory.apart_first) > _MOVES
        # That nothing is closer holds until other GPUs are free; of a plan that has changed them nothing is kept.
        seen = -1 if draft.plan else draft.free.changes
        for _, job_id in memory.apart_first[:_MOVES]:
            job = draft.view.job(job_id)
            group = draft.groups.of(job_id)
            if _name(job) in memory.no_use or len(group) > 1 or group.placement.gpus != job.gpus:
                self.forget(memory, job_id)
                continue
            if turns:
                _note_apart(memory, job_id)  # behind the others, which have their turn at the next event
            if self._nothing_closer.get(job_id) == seen or not self._movable(draft, job_id):
                continue
            target = self._closer(draft, job, group)
            if target is None:
                if not draft.plan:
                    self._nothing_closer[job_id] = seen
                continue
            before = memory.alone.pop(job_id)
            draft.migrate(job, target)
            seen = -1
            self.watch.watch(memory, job_id, draft.now, Check(before=before), before)

    @staticmethod
    def _closer(draft: Draft, job: ActiveJob, group: Group) -> Placement | None:
        here, topology = group.placement, draft.free.topology
        kind = draft.servers.gpu_type(here)
        pool = draft.free.pools.get(kind)
        if pool is None or not pool.total:
            return None  # there is nowhere else
        draft.free.give(here)
        found = place_best_fit(draft.free, Demand(here.gpus, kind, job.demand.where))
        draft.free.take(here)
        if found is None:
            return None
        better = (len(found.slices), found.level(topology)) < (len(here.slices), here.level(topology))
        return found if better else None

    # --- defragmentation ----------------------------------------------------------------------------------

    def defragment(self, draft: Draft) -> None:
        """Empty the non-idle server with the most free GPUs, where a gang that waits or is apart could use it."""
        if not draft.memory.apart and not _gang_waits(draft):
            return
        level = draft.free.topology.machine_level
        if level == len(draft.free.topology.levels) - 1:
            return  # one server
        for pool in draft.free.pools.values():
            server = self._nearly_empty(draft, pool, level)
            if server is not None:
                self._empty(draft, pool, level, server)

    def _nearly_empty(self, draft: Draft, pool: Pool, level: int) -> int | None:
        sets = pool.at_least_on(level)
        used, more = ~draft.servers.idle, 0
        fewest = math.ceil(self.threshold * draft.servers.smallest[pool.gpu_type])
        if fewest >= len(sets) or not sets[fewest] & used:
            return None
        for count in range(len(sets) - 1, fewest - 1, -1):
            exactly = sets[count] & ~more & used
            more = sets[count]
            for server in bits(exactly):
                if count >= math.ceil(self.threshold * draft.free.topology.machines[server].gpus):
                    return server
        return None

    def _empty(self, draft: Draft, pool: Pool, level: int, server: int) -> None:
        for group in list(draft.groups.on(server)):
            (job_id,) = list(group.members) if len(group) == 1 else ("",)
            if not job_id or len(group.placement.slices) > 1 or not self._movable(draft, job_id):
                continue
            job = draft.view.job(job_id)
            if group.placement.gpus != job.gpus:
                continue  # grown: it gives its GPUs back when they are needed
            if not draft.servers.any_part(job.demand.within):
                continue
            target = self._fuller(draft, pool.at_least_on(level), server, job)
            if target is not None:
                mask = lowest_gpus(draft.free.masks[target], job.gpus)
                draft.migrate(job, Placement(((target, mask),), job.gpus))

    @staticmethod
    def _fuller(draft: Draft, sets: list[int], server: int, job: ActiveJob) -> int | None:
        """The fullest other server with room, for jobs of its size if there is one; never an emptier one."""
        size, among = job.gpus, job.demand.among
        others = ~draft.servers.idle & ~(1 << server)
        if among is not None:
            others &= draft.free.topology.among(among)
        for count in range(size, gpus_in(draft.free.masks[server])):
            exactly = sets[count] & ~(sets[count + 1] if count + 1 < len(sets) else 0) & others
            for candidates in (exactly & draft.servers.affine(size), exactly):
                if candidates:
                    return (candidates & -candidates).bit_length() - 1
        return None


def _high(draft: Draft) -> list[Peers]:
    """Classes of which some take turns or are packed."""
    return [peers for peers in draft.servers.peers if peers.high or peers.packed]


def _wanted(peers: Peers) -> Class:
    return peers.wanted


def _gang_waits(draft: Draft) -> bool:
    for demand in draft.view.waiting.buckets:  # noqa: SIM110 - a generator costs
        if demand.gpus > 1:
            return True
    return False


def _near(draft: Draft, peers: Peers, demand: Demand) -> Placement | None:
    """Free GPUs on as few servers as the job needs. That there are none holds until others are free; of a plan that has
    changed them nothing is kept."""
    lasts = demand.where is None and not draft.plan
    if lasts and peers.cramped == draft.free.changes:
        return None
    found = on_free_gpus(draft.free, draft.servers, demand, near=True)
    if lasts and found is None:
        peers.cramped = draft.free.changes
    return found


def _roomy(draft: Draft, peers: Peers) -> bool:
    """Whether as many GPUs are free as a job of the class has."""
    wanted = peers.wanted
    return draft.free.pools[wanted.gpu_type].total >= wanted.gpus


def _note_apart(memory: GandivaMemory, job_id: str) -> None:
    before = memory.apart.get(job_id)
    if before is not None:
        memory.apart_first.remove((before, job_id))
    order = memory.apart[job_id] = memory.next()
    memory.apart_first.add((order, job_id))


def _lowest(topology: Topology, job: ActiveJob) -> int:
    """The innermost level with a domain that could hold the gang at all."""
    for level, domains in enumerate(topology.domains):
        if any(domain.gpus >= job.gpus for domain in domains):
            return level
    return len(topology.levels) - 1


def _name(job: ActiveJob) -> Gang:
    """What is learned of one gang holds for its model and size (ours)."""
    return job.job.model or f"job {job.id}", job.gpus
