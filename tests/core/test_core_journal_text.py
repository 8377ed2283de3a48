"""Every entry of a journal as text and back."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import ISLANDS, cluster
from dally.core import events as ev
from dally.core import journal as jl
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Entry, Instant, Leaving, Rejected
from dally.core.journal_text import JournalText, encode_all, read
from dally.core.placement import Placement
from dally.core.queues import Queue
from dally.core.reasons import Reason, Token
from dally.core.sharing import Share
from dally.core.topology import Level, MachineSpec, build_topology, changed
from dally.core.topology_text import topology_from_plain, topology_to_plain

names = st.text(min_size=1, max_size=12)
times = st.floats(0, 1e9, allow_nan=False)
maybe = st.none() | times
placements = st.dictionaries(st.integers(0, 99), st.integers(1, 255), min_size=1, max_size=4).map(
    lambda parts: Placement.of(parts.items()))  # fmt: skip
reasons = st.builds(Reason, st.sampled_from(Token), st.text(max_size=30), maybe,
                    st.lists(times | names, max_size=3).map(tuple))  # fmt: skip
waits = maybe | st.just(math.inf)
demands = st.builds(pl.demand_of, st.integers(1, 64), st.none() | names, st.none() | names, st.none() | names, waits)
jobs = st.builds(Job, names, times, st.integers(1, 64), st.none() | names, st.none() | names, st.none() | names,
                 st.none() | names, st.integers(-3, 3), maybe, maybe, maybe, st.floats(0.1, 1.0),
                 st.none() | st.integers(1, 64), st.none() | st.integers(1, 64), within=st.none() | names,
                 prefers=st.none() | names, wait=waits, preemptible=st.booleans())  # fmt: skip
shares = st.builds(Share, st.floats(0.1, 10.0), st.none() | names, st.floats(1.0, 600.0))
counts = st.integers(0, 99)

ENTRIES: dict[type, st.SearchStrategy[Any]] = {
    ev.Arrived: st.builds(ev.Arrived, jobs),
    ev.Finished: st.builds(ev.Finished, names),
    ev.Failed: st.builds(ev.Failed, names, st.text(max_size=9)),
    ev.Cancelled: st.builds(ev.Cancelled, names),
    ev.Yielded: st.builds(ev.Yielded, names),
    ev.StartFailed: st.builds(ev.StartFailed, names, st.text(max_size=20), st.booleans()),
    ev.Interrupted: st.builds(ev.Interrupted, names, times, st.text(max_size=20), st.just(0.0) | times, st.booleans()),
    ev.Held: st.builds(ev.Held, names, st.text(max_size=20)),
    ev.Released: st.builds(ev.Released, names),
    ev.ContactLost: st.builds(ev.ContactLost, names),
    ev.ContactRestored: st.builds(ev.ContactRestored, names),
    ev.MachineDown: st.builds(ev.MachineDown, names),
    ev.MachineDrained: st.builds(ev.MachineDrained, names),
    ev.MachineUp: st.builds(ev.MachineUp, names),
    ev.GpusWithheld: st.builds(ev.GpusWithheld, names, counts),
    ev.MachinesChanged: st.builds(ev.MachinesChanged, st.just(()) | st.just((MachineSpec(("new", "m0"), 4, "a100"),)),
                                  st.just(()) | st.just(("rack0/m0",))),
    ev.Started: st.builds(ev.Started, names),
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
    pl.Stop: st.builds(pl.Stop, names),
    jl.Odd: st.builds(jl.Odd, st.builds(ev.Interrupted, names, times, names) | st.builds(ev.Arrived, jobs), names),
    jl.Refused: st.builds(jl.Refused, names, names, names),
    jl.LetIn: st.builds(jl.LetIn, names),
    ev.QueuesSet: st.builds(ev.QueuesSet, st.lists(st.builds(
        Queue, names, st.floats(0.1, 9.0), st.none() | counts, st.none() | counts, st.none() | counts), max_size=3).map(tuple)),
    jl.InCharge: st.builds(jl.InCharge, names),
}  # fmt: skip


def test_every_kind_of_entry_is_covered_here() -> None:
    assert set(get_args(Entry)) == set(ENTRIES)


TREE = cluster(10, 10, 8)
HAPPENED = (*get_args(ev.Event), jl.Odd)


def round_trip(instant: Instant) -> None:
    text = JournalText(TREE)
    line = text.encode(instant)
    assert line.endswith("\n") and "\n" not in line[:-1]
    back = JournalText(TREE).decode(line)
    assert back == instant
    assert [type(entry) for entry in back.entries()] == [type(entry) for entry in instant.entries()]
    assert JournalText(TREE).encode(back) == line


@pytest.mark.parametrize("kind", ENTRIES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_an_entry_survives_the_way_through_text(kind: type, data: st.DataObject) -> None:
    now, entry = data.draw(times), data.draw(ENTRIES[kind])
    if kind in HAPPENED:
        round_trip(Instant(now, (entry,), data.draw(st.none() | st.just(()))))
    else:
        round_trip(Instant(now, (ev.TimerDue(),), (entry, entry)))


@given(st.data())
def test_the_quick_spelling_is_the_general_spelling(data: st.DataObject) -> None:
    text = JournalText(TREE)
    kind = data.draw(st.sampled_from(sorted(text._quick, key=lambda k: k.__name__)))
    instant = Instant(data.draw(times), (data.draw(ENTRIES[kind]),), None)
    quick = text.encode(instant)
    text._quick.clear()
    assert text.encode(instant) == quick


def test_what_comes_after_machines_came_and_went_is_written_by_the_new_numbers() -> None:
    change = ev.MachinesChanged((MachineSpec(("rack0", "m00"), 8),), ("rack0/m1",))
    after = changed(TREE, change.added, change.removed)
    where = Placement.of([(after.machine_by_name["rack0/m00"], 0b11), (after.machine_by_name["rack9/m9"], 0b1)])
    instants = [Instant(1.0, (change,), ()), Instant(2.0, (ev.TimerDue(),), (pl.Start("a", where),))]
    written = encode_all(TREE, instants)
    assert '"rack0/m00":"3"' in written and '"rack9/m9":"1"' in written
    assert list(read(written.splitlines(keepends=True))) == instants


ONE, TWO = Instant(1.0, (ev.Finished("a"),), ()), Instant(2.0, (ev.TimerDue(),), None)
LINES = encode_all(TREE, [ONE, TWO], policy="p").splitlines(keepends=True)


def test_reading_skips_the_header_and_a_last_line_that_was_cut_short() -> None:
    assert list(read(LINES)) == [ONE, TWO]
    last = LINES[-1]
    for cut in range(1, len(last)):
        assert list(read([*LINES[:-1], last[:cut]])) == [ONE]


def a_line(entry: str) -> str:
    return f'{{"t":1.0,"happened":[{entry}]}}'


@pytest.mark.parametrize("line", [
    "", "[]", "null", "7", "{}", '{"t":1}', '{"happened":[]}', a_line('{"e":"moon"}'), a_line('{"e":"finished"}'),
    '{"t":"x","happened":[]}', a_line('{"e":"timer","extra":1}'), a_line("7"),
    a_line('{"e":"start","job":"a","placement":{"x":"y"}}'), a_line('{"e":"wait","who":"a","reason":[]}'),
    a_line('{"e":"wait","who":"a","reason":["Moon","s"]}'),
    a_line('{"e":"wait","who":[1,2,3,4,5,6,7,8],"reason":["Priority","s"]}'), a_line('{"e":"arrived","job":{"id":"a"}}'),
    a_line('{"e":"start","job":"a","placement":5}'),
])  # fmt: skip
def test_a_line_that_is_no_instant_is_one_sentence_with_its_number(line: str) -> None:
    with pytest.raises(UserError, match="j, line 3: not a line of a journal"):
        list(read([*LINES[:2], line + "\n"], "j"))


@pytest.mark.parametrize("first", ["", "hello\n", "[1]\n", '{"version":1}\n', LINES[1]])
def test_a_file_without_a_header_is_not_a_journal(first: str) -> None:
    with pytest.raises(UserError, match="not a journal"):
        list(read([first] if first else []))


@pytest.mark.parametrize("version", [1, 99])
def test_a_journal_of_another_version_is_refused_in_one_sentence(version: int) -> None:
    with pytest.raises(UserError, match=f"version {version}; this program reads version 2"):
        list(read([json.dumps({"journal": version}) + "\n"]))


def test_a_header_without_a_cluster_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="does not say what the cluster was"):
        list(read([json.dumps({"journal": 2, "topology": {}}) + "\n"]))


def test_a_topology_survives_the_way_through_a_header() -> None:
    own = (Level("island", bandwidth=7.0), Level("machine", latency=3e-6))
    specs = [MachineSpec(("r", "a"), 4, "v100", (2, 2), own), MachineSpec(("r/s", "b"), 2, "a100")]
    for tree in (TREE, cluster(4), cluster(2, 4, islands=(2, 2)), build_topology(ISLANDS, specs, name="odd")):
        assert topology_from_plain(json.loads(json.dumps(topology_to_plain(tree)))) == tree
