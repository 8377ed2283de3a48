"""The durable journal: whole instants or none, wherever it is cut."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from builders import cluster
from dally.core import events as ev
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Instant
from dally.core.topology import MachineSpec
from dally.store.journal_file import JournalFile, JournalReader, read_journal
from dally.store.store import Store, open_journal, segments, snapshots

TREE = cluster(2, 2)


def instants(first: int, count: int) -> list[Instant]:
    return [Instant(float(i), (ev.Arrived(Job(f"j{i}", float(i), 1)),), ()) for i in range(first, first + count)]


def test_a_store_cut_at_any_byte_gives_back_its_whole_instants_and_goes_on(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", TREE, policy="fifo") as store:
        store.append(instants(0, 4))
    path = segments(tmp_path / "s")[0][1]
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(header, len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends) - 1
        with Store.open(tmp_path / "s") as store:
            assert store.instants == kept
            assert list(store.since(0)) == instants(0, kept)
            store(instants(kept, 1)[0])
            assert list(store.since(0)) == instants(0, kept + 1)
        assert open_journal(tmp_path / "s").about["policy"] == "fifo"


def test_a_restart_reads_the_newest_snapshot_and_what_came_after_it(tmp_path: Path) -> None:
    with Store.create(tmp_path, TREE) as store:
        store.append(instants(0, 3))
        store.snapshot({"n": 3})
        store.append(instants(3, 2))
    with Store.open(tmp_path) as store:
        assert store.newest_snapshot() == (3, {"n": 3})
        assert list(store.since(3)) == instants(3, 2)
        assert list(store.since(0)) == instants(0, 5)
        assert list(store.since(4)) == instants(4, 1)


def test_a_snapshot_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    with Store.create(tmp_path, TREE) as store:
        store.snapshot({"n": 0})
        store.append(instants(0, 2))
        store.snapshot({"n": 2})
    snapshots(tmp_path)[-1][1].write_bytes(b'{"n": 2')
    with Store.open(tmp_path) as store:
        assert store.newest_snapshot() == (0, {"n": 0})


def test_compaction_keeps_what_a_restart_needs_even_if_the_last_snapshot_is_lost(tmp_path: Path) -> None:
    with Store.create(tmp_path, TREE) as store:
        for number in range(4):
            store.append(instants(2 * number, 2))
            store.snapshot({"n": 2 * number + 2}, keep=False)
        store.append(instants(8, 1))
    assert [number for number, _ in snapshots(tmp_path)] == [6, 8]
    with Store.open(tmp_path) as store:
        assert list(store.since(6)) == instants(6, 3)
        with pytest.raises(UserError, match="not all here any more"):
            list(store.since(5))
    assert open_journal(tmp_path).begins_with == {"n": 6}


def test_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    with Store.create(tmp_path, TREE), pytest.raises(UserError, match="another process writes"):
        Store.open(tmp_path)
    with Store.open(tmp_path):
        pass


def test_a_store_is_never_written_over_and_none_is_found_where_there_is_none(tmp_path: Path) -> None:
    Store.create(tmp_path, TREE).close()
    with pytest.raises(UserError, match="there is a store already"):
        Store.create(tmp_path, TREE)
    with pytest.raises(UserError, match="there is no store"):
        Store.open(tmp_path / "elsewhere")


def test_a_line_that_is_broken_in_the_middle_is_named(tmp_path: Path) -> None:
    with Store.create(tmp_path, TREE) as store:
        store.append(instants(0, 3))
    path = segments(tmp_path)[0][1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\0\0\0\n", *lines[3:]]))
    with Store.open(tmp_path) as store, pytest.raises(UserError, match="line 3: not a line of a journal"):
        list(store.since(0))


def test_a_write_that_fails_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.create(tmp_path, TREE) as store:
        store.append(instants(0, 1))

        def full(number: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                store.append(instants(1, 1))
        assert (store.instants, list(store.since(0))) == (1, instants(0, 1))
        store.append(instants(1, 1))
        assert list(store.since(0)) == instants(0, 2)


def test_the_cluster_as_it_is_after_machines_came_is_known_after_a_restart(tmp_path: Path) -> None:
    change = Instant(1.0, (ev.MachinesChanged((MachineSpec(("m9",), 2),), ()),), ())
    with Store.create(tmp_path, TREE) as store:
        store.append([change])
    with Store.open(tmp_path) as store:
        assert store.text.topology.machine_names == ("m0", "m1", "m9")
        store.snapshot({})
    header = json.loads(segments(tmp_path)[-1][1].read_text().splitlines()[0])
    assert [machine[0] for machine in header["topology"]["machines"]] == ["m0", "m1", "m9"]


@pytest.mark.parametrize("name", ["j.jsonl", "j.jsonl.gz"])
def test_a_journal_file_cut_at_any_byte_gives_back_a_beginning_of_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with JournalFile(path, TREE, policy="p") as journal:
        for instant in instants(0, 5):
            journal(instant)
    whole = path.read_bytes()
    assert list(read_journal(path)) == instants(0, 5)
    last = 0
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        try:
            found = list(read_journal(path))
        except UserError as error:
            assert last == 0, error
            continue
        assert found == instants(0, len(found)) and len(found) >= last
        last = len(found)
    assert last == 5 or name.endswith("jsonl")


def test_a_journal_that_is_there_is_kept_until_the_new_one_has_begun(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with JournalFile(path, TREE, policy="old") as journal:
        journal(instants(0, 1)[0])
    with pytest.raises(UserError, match="there is a journal already"):
        JournalFile(path, TREE, replace=False, policy="new")
    assert JournalReader(path).about["policy"] == "old"
