"""Reading data files: YAML with line numbers, strict fields, and errors that name file, line and field.

Hand-written rather than left to a validation library, because the catalog is read at the start of many
commands and the library takes longer to import than the catalog to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from dally.catalog.parsed import parsed
from dally.core import units
from dally.core.errors import UserError
from dally.core.records import dataclass

_FLOPS = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([GTP])FLOP/s\s*$")
_REQUIRED: Any = object()
T = TypeVar("T")


@dataclass(slots=True)
class Entry:
    """A mapping from a data file. Each getter takes one field; `finish` complains about those left over."""

    path: Path
    line: int
    name: str  # how errors call it: `models.vgg16`
    nodes: Mapping[str, Any]  # field → YAML node
    taken: set[str] = field(default_factory=set)

    def fail(self, message: str, key: str | None = None) -> UserError:
        node = self.nodes.get(key) if key else None
        line = node.start_mark.line + 1 if node is not None else self.line
        what = f"{self.name}.{key}" if key else self.name
        return UserError(f"{self.path}, line {line}: {what}: {message}")

    def __contains__(self, key: str) -> bool:
        return key in self.nodes

    def value(self, key: str, default: Any = _REQUIRED) -> Any:
        """The field as plain Python data."""
        self.taken.add(key)
        node = self.nodes.get(key)
        if node is None:
            if default is _REQUIRED:
                raise self.fail(f"the field {key!r} is missing")
            return default
        try:
            return _plain(node)
        except RecursionError:
            raise self.fail("refers to itself", key) from None

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        value = self.value(key, default)
        if not isinstance(value, str) or (not value.strip() and value is not default):
            raise self.fail(f"must be a text, not {value!r}", key)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; numbers are taken as they are written; absent is empty."""
        value = self.value(key, [])
        if not isinstance(value, list) or not all(isinstance(item, (str, int)) for item in value):
            raise self.fail(f"must be a list of texts, not {value!r}", key)
        return tuple(str(item) for item in value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.value(key, default)
        if not isinstance(value, bool):
            raise self.fail(f"must be true or false, not {value!r}", key)
        return value

    def number(
        self, key: str, default: Any = _REQUIRED, *, low: float = 0.0, high: float = float("inf")
    ) -> float:
        value = self.value(key, default)
        if value is None and default is None:
            return None  # type: ignore[return-value]  # only where the caller's default says so
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            limits = f"between {low:g} and {high:g}" if high != float("inf") else f"of at least {low:g}"
            raise self.fail(f"must be a number {limits}, not {value!r}", key)
        return float(value)

    def integer(self, key: str, default: Any = _REQUIRED, *, low: int = 0) -> int:
        value = self.value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise self.fail(f"must be a whole number of at least {low}, not {value!r}", key)
        return value

    def choice(self, key: str, choices: Iterable[str], default: Any = _REQUIRED) -> str:
        value, allowed = self.value(key, default), list(choices)
        if value not in allowed:
            raise self.fail(f"must be one of {', '.join(allowed)}, not {value!r}", key)
        return str(value)

    def quantity(self, key: str, parse: Callable[[Any], float], default: Any = _REQUIRED) -> float:
        """A figure with a unit: `parse` is one of the functions of `core.units`, or `flops` below."""
        value = self.value(key, default)
        if key not in self.nodes:
            return default  # type: ignore[no-any-return]
        try:
            parsed = parse(value)
        except UserError as error:
            raise self.fail(str(error), key) from None
        if parsed < 0:
            raise self.fail(f"must not be negative, but is {value!r}", key)
        return parsed

    def entry(self, key: str) -> Entry | None:
        """A mapping inside this one; absent is None."""
        self.taken.add(key)
        node = self.nodes.get(key)
        return None if node is None else _entry(self.path, f"{self.name}.{key}", node)

    def entries(self, key: str) -> list[Entry]:
        """A list of mappings inside this one; absent is empty."""
        self.taken.add(key)
        node = self.nodes.get(key)
        if node is None:
            return []
        if node.id != "sequence":
            raise self.fail("must be a list", key)
        return [_entry(self.path, f"{self.name}.{key}[{i}]", item) for i, item in enumerate(node.value)]

    def finish(self, built: T) -> T:
        """Complain about a field nobody asked for: most likely a spelling mistake."""
        for key in self.nodes:
            if key not in self.taken:
                raise self.fail(f"there is no such field; known are {', '.join(sorted(self.taken))}", key)
        return built


def flops(text: Any) -> float:
    """`15.7 TFLOP/s` → operations per second."""
    match = _FLOPS.match(str(text))
    if match is None:
        raise UserError(f"{text!r} is not an arithmetic rate; write it like 15.7 TFLOP/s")
    return float(match[1]) * {"G": 1e9, "T": 1e12, "P": 1e15}[match[2]]


def watts(text: Any) -> float:
    """`300 W` → watts."""
    number, _, unit = str(text).strip().partition(" ")
    try:
        if unit == "W":
            return float(number)
    except ValueError:
        pass
    raise UserError(f"{text!r} is not a power; write it like 300 W")


bandwidth, seconds, size_bytes = units.bandwidth, units.seconds, units.size_bytes


def is_profile(path: Path) -> bool:
    """Whether a file is a measured profile, which holds one model."""
    return "dally-profile:" in _text(path)[:200].split()


def read_profiled(path: Path) -> tuple[str, Entry]:
    """The name and the model of a measured profile."""
    whole = _entry(path, "profile", _compose(path))
    name = whole.text("name")
    model = whole.entry("model")
    if model is None:
        raise UserError(f"{path}: this profile has no layer table (it was not measured to the end), so it is no model")
    return name, model


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def _compose(path: Path) -> Any:
    text = _text(path)
    built_in = parsed(path, text)
    if built_in is not None:
        return built_in
    import yaml

    try:
        # the C parser is some ten times faster
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it is not YAML"
        raise UserError(f"{path}{where}: {problem}") from None


def read_sections(path: Path, known: Iterable[str]) -> dict[str, dict[str, Entry]]:
    """A data file as section → name → entry; `known` are the sections there may be."""
    root = _compose(path)
    if root is None:
        return {}
    allowed = list(known)
    _entry(path, "the file", root)  # must be a mapping without repeated sections
    sections: dict[str, dict[str, Entry]] = {}
    for key, node in root.value:
        section = str(key.value)
        if section not in allowed:
            raise UserError(
                f"{path}, line {key.start_mark.line + 1}: there is no section {section!r};"
                f" a catalog file has {', '.join(allowed)}"
            )
        names = _entry(path, section, node).nodes
        sections[section] = {name: _entry(path, f"{section}.{name}", item) for name, item in names.items()}
    return sections


def _entry(path: Path, name: str, node: Any) -> Entry:
    line = node.start_mark.line + 1
    if node.id != "mapping":
        raise UserError(f"{path}, line {line}: {name} must be a mapping of fields to values")
    nodes: dict[str, Any] = {}
    for key, value in node.value:
        if key.value in nodes:
            raise UserError(f"{path}, line {key.start_mark.line + 1}: {name}: {key.value!r} is there twice")
        nodes[str(key.value)] = value
    return Entry(path, line, name, nodes)


def _plain(node: Any) -> Any:
    if node.id == "mapping":
        return {str(key.value): _plain(value) for key, value in node.value}
    if node.id == "sequence":
        return [_plain(item) for item in node.value]
    return scalar(node)


def scalar(node: Any) -> Any:
    """A YAML scalar: `10:30` is a text, not a number to the base of sixty, and a date is a text."""
    kind, text = node.tag.rpartition(":")[2], node.value
    try:
        if kind == "int":
            return int(text.replace("_", ""), 10)
        if kind == "float":
            return float(text.replace("_", ""))
    except ValueError:
        return text
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    return None if kind == "null" else text
