"""Making room: whose GPUs are taken so that a gang fits, where it may be anywhere or must be inside one domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dally.core.active import ActiveJob
from dally.core.free import FreeGpus
from dally.core.plan import Demand
from dally.core.topology import Topology
from dally.policies.shaped import room_by_trying


def make_room(free: FreeGpus, demand: Demand, behind: Iterable[ActiveJob]) -> list[ActiveJob] | None:
    """Of the jobs `behind`, the hindmost first, those whose GPUs open a domain that holds the gang: the one that opens
    first, and of those in it no more than it takes. None where there is no such domain."""
    if demand.where is not None and demand.shaped:
        return room_by_trying(free, demand, behind)
    topology = free.topology
    level = len(topology.levels) - 1 if demand.within is None else topology.level_index(demand.within)
    top = level == len(topology.levels) - 1
    gained: dict[tuple[str, int], int] = {}
    seen: list[ActiveJob] = []
    for job in behind:
        assert job.placement is not None
        kind = topology.machines[job.placement.slices[0][0]].gpu_type
        if demand.gpu_type not in (None, kind):
            continue
        seen.append(job)
        pool = free.pools[kind]
        for domain, gpus in _parts(topology, job, level):
            gained[kind, domain] = gained.get((kind, domain), 0) + gpus
            need = demand.gpus - (pool.total if top else pool.counts[level][domain])
            if gained[kind, domain] >= need:
                there = ((each, sum(part for place, part in _parts(topology, each, level) if place == domain))
                         for each in seen)  # fmt: skip
                return enough(need, there)
    return None


def enough(need: int, offers: Iterable[tuple[ActiveJob, int]]) -> list[ActiveJob] | None:
    """The hindmost jobs that hold so many GPUs together, less those that turn out not to be needed."""
    taken: list[tuple[ActiveJob, int]] = []
    for job, gpus in offers:
        if need <= 0:
            break
        if gpus:
            taken.append((job, gpus))
            need -= gpus
    if need > 0:
        return None
    victims = []
    for job, gpus in reversed(taken):  # the foremost is spared first
        if need + gpus <= 0:
            need += gpus
        else:
            victims.append(job)
    return victims


def needed(taken: list[ActiveJob], need: int) -> list[ActiveJob]:
    """As `enough`, of jobs all of whose GPUs count: they have as many more than needed as `need` is below 0."""
    victims = []
    for at in range(len(taken) - 1, -1, -1):
        job = taken[at]
        if need + job.gpus <= 0:
            need += job.gpus
        else:
            victims.append(job)
    return victims


def _parts(topology: Topology, job: ActiveJob, level: int) -> Iterator[tuple[int, int]]:
    """Domains of a level in which the job has GPUs, and how many; one may come several times."""
    assert job.placement is not None
    for machine, mask in job.placement.slices:
        if level >= topology.machine_level:
            yield topology.domain_of(machine, level).index, mask.bit_count()
        else:
            for island in topology.domains[level]:
                if island.start == machine and mask & island.mask:
                    yield island.index, (mask & island.mask).bit_count()
