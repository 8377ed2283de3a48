"""Policies by name and options: `name` or `name[option=value,…]`, validated, with the valid names in the error."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, cast

from dally.core.errors import UserError
from dally.core.policy import Policy
from dally.core.records import dataclass
from dally.core.spec import parse_spec, split_specs
from dally.core.units import seconds
from dally.policies.registered import load, registered


class Condition(NamedTuple):
    """Which values of other options an option depends on, and the sentence that says so where it would do nothing."""

    why: str
    counts: bool  # where one of the others has one of its values: whether the option counts there only, or not there
    others: tuple[tuple[str, tuple[Any, ...]], ...]

    def holds(self, options: Any) -> bool:
        return any(getattr(options, name) in values for name, values in self.others) is self.counts

    def text(self) -> str:
        """As the listing says it: `only with continuous=true or queues=1`."""
        choices = [f"{name}={'|'.join(map(_show, values))}" for name, values in self.others]
        return f"{'only' if self.counts else 'not'} with {' or '.join(choices)}"


def when(why: str, /, **others: Any) -> Condition:
    """The option counts only where one of these others has one of these values; a tuple is several of them."""
    return Condition(why, True, _alternatives(others))


def unless(why: str, /, **others: Any) -> Condition:
    """The option does not count where one of these others has one of these values."""
    return Condition(why, False, _alternatives(others))


def _alternatives(others: dict[str, Any]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    return tuple((name, value if isinstance(value, tuple) else (value,)) for name, value in others.items())


def option(default: Any, help: str, *, source: str = "ours", unit: str | None = None,
           only_with: Condition | tuple[Condition, ...] = ()) -> Any:  # fmt: skip
    """A field of a policy's options: default, what it does, where the default comes from.

    `unit="s"`: people may write `10m`; the policy gets seconds. `only_with`: conditions on other options (`when`,
    `unless`), all of which must hold for this one to do anything; where one does not, a value other than the default
    is refused with its sentence.
    """
    conditions = (only_with,) if isinstance(only_with, Condition) else only_with
    return field(default=default, metadata={"help": help, "source": source, "unit": unit, "only_with": conditions})


class PolicyClass(Protocol):
    """What an entry point of the group `dally.policies` must name."""

    Options: ClassVar[type]
    __doc__: str | None

    def __call__(self, options: Any) -> Policy: ...


@dataclass(frozen=True, slots=True)
class OptionInfo:
    name: str
    default: str
    values: str
    help: str
    source: str
    only_with: str  # where it counts; empty: everywhere


def split_policies(text: str) -> list[str]:
    """`fifo,srtf[gpu_time=true,placement=any],las` → its parts; commas inside brackets belong to the options."""
    return split_specs(text, "policies")


def make_policy(text: str) -> Policy:
    """`srtf[gpu_time=true]` → a policy, or one sentence that says what is wrong."""
    spec = parse_spec(text, "policy")
    name = spec.name
    maker = load_policy_class(name)
    chosen: dict[str, Any] = {}
    known = {f.name: f for f in dataclasses.fields(maker.Options)}
    hints = typing.get_type_hints(maker.Options)
    for written_key, value in spec.options:
        key = written_key.replace("-", "_")
        if key not in known:
            valid = ", ".join(known) or "none"
            raise UserError(f"policy {name!r} has no option {key!r}; it has: {valid}")
        if value is None:
            wanted = _values(hints[key], known[key].metadata.get("unit"))
            raise UserError(f"policy {name!r}: option {key!r} has no value; write {key}=… with {wanted}")
        chosen[key] = _read(name, key, value, hints[key], known[key].metadata.get("unit"))
    options = maker.Options(**chosen)
    refuse_idle_options(name, options)
    try:
        made = maker(options)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"policy {name!r} cannot be made: {type(error).__name__}: {error}") from error
    return whole(made, name)


_PARTS = ("name", "preempts", "shares", "chooses_gpu_type", "uses", "new_memory", "attach", "hear", "rank", "plan",
          "notes")  # fmt: skip


def whole(policy: Policy, name: str) -> Policy:
    """The policy, if it has all a policy must have."""
    missing = [part for part in _PARTS if not hasattr(policy, part)]
    if missing:
        raise UserError(f"policy {name!r} has no {', '.join(missing)}; derive its class from PolicyBase or "
                        "RankedPolicy (dally.policies.writing), which have what you do not say yourself")  # fmt: skip
    return policy


def refuse_idle_options(name: str, options: Any) -> None:
    """An option that would do nothing beside the others is refused, with the first sentence that says why."""
    for f in dataclasses.fields(options):
        if getattr(options, f.name) != f.default:
            for condition in f.metadata.get("only_with", ()):
                if not condition.holds(options):
                    raise UserError(f"policy {name!r}: {f.name} would do nothing here: {condition.why}")


_OF_FILES: dict[str, PolicyClass] = {}  # of files that were read, by the name that journals and snapshots have of them


def load_policy_class(name: str) -> PolicyClass:
    if name.endswith(".py"):
        return _from_file(Path(name))
    found = registered()
    if name not in found and name in _OF_FILES:
        return _OF_FILES[name]
    if name not in found:
        raise UserError(f"there is no policy {name!r}; there are: {', '.join(sorted(found))}")
    try:
        return cast(PolicyClass, load(found[name]))
    except (ImportError, AttributeError) as error:
        raise UserError(f"policy {name!r} ({found[name]}) cannot be loaded: {error}") from error


def _from_file(path: Path) -> PolicyClass:
    """A policy straight from one's own file: the class in it that has `Options`."""
    if not path.is_file():
        raise UserError(f"there is no policy file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(f"dally_policy_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"policy file {str(path)!r} cannot be loaded: {error}") from error
    own = [c for c in vars(module).values()
           if isinstance(c, type) and c.__module__ == spec.name and hasattr(c, "Options")]  # fmt: skip
    if len(own) != 1:
        raise UserError(f"policy file {str(path)!r} must hold one policy class with Options; it has {len(own)}")
    made = cast(PolicyClass, own[0])
    if isinstance(title := getattr(made, "title", None), str):
        _OF_FILES[title] = made
    return made


def all_policies() -> Iterator[tuple[str, PolicyClass]]:
    for name in sorted(registered()):
        yield name, load_policy_class(name)


def describe_options(maker: PolicyClass) -> list[OptionInfo]:
    hints = typing.get_type_hints(maker.Options)
    rows = []
    for f in dataclasses.fields(maker.Options):
        default = "" if f.default is MISSING else _show(f.default)
        meta = f.metadata
        rows.append(OptionInfo(f.name, default, _values(hints[f.name], meta.get("unit")),
                               meta.get("help", ""), meta.get("source", "ours"),
                               "; ".join(condition.text() for condition in meta.get("only_with", ()))))  # fmt: skip
    return rows


def written(name: str, options: Any) -> str:
    """The shortest text that makes this policy again."""
    changed = [f"{f.name}={_show(getattr(options, f.name))}" for f in dataclasses.fields(options)
               if getattr(options, f.name) != f.default]  # fmt: skip
    return name + (f"[{','.join(changed)}]" if changed else "")


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "/".join(_show(v) for v in value)
    if value is None:
        return "none"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")  # exact: what is written makes the same policy again
    return str(value)


def _values(hint: Any, unit: str | None) -> str:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return " | ".join(typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_values(a, unit) for a in typing.get_args(hint))
    if origin is tuple:
        return f"{_values(typing.get_args(hint)[0], unit)}/…"
    if hint is type(None):
        return "none"
    if hint is bool:
        return "true | false"
    if hint is float and unit == "s":
        return "time"
    return {int: "whole number", float: "number", str: "text"}.get(hint, str(hint))


def _read(policy: str, key: str, value: str, hint: Any, unit: str | None) -> Any:
    try:
        return _convert(value, hint, unit)
    except (ValueError, UserError):
        wanted = _values(hint, unit)
        if hint is float and value.lstrip().startswith("-"):
            wanted += ", and nothing below 0"
        raise UserError(f"policy {policy!r}: option {key}={value!r} is not valid; it takes {wanted}") from None


def _convert(value: str, hint: Any, unit: str | None) -> Any:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        if value not in typing.get_args(hint):
            raise ValueError(value)
        return value
    if origin in (typing.Union, types.UnionType):
        for choice in typing.get_args(hint):
            try:
                return _convert(value, choice, unit)
            except (ValueError, UserError):
                continue
        raise ValueError(value)
    if origin is tuple:
        return tuple(_convert(part, typing.get_args(hint)[0], unit) for part in value.split("/"))
    if hint is type(None):
        if value.lower() == "none":
            return None
        raise ValueError(value)
    if hint is bool:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[value.lower()] \
            if value.lower() in ("true", "yes", "1", "false", "no", "0") else _refuse(value)  # fmt: skip
    if hint is float:
        number = seconds(value) if unit == "s" else float(value)
        return number if number >= 0 and number == number else _refuse(value)
    if hint is int:
        return int(value)
    return value


def _refuse(value: str) -> typing.NoReturn:
    raise ValueError(value)
