"""Loading a trace: opens a file, a folder or standard input, finds out its format by content, and reads it."""

from __future__ import annotations

from pathlib import Path

from dally.core.collecting import uncollected
from dally.core.errors import UserError
from dally.traces.readers import Reader, all_readers
from dally.traces.source import Source, open_source
from dally.traces.trace import Trace


def formats() -> list[tuple[str, str]]:
    """(name, title) of every format that can be read."""
    return [(reader.name, reader.title) for reader in all_readers().values()]


def load_trace(path: str | Path, format: str | None = None) -> Trace:
    """Read a trace in any known format; `-` reads standard input, gzip is unpacked.

    `format` names a reader and skips the detection. What is not a trace raises `UserError` with one sentence.
    """
    source = open_source(path)
    reader = find_reader(source, format)
    with uncollected():
        return reader.read(source)


def find_reader(source: Source, format: str | None = None) -> Reader:
    """The reader for this source: the one named, or the one that recognises the content."""
    readers = all_readers()
    if format is not None:
        if format not in readers:
            raise UserError(f"{format!r} is not a trace format; known are {', '.join(readers)}")
        return readers[format]
    if source.is_parquet:  # the own format is the only binary one
        return readers["dally"]
    for reader in readers.values():
        if reader.recognises(source):
            return reader
    raise UserError(_unknown(source))


def _unknown(source: Source) -> str:
    known = ", ".join(reader.title for reader in all_readers().values())
    if source.is_folder:
        return f"{source.shown} is a folder without pai_task_table.csv: only Alibaba PAI 2020 is read from a folder"
    if source.looks_like_json:
        document = source.json()
        first = document[0] if isinstance(document, list) and document else document
        if not isinstance(first, dict):
            return f"{source.shown} is JSON but no trace: it holds no list of jobs; known are {known}"
        keys = ", ".join(str(key)[:40] for key in list(first)[:12])
        return f"{source.shown} is JSON but no trace: its entries have the keys {keys!r}; known are {known}"
    columns = source.header()
    found = ", ".join(column[:40] for column in columns[:12]) + (", …" if len(columns) > 12 else "")
    return f"{source.shown} is not a known trace: its first line reads {found!r}; known are {known}"
