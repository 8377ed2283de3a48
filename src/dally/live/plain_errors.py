"""What pydantic finds wrong, as one sentence in the words of the house."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

Location = tuple[int | str, ...]

_KINDS = {
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "string_type": "a text", "bool_type": "true or false",
    "list_type": "a list", "dict_type": "a mapping of names to values", "model_type": "a mapping of fields to values",
    "model_attributes_type": "a mapping of fields to values", "finite_number": "a finite number",
    "tuple_type": "a list",
}  # fmt: skip


def first_mistake(error: ValidationError, model: type[BaseModel]) -> tuple[Location, str]:
    """Where the first thing that is wrong stands, and what is wrong with it."""
    found = error.errors(include_url=False)[0]
    where: Location = tuple(part for part in found["loc"] if not _internal(part))
    return where, _sentence(found, where, model)


def field_name(where: Iterable[int | str]) -> str:
    """`placement.required`, `requeue_on[1]`."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def sentence_of(error: ValidationError, model: type[BaseModel]) -> str:
    where, what = first_mistake(error, model)
    name = field_name(where)
    return f"{name}: {what}" if name else what


def _internal(part: int | str) -> bool:
    """Names pydantic gives to the members of a union are nothing a person wrote."""
    return isinstance(part, str) and (part.endswith(("]", ")")) or part in ("str", "int", "float", "bool"))


def _sentence(found: Any, where: Location, model: type[BaseModel]) -> str:
    kind, given, context = found["type"], found.get("input"), found.get("ctx") or {}
    if kind == "missing":
        return "it is missing"
    if kind == "extra_forbidden":
        known = _fields(model, where[:-1])
        near = get_close_matches(str(where[-1]), known, n=1)
        return f"there is no such field; {f'did you mean {near[0]}?' if near else 'there are ' + ', '.join(known)}"
    if kind in _KINDS:
        return f"it must be {_KINDS[kind]}, not {shown(given)}"
    if kind in ("literal_error", "enum"):
        return f"it must be {context.get('expected', 'another value')}, not {shown(given)}"
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", found["msg"]))
    limits = {"greater_than": ("gt", "above"), "greater_than_equal": ("ge", "at least"),
              "less_than": ("lt", "below"), "less_than_equal": ("le", "at most")}  # fmt: skip
    if kind in limits:
        name, word = limits[kind]
        return f"it must be {word} {context[name]:g}, not {shown(given)}"
    if kind == "string_pattern_mismatch":
        return f"{shown(given)} has characters that are not allowed here"
    if kind in ("too_short", "string_too_short"):
        return "it must not be empty"
    if kind in ("too_long", "string_too_long"):
        return f"it must not be longer than {context.get('max_length')}"
    return str(found["msg"])


def _fields(model: type[BaseModel], where: Location) -> list[str]:
    """Fields of the part of the model at this place."""
    for part in where:
        if isinstance(part, int) or part not in model.model_fields:
            continue
        inner = [each for each in _parts(model.model_fields[part].annotation) if issubclass(each, BaseModel)]
        if inner:
            model = inner[0]
    return [info.alias or name for name, info in model.model_fields.items()]


def _parts(annotation: Any) -> list[type]:
    inside = [part for each in getattr(annotation, "__args__", ()) for part in _parts(each)]
    return [annotation, *inside] if isinstance(annotation, type) and not inside else inside


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
