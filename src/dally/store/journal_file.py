"""A journal in one file: what a simulation leaves behind. Written in pieces, so that a run that is killed leaves what
it had; opened again, it goes on where the last whole instant ended."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dally.core.errors import UserError
from dally.core.journal import Instant
from dally.core.journal_text import JournalText, read_header, text_for
from dally.core.topology import Topology

_PIECE = 1024  # instants between two writes


class JournalFile:
    """A journal sink. A name that ends in `.gz` is compressed, without a time stamp: same run, same bytes.

    An existing journal is never overwritten by accident: `replace` says that it may be.
    """

    def __init__(self, path: str | Path, topology: Topology, *, replace: bool = True, **about: Any) -> None:
        self._path = Path(path)
        self._text = JournalText(topology)
        if not replace and self._path.exists():
            raise UserError(f"{path}: there is a journal already")
        try:
            # written beside it first: the journal that is there is lost only when the new one has begun
            self._raw = _beside(self._path).open("wb")
        except OSError as error:
            raise UserError(f"{path}: the journal cannot be written: {error.strerror}") from error
        self._file: IO[bytes] | gzip.GzipFile = self._raw
        if str(path).endswith(".gz"):
            self._file = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=self._raw, mtime=0)
        self._lines: list[str] = [self._text.header(**about)]
        self._flush()
        _beside(self._path).replace(self._path)

    def __call__(self, instant: Instant) -> None:
        self._lines.append(self._text.encode(instant))
        if len(self._lines) >= _PIECE:
            self._flush()

    def _flush(self) -> None:
        try:
            self._file.write("".join(self._lines).encode())
            if isinstance(self._file, gzip.GzipFile):
                self._file.flush(zlib.Z_SYNC_FLUSH)
            self._raw.flush()
        except OSError as error:
            raise UserError(f"{self._path}: the journal cannot be written: {error.strerror}") from error
        self._lines.clear()

    def __enter__(self) -> JournalFile:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._flush()
        finally:
            self._file.close()
            if not self._raw.closed:
                self._raw.close()


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".new")


class JournalReader:
    """A journal file from its beginning: its header, then its instants, as far as they are whole."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lines = _lines(self.path)
        self.about = read_header(next(self._lines, ""), str(path))
        self._text = text_for(self.about, str(path))
        self.torn = False  # whether something was left out at the end, known once all has been read
        self.begins_with: dict[str, Any] | None = None  # a snapshot, where the instants before it are gone

    @property
    def topology(self) -> Topology:
        """As it is at this point of the journal."""
        return self._text.topology

    def __iter__(self) -> Iterator[Instant]:
        for number, line in enumerate(self._lines, start=2):
            if not line.endswith("\n"):
                self.torn = True
                return
            yield self._text.decode(line, f"{self.path}, line {number}")


def read_journal(path: str | Path) -> Iterator[Instant]:
    """Instants of a journal file, compressed or not."""
    yield from JournalReader(path)


def _lines(path: Path) -> Iterator[str]:
    """Lines with their ends; a stream that breaks off ends with what could be read."""
    try:
        with path.open("rb") as raw:
            if not path.name.endswith(".gz"):
                for line in raw:
                    yield line.decode()
                return
            yield from _unpacked(raw)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the journal cannot be read: {error}") from error


def _unpacked(raw: IO[bytes]) -> Iterator[str]:
    """Line by line out of a compressed stream, up to where it was cut off."""
    unpack = zlib.decompressobj(wbits=31)
    rest = b""
    while piece := raw.read(1 << 16):
        try:
            rest += unpack.decompress(piece)
        except zlib.error as error:
            raise OSError(f"not a compressed journal ({error})") from error
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line.decode() + "\n"
    if rest:
        yield rest.decode(errors="replace")


def sync(file: IO[bytes]) -> None:
    """To the disk, not only to the system."""
    file.flush()
    os.fsync(file.fileno())
