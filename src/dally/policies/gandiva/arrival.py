"""Where a job goes: Gandiva's rule in five steps (OSDI'18, reactive mode).

1. the least loaded server for jobs of its size that has room;
2. a server that is for no size yet;
3. any free GPUs;
4. over-subscribe a server for jobs of its size: take turns on GPUs that jobs of the same size hold;
5. wait.
"""

from __future__ import annotations

from dally.core.free import FreeGpus, Pool, lowest_gpus
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.core.ranking import Bucket
from dally.policies.gandiva.draft import Draft
from dally.policies.gandiva.elastic import Elastic
from dally.policies.gandiva.servers import Servers
from dally.policies.placing import place_best_fit, pools_for


def on_free_gpus(free: FreeGpus, servers: Servers, demand: Demand, *, near: bool = False) -> Placement | None:
    """Steps 1 to 3. `near`: only on as few servers as the size needs."""
    pools = pools_for(free, demand)
    if not pools:
        return None
    size = demand.gpus
    level = free.topology.machine_level
    whole = demand.where is None or (servers.any_part(demand.within) and demand.nodes in (None, 1))
    allowed = -1 if demand.where is None or demand.among is None else free.topology.among(demand.among)
    for candidates in (servers.affine(size), servers.idle) if whole else ():
        for pool in pools:
            server = _emptiest(pool, level, size, candidates & allowed)
            if server is not None:
                return Placement(((server, lowest_gpus(free.masks[server], size)),), size)
    for pool in pools:
        fewest = servers.fewest(pool.gpu_type, size)
        if near and demand.where is None and not pool.domains_with(level, -(-size // fewest)):
            continue  # on so few servers one of them would have to give as much
        # step 3; large gangs: whole servers first
        typed = demand if demand.gpu_type is not None else Demand(size, pool.gpu_type, demand.where)
        found = place_best_fit(free, typed)
        if found is not None and not (near and len(found.slices) > max(fewest, demand.nodes or 1)):
            return found
    return None


def _emptiest(pool: Pool, level: int, size: int, candidates: int) -> int | None:
    """The candidate with the most free GPUs, if they are enough."""
    if level == pool.top:  # the one server is the whole cluster
        return 0 if candidates & 1 and pool.total >= size else None
    sets = pool.at_least_on(level)
    if size >= len(sets) or not sets[size] & candidates:
        return None
    count = len(sets) - 1
    while not sets[count] & candidates:
        count -= 1
    best = sets[count] & candidates
    return (best & -best).bit_length() - 1


def on_shared_gpus(servers: Servers, demand: Demand, limit: int) -> Placement | None:
    """Step 4: the group with the fewest turns, if one more keeps the height within the limit."""
    found: tuple[int, Placement] | None = None
    for gpu_type in (demand.gpu_type,) if demand.gpu_type else servers.view.topology.gpu_types:
        lowest = servers.lowest(servers.of(gpu_type, demand.gpus), demand)
        if lowest is not None and lowest[0] < limit and (found is None or lowest[0] < found[0]):
            found = lowest[0], lowest[1].placement
    return None if found is None else found[1]


def serve(draft: Draft, elastic: Elastic | None, limit: int) -> None:
    """Start waiting jobs in order of submission; who does not fit is passed by others (`limit` 1: no step 4)."""
    waiting = draft.still_waiting()
    if not waiting or (len(waiting) > 1 and not draft.memory.grown and _nobody_fits(draft, waiting, limit)):
        return
    heads = {bucket.demand: bucket.key(begun, draft.now) for bucket, begun in waiting}
    while heads:
        demand = min(heads, key=heads.__getitem__)
        placement = place(draft, demand, elastic, limit)
        if placement is None:
            del heads[demand]  # jobs of one demand are alike: no other of them fits either
            continue
        bucket = draft.view.waiting.buckets[demand]
        draft.start(bucket.job(draft.begun.get(demand, 0)), placement)
        begun = draft.begun[demand]
        if begun < len(bucket):
            heads[demand] = bucket.key(begun, draft.now)
        else:
            del heads[demand]


def _nobody_fits(draft: Draft, waiting: list[tuple[Bucket, int]], limit: int) -> bool:
    """By far the most frequent answer, in whatever order they are asked."""
    for bucket, _ in waiting:  # noqa: SIM110 - a generator costs
        if place(draft, bucket.demand, None, limit) is not None:
            return False
    return True


def place(draft: Draft, demand: Demand, elastic: Elastic | None, limit: int) -> Placement | None:
    """The five steps for one job; GPUs lent to grown jobs come back before anybody takes turns."""
    placement = on_free_gpus(draft.free, draft.servers, demand)
    if placement is None and elastic is not None and draft.memory.grown and elastic.reclaim(draft, demand):
        placement = on_free_gpus(draft.free, draft.servers, demand)
    if placement is None and limit > 1:
        placement = on_shared_gpus(draft.servers, demand, limit)
    return placement
