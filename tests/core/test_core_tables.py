"""An order is a list that keeps itself sorted, whatever is asked of it."""

from __future__ import annotations

from typing import get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.core.tables import Draft, Order, Table

ENTRIES = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), unique=True, max_size=12)
ENTRY = st.tuples(st.integers(0, 5), st.sampled_from("abc"))


@given(ENTRIES, ENTRY, ENTRY, st.tuples(st.booleans(), st.booleans()))
def test_an_order_answers_as_a_sorted_list_would(
    entries: list[tuple[int, str]], low: tuple[int, str], high: tuple[int, str], inclusive: tuple[bool, bool]
) -> None:
    order: Order[tuple[int, str]] = Order(Draft())
    order.update(entries)
    plain = sorted(entries)
    assert list(order) == plain == order[:] and list(reversed(order)) == plain[::-1]
    assert (len(order), bool(order), low in order) == (len(plain), bool(plain), low in plain)
    assert order == plain and order == Order(Draft(), entries)
    between = [each for each in plain if (low < each or (inclusive[0] and low == each)) and (each < high or (inclusive[1] and each == high))]
    if low <= high:
        assert list(order.irange(low, high, inclusive)) == between
        assert list(order.irange(low, high, inclusive, reverse=True)) == between[::-1]
    assert list(order.irange(maximum=high)) == [each for each in plain if each <= high]
    assert order.bisect_left(low) == sum(each < low for each in plain)
    assert order.bisect_right(low) == sum(each <= low for each in plain)
    for place, each in enumerate(plain):
        assert order[place] == each and order.index(each) == place


@given(ENTRIES, ENTRIES)
def test_everything_that_changes_an_order_is_undone_with_its_draft(before: list[tuple[int, str]], after: list[tuple[int, str]]) -> None:
    draft = Draft()
    order: Order[tuple[int, str]] = Order(draft, before)
    draft.log = []
    if order:
        order.pop()
    if order:
        order.pop(0)
    order.clear()
    order.update(after)
    for owner, key, value in reversed(draft.log):
        owner.undo(key, value)
    assert list(order) == sorted(before)


def test_what_is_not_in_an_order_cannot_be_taken_out_of_it() -> None:
    order: Order[tuple[int, str]] = Order(Draft(), [(1, "a"), (2, "b")])
    for missing in ((0, "a"), (1, "b"), (3, "c")):
        with pytest.raises(ValueError, match="not in the order"):
            order.remove(missing)
        with pytest.raises(ValueError, match="not in the order"):
            order.index(missing)
        order.discard(missing)
    assert list(order) == [(1, "a"), (2, "b")]


def test_memories_can_say_what_is_in_a_table_and_in_an_order() -> None:
    for hint, kind, inside in ((Table[str, int], Table, (str, int)), (Order[tuple[int, str]], Order, (tuple[int, str],))):
        assert get_origin(hint) is kind and get_args(hint) == inside
