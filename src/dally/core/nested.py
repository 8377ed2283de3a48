"""How large data is that refers to parts of itself: a YAML file of ten lines can stand for 10²³ values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MOST = 1_000_000  # values: far more than anybody writes, and quickly gone through


def written_out(value: Any) -> float:
    """Values in it if every part that is used several times were written as often; ∞: it holds itself. Lists, mappings
    and the nodes of a YAML text count; each part is gone through once, however often it is used."""
    sizes: dict[int, float] = {}
    pending: list[tuple[Any, bool]] = [(value, False)]
    open_now: set[int] = set()
    while pending:
        part, entered = pending.pop()
        inside = _inside(part)
        if inside is None or (not entered and id(part) in sizes):
            continue
        if entered:
            open_now.discard(id(part))
            sizes[id(part)] = 1.0 + sum(sizes.get(id(each), 1.0) for each in _inside(part) or ())
            continue
        if id(part) in open_now:
            return float("inf")
        open_now.add(id(part))
        pending.append((part, True))
        pending += [(each, False) for each in inside]
    return sizes.get(id(value), 1.0)


def _inside(part: Any) -> Iterable[Any] | None:
    """What it is made of; None of what is no more than itself."""
    if isinstance(part, dict):
        return [*part, *part.values()]
    if isinstance(part, (list, tuple)):
        return part
    held = getattr(part, "value", None)  # a node of YAML
    return held if isinstance(held, list) else None
