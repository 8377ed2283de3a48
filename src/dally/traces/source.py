"""A file to be read as a trace: found, decompressed and decoded once, whatever format it turns out to be."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dally.core.errors import UserError

_HEAD = 64 * 1024
_DELIMITERS = ",;\t|"
_LARGEST = 16 * 1024**3  # bytes that a zip may unpack to


class Source:
    """One input: a file, a folder of tables, or standard input (`-`); `shown` is its name in messages."""

    __slots__ = ("_json", "_text", "data", "path", "shown", "stem")

    def __init__(self, shown: str, path: Path | None, data: bytes) -> None:
        self.shown, self.path, self.data = shown, path, data
        name = path.name.removesuffix(".gz").removesuffix(".zip") if path is not None else "stdin"
        self.stem = name.rsplit(".", 1)[0]
        self._text: str | None = None
        self._json: Any = None

    @property
    def is_folder(self) -> bool:
        return self.path is not None and self.path.is_dir()

    @property
    def is_parquet(self) -> bool:
        return self.data[:4] == b"PAR1"

    @property
    def text(self) -> str:
        """The whole text; refuses what is plainly not text."""
        if self._text is None:
            self._text = _decode(self.data, self.shown)
        return self._text

    def head_lines(self, count: int) -> list[str]:
        """The first `count` lines that are neither empty nor `#` comments, from the head of the file."""
        lines = (line for line in self.text[:_HEAD].splitlines() if line.strip() and not line.startswith("#"))
        return [line for line, _ in zip(lines, range(count), strict=False)]

    @property
    def looks_like_json(self) -> bool:
        return self.text[:_HEAD].lstrip()[:1] in ("[", "{")

    def json(self) -> Any:
        """The parsed JSON; one sentence with line and column when it is cut short or malformed."""
        if self._json is None:
            try:
                self._json = json.loads(self.text)
            except json.JSONDecodeError as error:
                cut = error.pos >= len(self.text.rstrip()) - 1 or "Unterminated" in error.msg
                how = "is cut short" if cut else "is not valid JSON"
                raise UserError(
                    f"{self.shown} {how}: line {error.lineno}, column {error.colno}: {error.msg}"
                ) from None
            except ValueError as error:  # a number of thousands of digits
                raise UserError(f"{self.shown} is not a trace: {error}") from None
            except RecursionError:
                raise UserError(f"{self.shown} is not a trace: its JSON is nested too deeply") from None
        return self._json

    def header(self) -> tuple[str, ...]:
        """Column names of the first line, lower case, as a delimited text would have them."""
        lines = self.head_lines(1)
        if not lines:
            return ()
        return tuple(name.strip().strip('"').lower() for name in lines[0].split(delimiter_of(lines[0])))

    def table(self, header: tuple[str, ...] | None = None) -> Table:
        """The text as rows under a header line, or under `header` where the file has none."""
        return Table(self, header)


class Table:
    """Delimited text as (line number, fields) pairs, with columns found by name."""

    __slots__ = ("_given", "_source", "columns")

    def __init__(self, source: Source, header: tuple[str, ...] | None = None) -> None:
        self._source, self._given = source, header is not None
        names = header if header is not None else source.header()
        self.columns = {name: index for index, name in reversed(list(enumerate(names)))}

    def column(self, *names: str) -> int | None:
        """Index of the first of these columns that the table has."""
        return next((self.columns[name] for name in names if name in self.columns), None)

    def needed(self, *names: str) -> tuple[int, ...]:
        """Indices of columns the table must have."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            found = ", ".join(name[:40] for name in list(self.columns)[:12])
            lack = ", ".join(missing)
            raise UserError(f"{self._source.shown} lacks the columns {lack}: its first line reads {found!r}")
        return tuple(self.columns[name] for name in names)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Data rows with their line numbers; blank lines and `#` comments are no rows."""
        source = self._source
        lines = source.head_lines(1)
        header_seen = self._given
        for number, fields in _records(source, delimiter_of(lines[0]) if lines else ",", len(self.columns)):
            if not fields or fields[0].startswith("#") or (len(fields) == 1 and not fields[0].strip()):
                continue
            if header_seen:
                yield number, fields
            header_seen = True


def _records(source: Source, delimiter: str, width: int) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields). A field in quotation marks may hold line breaks; a lone quotation mark at the begin of a
    field opens none: where a line inside it is a whole row by itself, it and the others are rows."""
    held: list[str] = []  # the lines of the record that is being read
    count = 0

    def feed() -> Iterator[str]:
        nonlocal count
        for line in io.StringIO(source.text, newline=""):
            held.append(line)
            count += 1
            yield line

    given = feed()
    while True:
        reader = csv.reader(given, delimiter=delimiter)
        try:
            for fields in reader:
                if len(held) > 1 and any(_is_row(line, delimiter, width) for line in held[1:]):
                    yield from _one_by_one(source, held, delimiter, count)
                else:
                    yield count, fields
                held.clear()
            return
        except csv.Error as error:
            if len(held) == 1:
                raise UserError(f"{source.shown}, line {count}: {error}") from None
            yield from _one_by_one(source, held, delimiter, count)
            held.clear()


def _is_row(line: str, delimiter: str, width: int) -> bool:
    return width > 1 and line.count(delimiter) == width - 1


def _one_by_one(source: Source, lines: list[str], delimiter: str, last: int) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, start=last - len(lines) + 1):
        try:
            yield number, next(csv.reader([line], delimiter=delimiter, quoting=csv.QUOTE_NONE), [])
        except csv.Error as error:
            raise UserError(f"{source.shown}, line {number}: {error}") from None


def delimiter_of(line: str) -> str:
    """The delimiter a header line uses: the candidate that occurs most, a comma when none does."""
    return max(_DELIMITERS, key=line.count)


def open_source(path: str | Path) -> Source:
    """Read a file, standard input (`-`) or name a folder; a gzip or zip is unpacked whatever it is called."""
    if str(path) == "-":
        return Source("standard input", None, _unpack(sys.stdin.buffer.read(), "standard input"))
    file = Path(path)
    shown = str(path)
    try:
        if file.is_dir():
            return Source(shown, file, b"")
        data = file.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{shown} does not exist") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{shown} cannot be read: {reason}") from None
    return Source(shown, file, _unpack(data, shown))


def _unpack(data: bytes, shown: str) -> bytes:
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{shown} is a damaged gzip file: {error}") from None
    elif data[:4] == b"PK\x03\x04":
        data = _unzip(data, shown)
    if not data.strip():
        raise UserError(f"{shown} is empty")
    return data


def _unzip(data: bytes, shown: str) -> bytes:
    """The one file in a zip."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = [info for info in archive.infolist() if not info.is_dir()]
            if len(files) != 1:
                raise UserError(f"{shown} is a zip of {len(files)} files; unpack it and give the one that is meant")
            if files[0].file_size > _LARGEST:
                raise UserError(f"{shown}: {files[0].filename[:80]!r} in it is said to have {files[0].file_size} bytes")
            return archive.read(files[0])
    except (UserError, MemoryError):
        raise
    except Exception as error:  # a directory that points nowhere fails in a dozen ways, not all of them zipfile's own
        raise UserError(f"{shown} is a damaged zip file, or one that cannot be read here: {error}") from None


def _decode(data: bytes, shown: str) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # what spreadsheets save as "Unicode text"
        return data.decode("utf-16", errors="replace")
    if b"\0" in data[:_HEAD]:
        raise UserError(f"{shown} is not a trace: it is a binary file, not text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if sum(not (char.isprintable() or char in "\r\n\t") for char in text[:4096]) > 0.1 * len(text[:4096]):
        raise UserError(f"{shown} is not a trace: it is a binary file, not text")
    return text
