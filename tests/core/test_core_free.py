"""The index of free GPUs against counting anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import at, cluster, mixed_cluster
from dally.core.free import FreeGpus, bits, lowest_gpus
from dally.core.topology import Topology

CLUSTERS = [cluster(4), cluster(3, 4), cluster(2, 2, 3), cluster(2, 2, 8, islands=(4, 4)), cluster(2, 1, 2, 2),
            mixed_cluster(v100=(4, 2, 4), a100=(8, 1))]  # fmt: skip


def assert_index_is_true(free: FreeGpus, topology: Topology) -> None:
    for kind, pool in free.pools.items():
        own = [m.index for m in topology if m.gpu_type == kind]
        assert pool.total == sum(free.masks[m].bit_count() for m in own)
        for level, domains in enumerate(topology.domains):
            counts = [sum((free.masks[m] & d.mask if d.mask >= 0 else free.masks[m]).bit_count()
                          for m in d.machines if m in own) for d in domains]  # fmt: skip
            for wanted in range(1, max(d.gpus for d in domains) + 3):
                truth = [i for i, count in enumerate(counts) if count >= wanted]
                assert list(bits(pool.domains_with(level, wanted))) == truth, (kind, level, wanted)
    assert free.total == sum(mask.bit_count() for mask in free.masks)


@st.composite
def changes(draw: st.DrawFn) -> tuple[Topology, list[tuple[int, int]]]:
    topology = draw(st.sampled_from(CLUSTERS))
    steps = st.tuples(st.integers(0, len(topology.machines) - 1), st.integers(0, 255))
    return topology, draw(st.lists(steps, max_size=12))


@given(changes())
def test_the_index_agrees_with_a_recount_after_any_sequence_of_changes(
    case: tuple[Topology, list[tuple[int, int]]],
) -> None:
    topology, steps = case
    free = FreeGpus(topology)
    assert_index_is_true(free, topology)
    for machine, mask in steps:
        mask &= topology.machines[machine].full_mask
        now_free = free.masks[machine] & mask
        free.take_mask(machine, now_free)  # what is free of it goes,
        free.give_mask(machine, mask & ~now_free)  # what was taken of it comes back
    assert_index_is_true(free, topology)


@given(changes())
def test_a_trial_leaves_no_trace(case: tuple[Topology, list[tuple[int, int]]]) -> None:
    topology, steps = case
    free = FreeGpus(topology)
    free.take_mask(0, 1)
    before = list(free.masks)
    with free.trial() as trial:
        for machine, mask in steps:
            mask &= trial.masks[machine]
            trial.take_mask(machine, mask)
    assert free.masks == before
    assert_index_is_true(free, topology)


def test_a_trial_is_undone_even_when_the_block_raises() -> None:
    free = FreeGpus(cluster(2, 4))
    with pytest.raises(ZeroDivisionError), free.trial() as trial:
        trial.take(at((0, 0b11)))
        raise ZeroDivisionError
    assert free.total == 8


def test_trials_do_not_nest() -> None:
    free = FreeGpus(cluster(2, 4))
    with free.trial(), pytest.raises(AssertionError, match="nest"), free.trial():
        pass


def test_a_gpu_cannot_be_taken_or_freed_twice() -> None:
    free = FreeGpus(cluster(2, 4))
    free.take(at((0, 0b11)))
    with pytest.raises(AssertionError, match="taken twice"):
        free.take(at((0, 0b10)))
    with pytest.raises(AssertionError, match="freed twice"):
        free.give(at((1, 0b1)))


@given(st.integers(1, 2**16 - 1), st.data())
def test_the_lowest_gpus_of_a_mask_are_its_lowest_bits(mask: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, mask.bit_count()))
    assert list(bits(lowest_gpus(mask, count))) == list(bits(mask))[:count]
