"""A file to be read as a trace: found, unpacked and decoded, whatever format it turns out to be."""

from __future__ import annotations

import csv
import io
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from dally.core.errors import UserError
from dally.traces.json_parts import TOP, NotSoError, Part, parts, parts_of

_HEAD = 64 * 1024
_DELIMITERS = ",;\t|"
_LARGEST = 16 * 1024**3  # bytes that a zip may unpack to
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"\xff\xfe", b"\xfe\xff")  # how bytes that are no text may begin
_KEPT = 32 * 1024**2  # bytes of a pipe that are kept in memory; more goes to a temporary file


class Source:
    """One input: a file, a folder of tables, or a pipe (`-`: standard input); `shown` is its name in messages.

    Formats of one line per job are read line by line (`lines`), so that a dump of any length is never in memory as a
    whole; `text` and `data` are all of it."""

    __slots__ = ("_head", "_json", "_pipe", "_text", "_unzipped", "path", "shown", "stem")

    def __init__(self, shown: str, path: Path | None, pipe: IO[bytes] | None = None) -> None:
        self.shown, self.path, self._pipe = shown, path, pipe
        name = path.name.removesuffix(".gz").removesuffix(".zip") if path is not None else "stdin"
        self.stem = name.rsplit(".", 1)[0]
        self._text: str | None = None
        self._json: Any = None
        self._unzipped: bytes | None = None
        self._head = b""
        if not self.is_folder:
            with self._reading() as stream:
                self._head = stream.read(_HEAD)
            if not self._head.strip() and not self.data.strip():
                raise UserError(f"{shown} is empty")

    @property
    def is_folder(self) -> bool:
        return self.path is not None and self._pipe is None and self.path.is_dir()

    @property
    def is_parquet(self) -> bool:
        return self._head[:4] == b"PAR1"

    @contextmanager
    def _reading(self) -> Iterator[IO[bytes]]:
        """All of it from its begin, unpacked; what goes wrong on the way is one sentence."""
        if self.is_folder:
            yield io.BytesIO()
            return
        packed = None
        try:
            with ExitStack() as closing:
                raw = self._pipe or closing.enter_context(cast(Path, self.path).open("rb"))
                raw.seek(0)
                packed = raw.read(4)
                raw.seek(0)
                if packed[:2] == b"\x1f\x8b":
                    import gzip

                    yield cast("IO[bytes]", closing.enter_context(gzip.GzipFile(fileobj=raw)))
                elif packed == b"PK\x03\x04":
                    if self._unzipped is None:
                        self._unzipped = _unzip(raw.read(), self.shown)
                    yield io.BytesIO(self._unzipped)
                else:
                    yield raw
        except FileNotFoundError:
            raise UserError(f"{self.shown} does not exist") from None
        except (OSError, EOFError, zlib.error, ValueError) as error:
            if packed is not None and packed[:2] == b"\x1f\x8b":
                raise UserError(f"{self.shown} is a damaged gzip file: {error}") from None
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UserError(f"{self.shown} cannot be read: {reason}") from None

    @property
    def data(self) -> bytes:
        with self._reading() as stream:
            return stream.read()

    @property
    def text(self) -> str:
        """The whole text; refuses what is plainly not text."""
        if self._text is None:
            self._text = _decode(self.data, self.shown)
        return self._text

    @property
    def head(self) -> str:
        """The begin of the text: what tells formats apart."""
        if self._text is not None:
            return self._text[:_HEAD]
        whole = len(self._head) < _HEAD  # else it may end in the middle of a character
        end = len(self._head) if whole else max(self._head.rfind(b"\n"), self._head.rfind(b" "))
        return _decode(self._head[:end] if end > 0 else self._head, self.shown)

    def lines(self) -> Iterator[str]:
        """Line by line, without the ends. A line that is not UTF-8 is taken as Latin-1, and no other with it."""
        if self._head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            yield from self.text.split("\n")
            return
        with self._reading() as stream:
            for raw in stream:
                try:
                    yield raw.decode().removesuffix("\n").removeprefix("\ufeff")
                except UnicodeDecodeError:
                    yield raw.decode("latin-1").removesuffix("\n")

    def head_lines(self, count: int) -> list[str]:
        """The first `count` lines that are neither empty nor `#` comments, from the head of the file."""
        lines = (line for line in self.head.splitlines() if line.strip() and not line.startswith("#"))
        return [line for line, _ in zip(lines, range(count), strict=False)]

    @property
    def looks_like_json(self) -> bool:
        return self.head.lstrip()[:1] in ("[", "{")

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

    def json_parts(self) -> Iterator[Part]:
        """The JSON part by part, for lists that may be long. What is no JSON is read whole, which says why; what is in
        another encoding is read whole, too."""
        given = 0
        try:
            with self._reading() as stream:
                for part in parts(stream):
                    yield part
                    given += 1
            return
        except NotSoError:
            pass
        yield from islice(parts_of(self.json()), given, None)

    def json_begin(self) -> tuple[str, dict[str, Any] | None] | None:
        """Of a document that is a list, or has one called `jobs`: the list's name and its first object; else None."""
        found: tuple[str, dict[str, Any] | None] | None = None
        for kind, name, value in self.json_parts():
            if kind == "list" and name in (TOP, "jobs"):
                found = name, None
            elif kind == "entry" and found is not None and name == found[0] and isinstance(value, dict):
                return name, value
        return found

    def json_entries(self, name: str) -> Iterator[Any] | None:
        """The entries of a list one by one; None where the document has none of that name."""
        begin = self.json_begin()
        if begin is None or begin[0] != name:
            return None
        return (value for kind, found, value in self.json_parts() if kind == "entry" and found == name)

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
    field opens none: where a line inside it is a whole row by itself, or all of them together are none, they are rows
    each."""
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
                if len(held) > 1 and (len(fields) < width or any(_is_row(line, delimiter, width) for line in held[1:])):
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
    """A file, standard input (`-`) or a folder; a gzip or zip is unpacked whatever it is called."""
    if str(path) == "-":
        return Source("standard input", None, _kept(sys.stdin.buffer, "standard input"))
    file = Path(path)
    shown = str(path)
    try:
        if not file.exists() or file.is_dir() or file.is_file():
            return Source(shown, file)
        with file.open("rb") as pipe:  # can be read but once
            return Source(shown, file, _kept(pipe, shown))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{shown} cannot be read: {reason}") from None


def _kept(pipe: IO[bytes], shown: str) -> IO[bytes]:
    """What comes through a pipe, to be read as often as need be."""
    import tempfile

    kept = tempfile.SpooledTemporaryFile(max_size=_KEPT)  # noqa: SIM115 (it is the source's, as long as that lives)
    try:
        first = pipe.read(_HEAD)
        if b"\0" in first and not first.startswith(_PACKED):
            raise UserError(f"{shown} is not a trace: it is a binary file, not text")  # it may never end
        kept.write(first)
        while chunk := pipe.read(1 << 20):
            kept.write(chunk)
            if kept.tell() > _LARGEST:
                raise UserError(f"{shown} has more than {_LARGEST:,} bytes: give it as a file")
    except OSError as error:
        raise UserError(f"{shown} cannot be read, or kept in {tempfile.gettempdir()}: {error.strerror}") from None
    return cast("IO[bytes]", kept)


def _unzip(data: bytes, shown: str) -> bytes:
    """The one file in a zip."""
    import zipfile

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
