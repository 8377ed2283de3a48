"""What is due comes in order of time, kind and entry, however much of it is still far off."""

from __future__ import annotations

import heapq
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dally.core import events as ev
from dally.core.agenda import Agenda

KINDS = (ev.Finished, ev.LeaseEnded, ev.TimerDue, ev.MachineDown)


def nothing(now: float, what: Any, epoch: int, events: list[ev.Event]) -> None:
    """Nothing happens."""


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(KINDS)), max_size=400),
       st.lists(st.tuples(st.integers(0, 30), st.sampled_from(KINDS), st.integers(1, 9)), max_size=200))  # fmt: skip
def test_it_gives_what_a_single_heap_gives(first: list[tuple[int, type]], then: list[tuple[int, type, int]]) -> None:
    """Many at once, then one by one while time goes on: what is entered is due at the present at the earliest."""
    agenda, heap, entered, now = Agenda(), [], 0, 0.0

    def enter(time: float, kind: type) -> None:
        nonlocal entered
        entered += 1
        agenda.enter(time, kind, nothing, entered)
        heapq.heappush(heap, (time, ev.ORDER[kind], entered))

    for time, kind in first:
        enter(float(time), kind)
    for later, kind, taken in then:
        for _ in range(taken):
            assert len(agenda) == len(heap) and bool(agenda) == bool(heap)
            assert agenda.next_time() == (heap[0][0] if heap else None)
            if heap:
                now = heap[0][0]
                assert next(agenda.due(now))[:3] == heapq.heappop(heap)
        enter(now + later / 3, kind)
    assert [due[:3] for due in agenda.due(1e9)] == [heapq.heappop(heap) for _ in range(len(heap))]
    assert not agenda
