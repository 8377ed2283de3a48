"""A folder that loses nothing: segments of the journal, each synced before it is acted on, and snapshots in between.

    journal-000000000000.jsonl    instants from the first on, one a line, after a header of its own
    snapshot-000000005000.json    the state after 5,000 instants
    journal-000000005000.jsonl    what came after it

An instant is appended, synced, and only then made the state of the house. A kill at any byte leaves whole instants
and at most one that is torn, which is cut off at the next opening: it was never acted on. A snapshot is written beside
and renamed; a restart reads the newest one that is whole and the instants after it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dally.core.errors import UserError
from dally.core.journal import Instant
from dally.core.journal_text import JournalText, read_header, text_for
from dally.core.topology import Topology
from dally.store.journal_file import JournalReader, sync


class Store:
    """The one writer of a folder. Use `Store.create` for a new one and `Store.open` for one that is there."""

    def __init__(self, folder: Path, about: dict[str, Any], topology: Topology, instants: int, lock: IO[bytes]) -> None:
        self.folder, self.about, self.instants = folder, about, instants
        self.text = JournalText(topology)
        self._lock = lock
        self._file: IO[bytes] | None = None
        self.synced = True  # False: fewer syncs, for what can be done again

    # --- opening ----------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: str | Path, topology: Topology, **about: Any) -> Store:
        """A new store; refused where there is one."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = _locked(folder)
        except OSError as error:
            raise UserError(f"{folder}: the store cannot be made: {error.strerror}") from error
        if segments(folder):
            lock.close()
            raise UserError(f"{folder}: there is a store already")
        store = cls(folder, about, topology, 0, lock)
        store._begin_segment()
        return store

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """The store as it was left; what a crash tore off at the end is cut away."""
        folder = Path(folder)
        if not segments(folder):
            raise UserError(f"{folder}: there is no store here")
        try:
            lock = _locked(folder)
            recovered = _mend(folder)
        except OSError as error:
            raise UserError(f"{folder}: the store cannot be opened: {error.strerror or error}") from error
        about, topology, instants = recovered
        store = cls(folder, about, topology, instants, lock)
        store._file = (segments(folder)[-1][1]).open("ab")
        return store

    def close(self) -> None:
        if self._file is not None:
            sync(self._file)
            self._file.close()
            self._file = None
        self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing ----------------------------------------------------------------------------------------------

    def __call__(self, instant: Instant) -> None:
        """A journal sink: returns when the instant is on the disk. Fails with the journal as it was."""
        self.append([instant])

    def append(self, instants: list[Instant]) -> None:
        """Several at once cost one sync."""
        assert self._file is not None, "the store is closed"
        at = self._file.tell()
        try:
            self._file.write("".join(map(self.text.encode, instants)).encode())
            self._file.flush()
            if self.synced:
                os.fsync(self._file.fileno())
        except OSError:
            # what was half written would make the next instant unreadable
            self._file.close()
            path = segments(self.folder)[-1][1]
            os.truncate(path, at)
            self._file = path.open("ab")
            raise
        self.instants += len(instants)

    def snapshot(self, state: dict[str, Any], *, keep: bool = True) -> None:
        """The state after all instants so far, and a new segment after it. `keep=False` compacts: what lies before
        this snapshot is deleted, but for the snapshot before it and the instants since."""
        path = self.folder / f"snapshot-{self.instants:012d}.json"
        beside = path.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(json.dumps(state, allow_nan=False, separators=(",", ":")).encode() + b"\n")
            sync(file)
        beside.replace(path)
        _sync_folder(self.folder)
        if self._file is not None:
            sync(self._file)
            self._file.close()
        self._begin_segment()
        if not keep:
            self.compact()

    def compact(self) -> None:
        """Delete what a restart does not need: everything before the last snapshot but one."""
        found = snapshots(self.folder)
        if len(found) < 2:
            return
        oldest = found[-2][0]
        for number, path in (*segments(self.folder), *found):
            if number < oldest:
                path.unlink()
        _sync_folder(self.folder)

    def _begin_segment(self) -> None:
        path = self.folder / f"journal-{self.instants:012d}.jsonl"
        beside = path.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(self.text.header(**self.about, instants=self.instants).encode())
            sync(file)
        beside.replace(path)  # with its header, or not there at all
        _sync_folder(self.folder)
        self._file = path.open("ab")

    # --- reading ----------------------------------------------------------------------------------------------

    def newest_snapshot(self) -> tuple[int, dict[str, Any]] | None:
        return newest_snapshot(self.folder)

    def since(self, number: int) -> Iterator[Instant]:
        return instants_since(self.folder, number)


class StoredJournal(JournalReader):
    """A store read as one journal, from the oldest instant that is kept."""

    def __init__(self, folder: Path) -> None:
        first, path = segments(folder)[0]
        super().__init__(path)
        self._folder, self._first = folder, first
        if first > 0:
            found = dict(snapshots(folder)).get(first)
            if found is None:
                raise UserError(f"{folder}: the snapshot its journal begins with, number {first}, is not there")
            self.begins_with = json.loads(found.read_bytes())

    def __iter__(self) -> Iterator[Instant]:
        return instants_since(self._folder, self._first)


def open_journal(path: str | Path) -> JournalReader:
    """A journal file, or a store, to be read from its beginning."""
    path = Path(path)
    return StoredJournal(path) if path.is_dir() and segments(path) else JournalReader(path)


def segments(folder: Path) -> list[tuple[int, Path]]:
    """(instants before it, file), in order."""
    return _numbered(folder, "journal-", ".jsonl")


def snapshots(folder: Path) -> list[tuple[int, Path]]:
    return _numbered(folder, "snapshot-", ".json")


def _numbered(folder: Path, stem: str, end: str) -> list[tuple[int, Path]]:
    found = []
    for path in sorted(folder.glob(f"{stem}*{end}")):
        number = path.name.removeprefix(stem).removesuffix(end)
        if number.isdigit():
            found.append((int(number), path))
    return found


def newest_snapshot(folder: Path) -> tuple[int, dict[str, Any]] | None:
    """The newest that can be read: one that a crash left half written was never renamed, but disks do fail."""
    for number, path in reversed(snapshots(folder)):
        try:
            state: dict[str, Any] = json.loads(path.read_bytes())
            return number, state
        except (OSError, ValueError):
            continue
    return None


def instants_since(folder: Path, number: int) -> Iterator[Instant]:
    """Instants after the first `number`, over all segments; a torn one at the very end is left out."""
    parts = segments(folder)
    if not parts or parts[0][0] > number:
        raise UserError(f"{folder}: the instants after number {number} are not all here any more")
    for index, (first, path) in enumerate(parts):
        following = parts[index + 1][0] if index + 1 < len(parts) else None
        if following is not None and following <= number:
            continue
        at = first
        for instant in _read_segment(path, last=following is None):
            at += 1
            if at > number:
                yield instant
        if following is not None and at != following:
            raise UserError(f"{path}: {following - at} instants are missing at its end")


def _read_segment(path: Path, *, last: bool) -> Iterator[Instant]:
    with path.open("rb") as file:
        header = file.readline().decode(errors="replace")
        text = text_for(read_header(header, str(path)), str(path))
        for number, line in enumerate(file, start=2):
            if not line.endswith(b"\n"):
                if last:
                    return
                raise UserError(f"{path}, line {number}: cut off, though it is not the end of the journal")
            yield text.decode(line.decode(errors="replace"), f"{path}, line {number}")


def _mend(folder: Path) -> tuple[dict[str, Any], Topology, int]:
    """Cut off what is torn; returns the header, the cluster as it is at the end, and the number of instants."""
    for leftover in folder.glob("*.new"):
        leftover.unlink()
    first, path = segments(folder)[-1]
    with path.open("rb+") as file:
        about = read_header(file.readline().decode(errors="replace"), str(path))
        text = text_for(about, str(path))
        whole, count = file.tell(), 0
        for line in file:
            if not line.endswith(b"\n"):
                break
            if b'"machines"' in line:  # the cluster may change here
                text.decode(line.decode(), f"{path}, line {count + 2}")
            whole += len(line)
            count += 1
        file.truncate(whole)
        sync(file)
    given = {name: value for name, value in about.items() if name not in ("journal", "topology", "instants")}
    return given, text.topology, first + count


def _locked(folder: Path) -> IO[bytes]:
    """One writer at a time; a second one is told so at once."""
    lock = (folder / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise UserError(f"{folder}: another process writes to this store") from None
    return lock


def _sync_folder(folder: Path) -> None:
    """Renames and deletions to the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
