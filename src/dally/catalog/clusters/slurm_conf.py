"""Lines of Slurm's configuration files as `key=value` pairs: comments, continued lines, included files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dally.core.errors import UserError

_PAIR = re.compile(r'([A-Za-z_][\w/]*)=("[^"]*"|\S*)')
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$")
_DEEPEST = 8  # includes inside includes

Line = tuple[Path, int, list[tuple[str, str]]]


def conf_lines(path: Path, text: str, depth: int = 0) -> Iterator[Line]:
    """(file, line number, pairs with keys in lower case) of every line that has pairs."""
    for number, line in _joined(text):
        words = line.split(None, 1)
        if words and words[0].lower() == "include" and len(words) == 2 and "=" not in words[0]:
            yield from _included(path, number, words[1].strip(), depth)
            continue
        pairs = [(match[1].lower(), match[2].strip('"')) for match in _PAIR.finditer(line)]
        if pairs:
            yield path, number, pairs


def _included(path: Path, number: int, name: str, depth: int) -> Iterator[Line]:
    target = path.parent / name
    if depth >= _DEEPEST:
        raise UserError(f"{path}, line {number}: files include each other too deeply")
    try:
        text = target.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{path}, line {number}: include: {target} cannot be read") from None
    yield from conf_lines(target, text, depth + 1)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, continued ones joined under the number of their first."""
    first, held = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub("", raw).rstrip()
        first = first or number
        if held.endswith(","):  # a list goes on, however its next line is indented
            line = line.lstrip()
        if line.endswith("\\"):
            held += line[:-1]
            continue
        if (held + line).strip():
            yield first, held + line
        first, held = 0, ""
    if held.strip():
        yield first, held
