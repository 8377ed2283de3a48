"""YAML with line numbers: plain data, and where each piece of it stands in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from dally.catalog.entries import scalar
from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.live.plain_errors import Location, field_name, first_mistake

MOST_NODES = 100_000  # references can make a short file endless
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its data, and the line of every place in it."""

    name: str  # of the file
    data: Any
    lines: dict[Location, int]

    def line(self, where: Location) -> int:
        """Of this place, or of the nearest one around it that stands in the file."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, 1)

    def read(self, model: type[M]) -> M:
        """The document as a model, or one sentence with file, line and field."""
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            where, what = first_mistake(error, model)
            raise self.fail(where, what) from None

    def fail(self, where: Location, what: str) -> UserError:
        field = field_name(where)
        return UserError(f"{self.name}, line {self.line(where)}: {field + ': ' if field else ''}{what}")


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
        raise UserError(f"{path} cannot be read: {reason}") from None


def documents(name: str, text: str) -> list[Document]:
    """All documents of a file that are not empty."""
    try:
        roots = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise UserError(f"{name}{where}: it is not YAML: {getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise UserError(f"{name}: it is nested too deeply") from None
    found = []
    for root in roots:
        if root is None or (isinstance(root, yaml.ScalarNode) and root.tag.endswith(":null")):
            continue
        reader = _Reader(name)
        try:
            found.append(Document(name, reader.plain(root, ()), reader.lines))
        except RecursionError:
            raise UserError(f"{name}: it refers to itself, or is nested too deeply") from None
    return found


class _Reader:
    def __init__(self, name: str) -> None:
        self.name, self.nodes = name, 0
        self.lines: dict[Location, int] = {}

    def plain(self, node: Any, where: Location) -> Any:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise UserError(f"{self.name}: it has more than {MOST_NODES} values")
        self.lines[where] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            found: dict[str, Any] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise UserError(f"{self.name}, line {line}: the name of a field must be a text")
                if key.value in found:
                    raise UserError(f"{self.name}, line {line}: {key.value!r} is there twice")
                found[key.value] = self.plain(value, (*where, key.value))
                self.lines[(*where, key.value)] = line
            return found
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item, (*where, number)) for number, item in enumerate(node.value)]
        return scalar(node)
