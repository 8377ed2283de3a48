"""The `artist` fidelity: ASTRA-sim 1.0's rules, each worked by hand."""

from __future__ import annotations

import pytest

from dally.core.errors import UserError
from dally.network.artist import (
    ArtistDimension,
    all_reduce_ns,
    artist_step_ns,
    links_of,
    original_dimension,
)
from dally.network.astra import Layer

ONE = ArtistDimension("ring", 2, 4, 1e9, 100.0)  # 4 B/ns


def test_bandwidth_is_multiplied_by_the_links_and_a_switch_is_two_hops():
    # m = 4000, 4000/(4·1) = 1000: 3e + 2(100 + 1000).
    assert all_reduce_ns(8000, ONE) == 30 + 2 * 1100
    assert all_reduce_ns(8000, ArtistDimension("switch", 2, 4, 1e9, 100.0)) == 30 + 2 * 1200


def test_a_mesh_spreads_its_links_over_its_neighbours_and_a_ring_uses_pairs():
    assert ArtistDimension("fully-connected", 3, 3, 1e9, 0).usable_links == 1
    assert ArtistDimension("fully-connected", 2, 2, 1e9, 0).usable_links == 2
    assert ArtistDimension("ring", 5, 5, 1e9, 0).usable_links == 4
    assert ArtistDimension("switch", 5, 5, 1e9, 0).usable_links == 5


def test_large_messages_pay_for_their_reduction():
    big = 2 * 1_100_000
    assert all_reduce_ns(big, ONE) == 30 + 2 * (100 + 275_000) + 6


def test_the_authors_links_are_even_and_at_least_four_on_a_ring():
    assert [links_of("ring", n) for n in (2, 3, 5, 8)] == [4, 4, 6, 8]
    assert links_of("switch", 5) == links_of("fully-connected", 5) == 5
    rack = original_dimension("rack", 3)
    assert (rack.kind, rack.links, rack.latency_ns) == ("ring", 4, 5000)


def test_the_last_gradient_is_exposed_with_the_cycles_between_the_states():
    layers = (Layer("a", 1000, 500, 2000, 8000), Layer("b", 1000, 500, 9000, 80))
    step = artist_step_ns(layers, [ONE])
    assert step.compute == 13_500
    assert step.exposed == all_reduce_ns(8000, ONE) + 4  # two forward cycles, two around b's input gradient


def test_missing_layers_still_spend_their_cycles():
    layers = (Layer("a", 10, 10, 10, 100),)
    assert artist_step_ns(layers, [ONE], silent_layers=4).total - artist_step_ns(layers, [ONE]).total == 12


def test_the_next_collective_uses_a_dimension_as_soon_as_the_one_before_has_left_it():
    near, far = ArtistDimension("ring", 2, 4, 1e9, 1000.0), ArtistDimension("ring", 2, 4, 1e9, 5000.0)
    layers = tuple(Layer(str(i), 0, 0, 0, 80) for i in range(3))
    pipelined = all_reduce_ns(80, near) + 3 * all_reduce_ns(80, far)
    first_ready = 3
    assert artist_step_ns(layers, [near, far]).total == first_ready + pipelined


def test_the_youngest_waiting_gradient_goes_first_so_an_old_one_may_update_last():
    # c is in flight when b and a arrive; a goes before b, so b's long update ends the step.
    layers = (Layer("a", 0, 0, 0, 80), Layer("b", 0, 0, 0, 80, 10**6), Layer("c", 0, 0, 0, 80))
    one = all_reduce_ns(80, ONE)
    assert artist_step_ns(layers, [ONE]).total == 3 + 3 * one + 10**6


def test_one_gpu_exposes_only_the_cycles_between_states():
    layers = (Layer("a", 10, 10, 10, 100), Layer("b", 10, 10, 10, 100))
    assert artist_step_ns(layers, [ArtistDimension("ring", 1, 4, 1e9, 500.0)]).exposed == 4


@pytest.mark.parametrize("bad", [
    lambda: ArtistDimension("ring", 0, 4, 1e9, 0), lambda: ArtistDimension("fully-connected", 4, 2, 1e9, 0),
    lambda: ArtistDimension("ring", 4, 4, 0, 0), lambda: original_dimension("galaxy", 2),
    lambda: artist_step_ns((), [ONE]),
])  # fmt: skip
def test_impossible_input_is_refused(bad):
    with pytest.raises(UserError):
        bad()
