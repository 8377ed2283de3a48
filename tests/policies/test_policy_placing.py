"""Placement rules against every placement there is, on small clusters."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import cluster, mixed_cluster
from dally.core.free import FreeGpus
from dally.core.plan import Demand
from dally.core.topology import Topology
from dally.policies.placing import RULES, place_best_fit, place_consolidated, place_spread, place_within

CLUSTERS = [cluster(4), cluster(3, 4), cluster(2, 2, 3), cluster(2, 2, 4, islands=(2, 2)), cluster(2, 2, 1, 2),
            mixed_cluster(v100=(4, 2), a100=(3, 1, 4))]  # fmt: skip


@st.composite
def crowded(draw: st.DrawFn) -> tuple[FreeGpus, Demand]:
    """A cluster with some GPUs taken, and a gang that wants some."""
    topology = draw(st.sampled_from(CLUSTERS))
    free = FreeGpus(topology)
    for machine in topology:
        free.take_mask(machine.index, draw(st.integers(0, machine.full_mask)))
    kind = draw(st.sampled_from((None, *topology.gpu_types, "unheard-of")))
    return free, Demand(draw(st.integers(1, 9)), kind)


def room(free: FreeGpus, kind: str | None) -> int:
    return max((pool.total for name, pool in free.pools.items() if kind in (None, name)), default=0)


def chosen_type(free: FreeGpus, demand: Demand) -> str:
    """The type wanted, else the one with most free GPUs, the first of the cluster among equals."""
    return demand.gpu_type or max(free.topology.gpu_types, key=lambda kind: free.pools[kind].total)


def fewest_machines(free: FreeGpus, kind: str, gpus: int, machines: range) -> int:
    counts = [free.masks[m].bit_count() for m in machines if free.topology.machines[m].gpu_type == kind]
    return min(size for size in range(1, len(counts) + 1)
               if any(sum(some) >= gpus for some in itertools.combinations(counts, size)))  # fmt: skip


@pytest.mark.parametrize("name", RULES)
@given(case=crowded())
def test_a_rule_never_waits_never_overlaps_and_never_mixes_types(name: str, case: tuple[FreeGpus, Demand]) -> None:
    free, demand = case
    before = list(free.masks)
    placement = RULES[name](free, demand)
    assert (placement is None) == (room(free, demand.gpu_type) < demand.gpus)
    assert free.masks == before
    if placement is not None:
        machines = [m for m, _ in placement.slices]
        assert machines == sorted(set(machines))
        assert placement.gpus == demand.gpus == sum(mask.bit_count() for _, mask in placement.slices)
        assert all(mask and free.has(m, mask) for m, mask in placement.slices)
        types = {free.topology.machines[m].gpu_type for m in machines}
        assert types == {chosen_type(free, demand)}


@pytest.mark.parametrize("rule", [place_consolidated, place_best_fit], ids=["consolidated", "best-fit"])
@given(case=crowded())
def test_a_gang_gets_the_innermost_domain_that_holds_it_and_the_fewest_machines_there(rule, case) -> None:  # type: ignore[no-untyped-def]
    free, demand = case
    placement = rule(free, demand)
    if placement is None:
        return
    topology, kind = free.topology, chosen_type(free, demand)
    best = next(level for level in range(len(topology.levels)) if holders(topology, free, kind, level, demand.gpus))
    assert placement.level(topology) <= best
    if best > topology.machine_level:
        least = min(fewest_machines(free, kind, demand.gpus, topology.domains[best][i].machines)
                    for i in holders(topology, free, kind, best, demand.gpus))  # fmt: skip
        assert len(placement.slices) == least
    else:
        assert len(placement.slices) == 1
        assert placement.level(topology) == best


def holders(topology: Topology, free: FreeGpus, kind: str, level: int, gpus: int) -> list[int]:
    """Domains of a level with room, counted by hand."""
    found = []
    for domain in topology.domains[level]:
        own = [m for m in domain.machines if topology.machines[m].gpu_type == kind]
        if sum((free.masks[m] & (domain.mask if domain.mask >= 0 else ~0)).bit_count() for m in own) >= gpus:
            found.append(domain.index)
    return found


@given(case=crowded())
def test_spread_uses_as_many_machines_as_it_can(case: tuple[FreeGpus, Demand]) -> None:
    free, demand = case
    placement = place_spread(free, demand)
    if placement is not None:
        kind = chosen_type(free, demand)
        open_machines = [m for m in free.topology if m.gpu_type == kind and free.masks[m.index]]
        assert len(placement.slices) == min(demand.gpus, len(open_machines))


def test_best_fit_takes_the_fullest_machine_that_holds_the_gang() -> None:
    free = FreeGpus(cluster(3, 4))
    free.take_mask(1, 0b0011)
    assert place_best_fit(free, Demand(2, None)).slices == ((1, 0b1100),)  # type: ignore[union-attr]
    assert place_consolidated(free, Demand(2, None)).slices == ((0, 0b0011),)  # type: ignore[union-attr]


def test_a_gang_of_two_is_not_split_over_two_islands() -> None:
    free = FreeGpus(cluster(1, 1, 4, islands=(2, 2)))
    free.take_mask(0, 0b0001)
    assert place_consolidated(free, Demand(2, None)).slices == ((0, 0b1100),)  # type: ignore[union-attr]


def test_placing_within_a_level_answers_none_where_no_domain_has_room() -> None:
    free = FreeGpus(cluster(2, 2, 4))
    pool = free.pools["gpu"]
    assert place_within(free, pool, 5, 0, tight=False) is None
    assert place_within(free, pool, 8, 1, tight=False).gpus == 8  # type: ignore[union-attr]
    assert place_within(free, pool, 9, 1, tight=False) is None


def test_spread_works_on_a_cluster_of_a_single_machine() -> None:
    free = FreeGpus(cluster(4))
    assert place_spread(free, Demand(3, None)).slices == ((0, 0b111),)  # type: ignore[union-attr]
