"""Every entry of a journal as text and back."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.core import events as ev
from dally.core import journal_text
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Entry, Leaving, Rejected
from dally.core.journal_text import decode, encode, header, read
from dally.core.placement import Placement
from dally.core.reasons import Reason, Token
from dally.core.sharing import Share

names = st.text(min_size=1, max_size=12)
times = st.floats(0, 1e9, allow_nan=False)
maybe = st.none() | times
placements = st.dictionaries(st.integers(0, 99), st.integers(1, 255), min_size=1, max_size=4).map(
    lambda parts: Placement.of(parts.items()))  # fmt: skip
reasons = st.builds(Reason, st.sampled_from(Token), st.text(max_size=30), maybe)
demands = st.builds(pl.Demand, st.integers(1, 64), st.none() | names)
jobs = st.builds(Job, names, times, st.integers(1, 64), st.none() | names, st.none() | names, st.none() | names,
                 st.none() | names, st.integers(-3, 3), maybe, maybe, maybe, st.floats(0.1, 1.0),
                 st.none() | st.integers(1, 64), st.none() | st.integers(1, 64))  # fmt: skip
shares = st.builds(Share, st.floats(0.1, 10.0), st.none() | names, st.floats(1.0, 600.0))
counts = st.integers(0, 99)

ENTRIES: dict[type, st.SearchStrategy[Any]] = {
    ev.Arrived: st.builds(ev.Arrived, jobs),
    ev.Finished: st.builds(ev.Finished, names),
    ev.Failed: st.builds(ev.Failed, names),
    ev.Cancelled: st.builds(ev.Cancelled, names),
    ev.Yielded: st.builds(ev.Yielded, names),
    ev.Interrupted: st.builds(ev.Interrupted, names, times, st.text(max_size=20)),
    ev.MachineDown: st.builds(ev.MachineDown, counts),
    ev.MachineUp: st.builds(ev.MachineUp, counts),
    ev.LeaseEnded: st.builds(ev.LeaseEnded, names),
    ev.Measured: st.builds(ev.Measured, names, times, times, times, st.just(0.0) | times, st.just(1.0) | times),
    ev.TimerDue: st.builds(ev.TimerDue),
    pl.Start: st.builds(pl.Start, names, placements, maybe, st.none() | st.just(Share()) | shares),
    pl.Preempt: st.builds(pl.Preempt, names),
    pl.Migrate: st.builds(pl.Migrate, names, placements, maybe, st.none() | shares),
    pl.Resize: st.builds(pl.Resize, names, placements, maybe),
    pl.Reshare: st.builds(pl.Reshare, names, shares),
    pl.Extend: st.builds(pl.Extend, names, times),
    pl.WakeAt: st.builds(pl.WakeAt, times),
    pl.Wait: st.builds(pl.Wait, names | demands, reasons),
    Rejected: st.builds(Rejected, names, reasons),
    Leaving: st.builds(Leaving, names, counts),
}


def test_every_kind_of_entry_is_covered_here() -> None:
    assert set(get_args(Entry)) == set(ENTRIES)


@pytest.mark.parametrize("kind", ENTRIES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_an_entry_survives_the_way_through_text(kind: type, data: st.DataObject) -> None:
    now, entry = data.draw(times), data.draw(ENTRIES[kind])
    line = encode(now, entry)
    assert line.endswith("\n") and "\n" not in line[:-1]
    back = decode(line)
    assert back == (now, entry)
    assert type(back[1]) is kind
    assert encode(*back) == line


@given(st.data())
def test_the_quick_spelling_is_the_general_spelling(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(journal_text._QUICK, key=lambda k: k.__name__)))
    now, entry = data.draw(times), data.draw(ENTRIES[kind])
    quick = encode(now, entry)
    kept = journal_text._QUICK.pop(kind)
    try:
        assert encode(now, entry) == quick
    finally:
        journal_text._QUICK[kind] = kept


LINES = [header(policy="p"), encode(1.0, ev.Finished("a")), encode(2.0, ev.TimerDue())]


def test_reading_skips_the_header_and_a_last_line_that_was_cut_short() -> None:
    whole = [(1.0, ev.Finished("a")), (2.0, ev.TimerDue())]
    assert list(read(LINES)) == whole
    last = LINES[-1]
    for cut in range(1, len(last)):
        assert list(read([*LINES[:-1], last[:cut]])) == whole[:1]


@pytest.mark.parametrize("line", [
    "", "[]", "null", "7", "{}", '{"t":1}', '{"t":1,"e":"moon"}', '{"t":1,"e":"finished"}',
    '{"t":"x","e":"timer"}', '{"t":1,"e":"timer","extra":1}', '{"t":1,"e":"start","job":"a","placement":"x:y"}',
    '{"t":1,"e":"wait","who":"a","reason":[]}', '{"t":1,"e":"wait","who":"a","reason":["Moon","s"]}',
    '{"t":1,"e":"wait","who":[1,2,3],"reason":["Held","s"]}', '{"t":1,"e":"arrived","job":{"id":"a"}}',
    '{"t":1,"e":"start","job":"a","placement":5}',
])  # fmt: skip
def test_a_line_that_is_no_entry_is_one_sentence_with_its_number(line: str) -> None:
    with pytest.raises(UserError, match="j, line 3: not a line of a journal"):
        list(read([*LINES[:2], line + "\n"], "j"))


@pytest.mark.parametrize("first", ["", "hello\n", "[1]\n", '{"version":1}\n', encode(1.0, ev.TimerDue())])
def test_a_file_without_a_header_is_not_a_journal(first: str) -> None:
    with pytest.raises(UserError, match="not a journal"):
        list(read([first] if first else []))


def test_a_journal_of_another_version_is_refused() -> None:
    with pytest.raises(UserError, match="version 99"):
        list(read([json.dumps({"journal": 99}) + "\n"]))
