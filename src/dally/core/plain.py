"""Values as plain data (what JSON can hold) and back, by their type hints; machines by name instead of by number."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from dally.core.placement import Placement

MachineNumber = NewType("MachineNumber", int)  # an index of the topology: saved as the machine's name


class Names(typing.Protocol):
    """How machines are called: a topology."""

    @property
    def machine_names(self) -> Sequence[str]: ...
    @property
    def machine_by_name(self) -> Mapping[str, int]: ...


class UnknownMachine(LookupError):  # noqa: N818 - it names what was found
    """What is read names a machine that is not there any more."""


def to_plain(value: Any, hint: Any, names: Names) -> Any:
    if value is None or hint is str or hint is bool:
        return value
    if hint is float or hint is int:
        return _number(value)
    if hint is MachineNumber:
        return names.machine_names[value]
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        kind = _chosen(hint, value)
        return to_plain(value, kind, names)
    if hint is Placement:
        return {names.machine_names[machine]: f"{mask:x}" for machine, mask in value.slices}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return value.name
    fields = _fields(hint)
    if fields is not None:
        return [to_plain(getattr(value, name), kind, names) for name, kind in fields]
    inside = get_args(hint)
    if isinstance(value, Mapping):
        if inside[0] is str:
            return {key: to_plain(item, inside[1], names) for key, item in value.items()}
        return [[to_plain(key, inside[0], names), to_plain(item, inside[1], names)] for key, item in value.items()]
    if isinstance(value, tuple) and origin is tuple and inside[-1] is not Ellipsis:
        return [to_plain(item, kind, names) for item, kind in zip(value, inside, strict=True)]
    if origin is None:
        return _number(value)  # `object`: a bare number or text
    return [to_plain(item, inside[0], names) for item in value]


def from_plain(plain: Any, hint: Any, names: Names) -> Any:
    if hint is float:
        return float(plain)
    if plain is None or hint in (str, bool, int):
        return plain
    if hint is MachineNumber:
        return _machine(plain, names)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _first_that_reads(plain, hint, names)
    if hint is Placement:
        return Placement.of((_machine(name, names), int(mask, 16)) for name, mask in plain.items())
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint[plain]
    fields = _fields(hint)
    if fields is not None:
        if len(plain) > len(fields):
            raise ValueError(f"{plain!r} has more fields than {hint.__name__}")
        # fields that are new since it was written have their defaults
        return hint(*(from_plain(item, kind, names) for item, (_, kind) in zip(plain, fields, strict=False)))
    if origin is None:
        return plain
    inside = get_args(hint)
    if origin is tuple and inside[-1] is not Ellipsis:
        return tuple(from_plain(item, kind, names) for item, kind in zip(plain, inside, strict=True))
    if issubclass(origin, Mapping):
        pairs = _readable(plain.items() if inside[0] is str else plain, inside, names)
        return dict(pairs) if origin is dict else pairs  # a table of a memory is made by the memory
    if origin in (tuple, list, set, frozenset):
        return origin(from_plain(item, inside[0], names) for item in plain)
    return [key for key, _ in _readable(((item, None) for item in plain), (inside[0], str), names)]  # an order's


def _readable(pairs: Any, inside: tuple[Any, ...], names: Names) -> list[tuple[Any, Any]]:
    found = []
    for key, item in pairs:
        try:
            found.append((from_plain(key, inside[0], names), from_plain(item, inside[1], names)))
        except UnknownMachine:
            continue
    return found


def _machine(name: str, names: Names) -> int:
    found = names.machine_by_name.get(name)
    if found is None:
        raise UnknownMachine(name)
    return found


def _number(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # "inf" and "nan" are no JSON
    return value


def _chosen(hint: Any, value: Any) -> Any:
    """Of a union: the member the value is of."""
    for kind in get_args(hint):
        plain = get_origin(kind) or kind
        plain = getattr(plain, "__supertype__", plain)
        if plain is float and isinstance(value, int):
            return kind
        if isinstance(plain, type) and isinstance(value, plain):
            return kind
    raise TypeError(f"{value!r} is none of {hint}")


def _first_that_reads(plain: Any, hint: Any, names: Names) -> Any:
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if len(kinds) == 1:
        return from_plain(plain, kinds[0], names)
    for kind in kinds:
        if kind in (str, int, float, bool) and isinstance(plain, kind):
            return plain
    for kind in kinds:
        try:
            return from_plain(plain, kind, names)
        except UnknownMachine:
            raise
        except (TypeError, ValueError, LookupError, AttributeError):
            continue
    raise TypeError(f"{plain!r} is none of {hint}")


def texts_in(value: Any, found: set[str]) -> None:
    """All texts in a value, those of tables' keys included; machines are numbers there."""
    kind = type(value)
    if kind is str:
        found.add(value)
    elif kind is float or kind is int or kind is bool or value is None:
        return  # most
    elif isinstance(value, Mapping):
        for key, item in value.items():
            texts_in(key, found)
            texts_in(item, found)
    elif isinstance(value, Iterable):  # records that are named tuples among them
        for item in value:
            texts_in(item, found)
    elif (fields := _fields(value.__class__)) is not None:
        for name, _ in fields:
            texts_in(getattr(value, name), found)


@cache
def _fields(hint: Any) -> tuple[tuple[str, Any], ...] | None:
    """Names and types of a record's fields: named tuples and dataclasses; None for anything else."""
    if not isinstance(hint, type):
        return None
    if issubclass(hint, tuple) and hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        return tuple((name, hints[name]) for name in hint._fields)
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        return tuple((field.name, hints[field.name]) for field in dataclasses.fields(hint))
    return None
