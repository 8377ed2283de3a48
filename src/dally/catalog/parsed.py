"""The built-in data files as they were parsed once, in `data/parsed.json`.

Importing a YAML parser and parsing them takes a tenth of a small simulation, at every start. What is kept belongs to
one text: a file that is no longer what was parsed, as in a working copy that is being edited, is read itself.
`python -m dally.catalog.parsed` writes it anew; a test says when that is due.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
KEPT = DATA / "parsed.json"  # file → digest of its text, and its root node


class Node:
    """A node with what is used of one of PyYAML's: `id`, `tag`, `value`, and `start_mark.line`. Kept is its line, then
    a text, a list or a mapping of nodes, and of what is no text its tag."""

    __slots__ = ("_inside", "id", "line", "tag", "value")

    def __init__(self, line: int, value: str | list[Any] | dict[str, Any], tag: str = "str") -> None:
        self.line, self.tag = line, tag
        if isinstance(value, str):
            self.id = "scalar"
            self.value: Any = value
        else:
            self.id = "sequence" if isinstance(value, list) else "mapping"
            self._inside = value

    @property
    def start_mark(self) -> Node:
        return self

    def __getattr__(self, name: str) -> Any:
        """What is inside is made when it is first asked for; a key stands where its mapping begins."""
        if name != "value":
            raise AttributeError(name)
        if isinstance(self._inside, dict):
            self.value = [(Node(self.line, key), Node(*kept)) for key, kept in self._inside.items()]
        else:
            self.value = [Node(*kept) for kept in self._inside]
        return self.value


def parsed(path: Path, text: str) -> Node | None:
    """The root of a built-in file; None for any other file, and where the text is another one."""
    if path.parent != DATA:
        return None
    digest, root = _kept().get(path.name, ("", ()))
    return Node(*root) if digest == sha256(text.encode()).hexdigest() else None


@lru_cache(maxsize=1)
def _kept() -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _plain(node: Any) -> list[Any]:
    line = node.start_mark.line
    if node.id == "mapping":
        return [line, {key.value: _plain(inner) for key, inner in node.value}]
    if node.id == "sequence":
        return [line, [_plain(item) for item in node.value]]
    kind = node.tag.rpartition(":")[2]
    return [line, node.value] if kind == "str" else [line, node.value, kind]


def parse() -> dict[str, Any]:
    """What `parsed.json` has to hold."""
    import yaml

    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(DATA.glob("*.yaml"))}
    return {name: [sha256(text.encode()).hexdigest(), _plain(yaml.compose(text, Loader=yaml.SafeLoader))]
            for name, text in texts.items()}  # fmt: skip


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(kept, separators=(',', ':'), ensure_ascii=False)}"
                       for name, kept in parse().items())  # fmt: skip
    KEPT.write_text(f"{{{lines}}}\n", encoding="utf-8")
