"""JSON read part by part: entries of its lists one at a time, so that no list, however long, is in memory whole."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

_CHUNK = 1 << 18
_BLANK = " \t\n\r"
_AFTER = (*_BLANK, ",", ":", "]", "}")  # a value
TOP = ""  # the name of a list that is the whole document


class Part(NamedTuple):
    """A list that begins (`kind` "list"), one of its entries ("entry"), or a member that is no list ("member")."""

    kind: str
    name: str
    value: Any


class NotSoError(Exception):
    """It is no JSON, or not in UTF-8: read whole, it says what and where."""


class _Window:
    """The text from some place on, as much of it as is needed."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder()
        self.text, self.at, self.ended = "", 0, False

    def more(self, size: int = _CHUNK) -> None:
        data = self._stream.read(size)
        self.ended = not data
        try:
            text = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise NotSoError from error
        self.text, self.at = self.text[self.at :] + text, 0

    def peek(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _BLANK:
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if self.ended:
                return ""
            self.more()

    def take(self, *wanted: str) -> str:
        found = self.peek()
        if found not in wanted:
            raise NotSoError
        self.at += 1
        return found

    def value(self) -> Any:
        """One value, with as much more read as it takes; each time as much again, so that a long one is not parsed
        over and over."""
        self.peek()
        while True:
            try:
                found, end = self._json.raw_decode(self.text, self.at)
                if self.ended or self.text[end : end + 1] in _AFTER:  # else a number that may go on, or no JSON
                    self.at = end
                    return found
            except json.JSONDecodeError as error:
                if self.ended:
                    raise NotSoError from error
            except (ValueError, RecursionError) as error:
                raise NotSoError from error
            self.more(max(_CHUNK, len(self.text) - self.at))


def parts(stream: IO[bytes]) -> Iterator[Part]:
    """Of a list, its entries; of an object, its members, and of those that are lists the entries."""
    window = _Window(stream)
    if window.peek() == "[":
        yield from _listed(window, TOP)
    else:
        window.take("{")
        if window.peek() == "}":
            window.take("}")
        else:
            while True:
                name = window.value()
                if not isinstance(name, str):
                    raise NotSoError
                window.take(":")
                if window.peek() == "[":
                    yield from _listed(window, name)
                else:
                    yield Part("member", name, window.value())
                if window.take(",", "}") == "}":
                    break
    if window.peek():
        raise NotSoError


def _listed(window: _Window, name: str) -> Iterator[Part]:
    window.take("[")
    yield Part("list", name, None)
    if window.peek() == "]":
        window.take("]")
        return
    while True:
        yield Part("entry", name, window.value())
        if window.take(",", "]") == "]":
            return


def parts_of(document: Any) -> Iterator[Part]:
    """The same of a document that is in memory."""
    for name, value in document.items() if isinstance(document, dict) else [(TOP, document)]:
        if isinstance(value, list):
            yield Part("list", name, None)
            for entry in value:
                yield Part("entry", name, entry)
        else:
            yield Part("member", name, value)
