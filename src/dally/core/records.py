"""`dataclass` as the standard library has it, made in a fraction of the time.

A frozen dataclass is six methods, each written as text and compiled at every start: a millisecond a class, and a
command that simulates a hundred jobs makes seventy of them. Here only `__init__` is written for a class; the other
methods are the same for all. What is not `slots=True`, or derives from another dataclass, is left to the standard
library; so are the classes of compiled modules, which mypyc makes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

MADE: list[type] = []  # so far

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # for type checkers it is the very same
else:

    def dataclass(*, frozen: bool = False, slots: bool = False) -> Callable[[type], type]:
        def make(cls: type) -> type:
            if not slots or any(map(dataclasses.is_dataclass, cls.__bases__)):
                return dataclasses.dataclass(cls, frozen=frozen, slots=slots)
            return _made(cls, frozen)

        return make


def _made(cls: type, frozen: bool) -> type:
    """What the class itself says stays, as the standard library has it."""
    said = {name for name in vars(cls) if name != "__hash__" or cls.__hash__ is not None}
    cls.__doc__ = cls.__doc__ or f"{cls.__name__}(…)"  # else a signature would be worked out to stand there
    made: Any = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=True)
    made.__dataclass_params__.frozen = frozen
    own = fields(made)
    made.__compared__ = _tuple_of([each.name for each in own if each.compare])
    made.__hashed__ = _tuple_of([each.name for each in own if (each.compare if each.hash is None else each.hash)])
    methods = {"__init__": _init(made, own, frozen), **(_FROZEN if frozen else _OPEN)}
    for name, method in methods.items():
        if name not in said:
            setattr(made, name, method)
    MADE.append(made)
    return made  # type: ignore[no-any-return]


def _tuple_of(names: list[str]) -> Callable[[Any], Any]:
    """Always a tuple: `attrgetter` of one name gives the value itself."""
    if len(names) > 1:
        return attrgetter(*names)
    return staticmethod(lambda record: tuple(getattr(record, name) for name in names))


def _init(cls: type, own: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """A line per field. A frozen class refuses to be assigned to, so that its slots are filled one by one."""
    known: dict[str, Any] = {"_absent": MISSING}
    placed, named, lines = ["self"], list[str](), list[str]()
    for each in own:
        name = value = each.name
        if each.default_factory is not MISSING:
            known[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}()" + (f" if {name} is _absent else {name}" if each.init else "")
        elif not each.init:
            if each.default is MISSING:
                continue
            value = f"_default_{name}"
        known[f"_default_{name}"] = each.default
        if each.init:
            optional = each.default is not MISSING or each.default_factory is not MISSING
            (named if each.kw_only else placed).append(f"{name}=_default_{name}" if optional else name)
        if frozen:
            known[f"_set_{name}"] = vars(cls)[name].__set__
        lines.append(f" _set_{name}(self, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    head = ", ".join([*placed, "*", *named] if named else placed)
    exec(f"def __init__({head}):\n" + ("\n".join(lines) or " pass"), known)
    init = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {each.name: each.type for each in own if each.init} | {"return": None}
    return init  # type: ignore[no-any-return]


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is self.__class__:
        return self.__compared__(self) == self.__compared__(other)
    return NotImplemented


def _hash(self: Any) -> int:
    return hash(self.__hashed__(self))


def _setattr(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_OPEN: dict[str, Any] = {"__repr__": _repr, "__eq__": _eq, "__hash__": None}
_FROZEN = {
    **_OPEN,
    "__hash__": _hash,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
