"""Slurm's hostlist expressions: `n[1-4,7],gpu[001-128]` stands for the names it lists."""

from __future__ import annotations

import itertools
import re

from dally.core.errors import UserError

MOST_NAMES = 1_000_000
_MOST_DIGITS = 20
_PART = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"^(\d+)(?:-(\d+))?(?::(\d+))?$")


def expand(text: str) -> list[str]:
    """Every name in order; `n[08-10]` keeps its width, `r[1-2]n[1-2]` counts the last bracket fastest."""
    names: list[str] = []
    for expression in _split(text):
        names.extend(_expanded(expression, text))
        if len(names) > MOST_NAMES:
            raise UserError(f"{text!r} lists more than {MOST_NAMES} names")
    if not names:
        raise UserError(f"{text!r} lists no names")
    return names


def _split(text: str) -> list[str]:
    """At the commas outside brackets; empty parts are dropped as Slurm does."""
    parts, depth, current = [], 0, ""
    for char in text.strip().strip('"'):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise UserError(f"{text!r}: brackets do not match")
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    if depth:
        raise UserError(f"{text!r}: brackets do not match")
    return [part.strip() for part in (*parts, current) if part.strip()]


def _expanded(expression: str, text: str) -> list[str]:
    pieces = _PART.split(expression)  # literal, bracket, literal, bracket, …, literal
    if any(char.isspace() for char in expression) or "/" in expression:
        raise UserError(f"{text!r}: {expression!r} is not a name")
    choices = [_numbers(piece, text) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > MOST_NAMES:
        raise UserError(f"{text!r} lists more than {MOST_NAMES} names")
    return ["".join(parts) for parts in itertools.product(*choices)]


def _numbers(listed: str, text: str) -> list[str]:
    """`1-3,07-09` → 1, 2, 3, 07, 08, 09; a step as in `0-8:4` is allowed, as Slurm allows it."""
    numbers: list[str] = []
    for part in listed.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            raise UserError(f"{text!r}: [{listed}] is not a list of numbers and ranges")
        if max(len(number or "") for number in match.groups()) > _MOST_DIGITS:
            raise UserError(f"{text[:60]!r}…: a number in brackets is not that long")
        first, last, step = match[1], match[2] or match[1], int(match[3] or 1)
        if int(last) < int(first) or step < 1:
            raise UserError(f"{text!r}: the range {part.strip()} runs backwards")
        if len(numbers) + (int(last) - int(first)) // step >= MOST_NAMES:
            raise UserError(f"{text!r} lists more than {MOST_NAMES} names")
        numbers.extend(str(n).zfill(len(first)) for n in range(int(first), int(last) + 1, step))
    return numbers
