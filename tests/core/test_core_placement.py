"""Placements: their level, their numbers, their text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import at, cluster
from dally.core.placement import Placement

slices = st.dictionaries(st.integers(0, 500), st.integers(1, 2**16 - 1), min_size=1, max_size=6)


@given(slices)
def test_text_and_back_is_the_same_placement(parts: dict[int, int]) -> None:
    placement = Placement.of(parts.items())
    assert Placement.parse(placement.text()) == placement
    assert placement.gpus == sum(mask.bit_count() for mask in parts.values())


def test_the_text_is_machine_and_mask() -> None:
    assert at((4, 0x0F), (3, 0xFF)).text() == "3:ff,4:f"


TREE = cluster(2, 2, 2, 4)  # blocks of racks of machines: 0 1 | 2 3 || 4 5 | 6 7


@pytest.mark.parametrize(("placement", "level"), [
    (at((0, 0b1)), "machine"),
    (at((0, 0b1111)), "machine"),
    (at((0, 1), (1, 1)), "rack"),
    (at((1, 1), (2, 1)), "block"),
    (at((0, 1), (1, 1), (3, 1)), "block"),
    (at((3, 1), (4, 1)), "cluster"),
    (at((0, 1), (7, 1)), "cluster"),
])  # fmt: skip
def test_the_level_is_the_innermost_domain_that_holds_it_all(placement: Placement, level: str) -> None:
    assert TREE.levels[placement.level(TREE)].name == level


def test_islands_are_a_level_of_their_own() -> None:
    tree = cluster(2, 2, 8, islands=(4, 4))
    names = [tree.levels[at(part).level(tree)].name for part in ((0, 0x0F), (1, 0x30), (0, 0x18))]
    assert names == ["island", "island", "machine"]
    assert tree.levels[at((0, 1), (1, 1)).level(tree)].name == "rack"


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 15)), min_size=1, max_size=5, unique_by=lambda s: s[0]))
def test_the_level_agrees_with_comparing_paths(parts: list[tuple[int, int]]) -> None:
    paths = [TREE.machines[m].path for m, _ in parts]
    common = 0
    while common < 3 and len({path[common] for path in paths}) == 1:
        common += 1
    assert Placement.of(parts).level(TREE) == 3 - common


def test_gpu_numbers_count_through_the_cluster() -> None:
    assert at((0, 0b1010), (2, 0b1)).gpu_numbers(cluster(3, 4)) == [1, 3, 8]
