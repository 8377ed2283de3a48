"""Faults: lists of outages from files, and chance from the seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import cluster
from dally.core.errors import UserError
from dally.simulator.faults import Faults
from dally.simulator.outages import read_outages

TREE = cluster(2, 2, 4)  # rack0/m0 …


def test_outages_are_read_by_machine_and_in_order_of_time(tmp_path: Path) -> None:
    file = tmp_path / "outages.csv"
    file.write_text("machine,down,up\nrack1/m0,2h,3h\nrack0/m1,100,\nrack1/m0,10m,20m\n")
    assert read_outages(file, TREE) == {2: [(600.0, 1200.0), (7200.0, 10800.0)], 1: [(100.0, None)]}


@pytest.mark.parametrize(("text", "says"), [
    ("", "columns machine,down,up"),
    ("machine,down,up\n", "at least one row"),
    ("node,down,up\nm0,1,2\n", "columns machine,down,up"),
    ("machine,down,up\nrack9/m0,1,2\n", "line 2, machine: the cluster has no machine 'rack9/m0'"),
    ("machine,down,up\nrack0/m0,1,2\nm0,1,2\n", "line 3, machine"),
    ("machine,down,up\nrack0/m0,soon,2\n", "line 2.*'soon' is not a time"),
    ("machine,down,up\nrack0/m0\n", "line 2"),
    ("machine,down,up\nrack0/m0,5,5\n", "line 2, up: the machine comes back before it goes down"),
    ("machine,down,up\nrack0/m0,-5,5\n", "line 2, down.*not negative"),
    ("machine,down,up\nrack0/m0,1,10\nrack0/m0,5,20\n", "rack0/m0 goes down at 5 s while it is still down"),
    ("machine,down,up\nrack0/m0,1,\nrack0/m0,5,20\n", "while it is still down"),
])  # fmt: skip
def test_a_list_with_a_mistake_names_the_line_and_the_field(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "outages.csv"
    file.write_text(text)
    with pytest.raises(UserError, match=says):
        read_outages(file, TREE)


def test_a_file_that_is_not_there_or_not_text_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_outages(tmp_path / "nothing.csv", TREE)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        read_outages(binary, TREE)


EVENTS = """Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User
c||2026-01-01T00:00:00|Unknown||Cluster processor count|
c|m0|2026-01-01T08:00:00|2026-01-01T11:00:00|DOWN*|Not responding|slurm(0)
c|m0|2026-01-01T10:30:00|2026-01-01T12:00:00|DOWN|"kernel|root(0)
c|m1|2026-01-02T00:00:00|Unknown|DOWN+DRAIN|broken|root(0)
c|m2|2026-01-01T20:00:00|2026-01-02T20:00:00|DRAINED|firmware|root(0)
c|m3|2025-12-01T20:00:00|2025-12-02T20:00:00|DOWN|long ago|root(0)
c|login1|2026-01-01T20:00:00|2026-01-02T20:00:00|DOWN|no GPUs|root(0)
"""


def test_events_of_sacctmgr_are_outages_from_the_traces_own_zero(tmp_path: Path) -> None:
    file, notes = tmp_path / "events.txt", list[str]()
    file.write_text(EVENTS)
    tree = cluster(1, 4, 4)
    found = read_outages(file, tree, "2026-01-01T10:00:00", notes)
    assert found == {0: [(0.0, 7200.0)], 1: [(14 * 3600.0, None)]}  # reports that overlap are one outage
    assert notes == ["outages: left out: 1 event of drained nodes, which end no job",
                     "outages: left out: 1 event of nodes that the cluster does not have",
                     "outages: left out: 1 event of a time before the trace begins"]  # fmt: skip


def test_events_with_impossible_ends_are_left_out_and_counted(tmp_path: Path) -> None:
    file, notes = tmp_path / "events.txt", list[str]()
    file.write_text("NodeName|TimeStart|TimeEnd|State|Reason\n"
                    "m0|2026-01-02T00:00:00|tomorrow|DOWN|no date: not for ever\n"
                    "m1|2026-01-02T00:00:00|2026-01-01T23:00:00|DOWN|backwards\n"
                    "m1|2026-01-02T00:00:00|2026-01-02T00:00:00|DOWN|an instant\n"
                    "m2|2026-01-02T00:00:00|1970-01-01T00:00:00|DOWN|a clock nobody set\n")  # fmt: skip
    assert read_outages(file, cluster(1, 4, 4), "2026-01-01T00:00:00", notes) == {2: [(86400.0, None)]}
    assert notes == ["outages: left out: 1 event without a date",
                     "outages: left out: 2 events that end no later than they begin"]  # fmt: skip


def test_events_need_a_trace_with_a_date(tmp_path: Path) -> None:
    file = tmp_path / "events.txt"
    file.write_text(EVENTS)
    with pytest.raises(UserError, match="does not say on what date it begins"):
        read_outages(file, TREE)


def test_by_default_nothing_breaks() -> None:
    faults = Faults(8)
    assert list(faults.first()) == []
    assert faults.crash_after("a", 0, 0.0) is None


def test_what_happens_to_one_machine_does_not_depend_on_another() -> None:
    alone, together = Faults(8, mtbf=100.0, seed=3), Faults(8, mtbf=100.0, seed=3)
    for machine in range(7):
        together.next_failure(machine, 0.0)
        together.repaired(machine, 50.0)
    assert alone.next_failure(7, 0.0) == together.next_failure(7, 0.0)


def test_the_mean_time_between_failures_is_the_mean() -> None:
    downs = [down for _, down in Faults(4000, mtbf=500.0, seed=1).first()]
    assert sum(downs) / len(downs) == pytest.approx(500, rel=0.1)
