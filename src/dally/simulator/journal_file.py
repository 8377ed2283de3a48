"""The journal in a file: written as it happens, so that a run that is killed leaves what it had."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dally.core.errors import UserError
from dally.core.journal import Entry
from dally.core.journal_text import encode, header, read


class JournalFile:
    """A journal sink. A name that ends in `.gz` is compressed, without a time stamp: same run, same bytes."""

    def __init__(self, path: str | Path, **about: Any) -> None:
        try:
            raw = Path(path).open("wb")  # noqa: SIM115 - closed in __exit__
        except OSError as error:
            raise UserError(f"{path}: the journal cannot be written: {error.strerror}") from error
        self._raw = raw
        self._file: IO[bytes] | gzip.GzipFile = raw
        if str(path).endswith(".gz"):
            self._file = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0)
        self._lines: list[str] = [header(**about)]

    def __call__(self, now: float, entry: Entry) -> None:
        self._lines.append(encode(now, entry))
        if len(self._lines) >= 4096:
            self._flush()

    def _flush(self) -> None:
        self._file.write("".join(self._lines).encode())
        self._lines.clear()

    def __enter__(self) -> JournalFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._file.close()
        self._raw.close()


def read_journal(path: str | Path) -> Iterator[tuple[float, Entry]]:
    """Entries of a journal file, compressed or not."""
    opening: Any = gzip.open if str(path).endswith(".gz") else open
    try:
        with opening(path, "rt") as lines:
            yield from read(lines, str(path))
    except EOFError:
        return  # a run that was killed: the compressed stream ends where it stopped
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the journal cannot be read: {error}") from error
