"""What is due comes in order of time, of kind and of entry, however far ahead it was entered."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dally.core import events as ev
from dally.core.agenda import Agenda

KINDS = (ev.Finished, ev.LeaseEnded, ev.TimerDue)


def nothing(now: float, what: Any, epoch: int, events: list[ev.Event]) -> None:
    """Nobody carries it out here."""


@given(st.lists(st.tuples(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0, 40.0, 1000.0]), st.sampled_from(KINDS)),
                                   max_size=90), st.sampled_from([0.0, 0.5, 2.0, 100.0])), max_size=12))  # fmt: skip
def test_everything_due_is_taken_out_in_order_and_once(turns: list[tuple[list[tuple[float, type]], float]]) -> None:
    agenda, expected, now, count = Agenda(), [], 0.0, 0
    for entered, later in turns:
        for ahead, kind in entered:
            count += 1
            agenda.enter(now + ahead, kind, nothing, count)
            expected.append((now + ahead, ev.ORDER[kind], count))
        now += later
        expected.sort()
        due = [each for each in expected if each[0] <= now]
        del expected[: len(due)]
        assert [(time, rank, what) for time, rank, _, _, what, _ in agenda.due(now)] == due
        assert len(agenda) == len(expected) and bool(agenda) == bool(expected)
        assert agenda.next_time() == (expected[0][0] if expected else None)


def test_what_is_entered_for_now_while_it_is_taken_out_comes_with_it() -> None:
    agenda, seen = Agenda(), []
    for place in range(200):
        agenda.enter(float(place), ev.TimerDue, nothing, place)
    for _, _, _, _, what, _ in agenda.due(10.0):
        seen.append(what)
        if what == 5:
            agenda.enter(7.0, ev.Finished, nothing, "more")
    assert seen == [0, 1, 2, 3, 4, 5, 6, "more", 7, 8, 9, 10]
