"""`dally.core.records.dataclass` is the standard library's dataclass, only made faster."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import dally
from dally.core.records import dataclass

ROOT = Path(__file__).parents[2]


class Plain:
    """Everything a field can be."""

    number: int
    text: str = "x"
    many: list[int] = dataclasses.field(default_factory=list)
    aside: float = dataclasses.field(default=1.0, compare=False, repr=False)
    unhashed: str = dataclasses.field(default="", hash=False)
    later: int = dataclasses.field(default=5, init=False)
    made: list[int] = dataclasses.field(default_factory=list, init=False)
    named: int = dataclasses.field(default=7, kw_only=True)
    shared: ClassVar[int] = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "later", self.number + 1)


class Alone:
    only: float


class Empty:
    """No fields."""


class Own:
    """Says itself what equal is."""

    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __repr__(self) -> str:
        return "own"


class OwnHash:
    value: int

    def __hash__(self) -> int:
        return 17


def both(template: type, frozen: bool) -> list[Any]:
    """The same class made by the standard library and by us."""
    made = []
    makers: list[Callable[..., Any]] = [dataclasses.dataclass, dataclass]
    for maker in makers:
        body = {name: copy.copy(value) for name, value in vars(template).items()
                if name not in ("__dict__", "__weakref__")}  # fmt: skip
        made.append(maker(frozen=frozen, slots=True)(type(template.__name__, (), body)))
    return made


CALLS: list[tuple[type, tuple[Any, ...], dict[str, Any]]] = [
    (Plain, (1,), {}),
    (Plain, (1, "y", [2], 3.0, "z"), {"named": 4}),
    (Alone, (float("nan"),), {}),
    (Alone, (1.5,), {}),
    (Empty, (), {}),
    (Own, (1,), {}),
    (OwnHash, (1,), {}),
]


def outcome(call: Callable[[], Any]) -> object:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(("template", "values", "named"), CALLS)
def test_it_behaves_like_the_standard_librarys(
    template: type, values: tuple[Any, ...], named: dict[str, Any], frozen: bool
) -> None:
    seen = []
    for cls in both(template, frozen):
        record, equal = cls(*values, **named), cls(*values, **named)
        seen.append({
            "text": repr(record),
            "equal": record == equal,
            "other": outcome(lambda record=record: record == 3),
            "hash": outcome(lambda record=record: hash(record)),
            "slots": cls.__slots__,
            "dict": hasattr(record, "__dict__"),
            "fields": [(each.name, each.type, each.compare, each.init) for each in dataclasses.fields(cls)],
            "match": cls.__match_args__,
            "set": [outcome(lambda record=equal, name=name: setattr(record, name, 3)) for name in cls.__slots__],
            "delete": [outcome(lambda record=equal, name=name: delattr(record, name)) for name in cls.__slots__],
            "too many": outcome(lambda cls=cls: cls(*range(20))),
            "unknown": outcome(lambda cls=cls: cls(unheard_of=1)),
            "signature": str(inspect.signature(cls)).replace("<factory>", "…").replace(repr(dataclasses.MISSING), "…"),
            "replaced": outcome(lambda record=record: repr(dataclasses.replace(record, named=9))),
            "plain": dataclasses.asdict(record),
            "frozen": cls.__dataclass_params__.frozen,
        })  # fmt: skip
    theirs, ours = seen
    assert str(theirs) == str(ours)


def test_lists_made_for_one_are_not_anothers() -> None:
    ours = both(Plain, True)[1]
    first, second = ours(1), ours(1)
    first.many.append(1)
    assert second.many == [] and first.made is not second.made


@dataclass(frozen=True, slots=True)
class Sent:
    number: int
    many: tuple[int, ...] = ()


@dataclass(slots=True)
class Open:
    number: int


def test_it_travels_to_other_processes_and_can_be_copied() -> None:
    for record in (Sent(1, (2, 3)), Open(4)):
        assert pickle.loads(pickle.dumps(record)) == record == copy.deepcopy(record) == copy.copy(record)


def test_what_derives_from_one_is_the_standard_librarys() -> None:
    @dataclass(frozen=True, slots=True)
    class More(Sent):
        text: str = ""

    assert More(1, (2,), "x") == More(1, (2,), "x") != More(1, (2,), "y")
    assert repr(More(1)).endswith("More(number=1, many=(), text='')")
    with pytest.raises(dataclasses.FrozenInstanceError):
        More(1).text = "y"  # type: ignore[misc]


def test_an_open_one_can_be_changed_and_has_no_hash() -> None:
    record = Open(1)
    record.number = 2
    assert record == Open(2)
    with pytest.raises(TypeError):
        hash(record)


def test_every_module_that_stays_python_makes_its_dataclasses_this_way() -> None:
    """Else a start gets slower class by class. What training scripts load knows nothing of the core."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dally"]["compiled"]
    package = ROOT / "src" / "dally"
    compiled = {path.relative_to(package).with_suffix("").as_posix() for pattern in rules["modules"]
                for path in package.glob(f"{pattern}.py")} - set(rules["pure"])  # fmt: skip
    alone = {"job", "core/records", "live/local/shim", "live/slurm/batch"}
    found = []
    for path in package.rglob("*.py"):
        name = path.relative_to(package).with_suffix("").as_posix()
        lines = [line for line in path.read_text().splitlines() if line.startswith("from dataclasses import ")]
        if any("dataclass" in line.removeprefix("from dataclasses import ").split(", ") for line in lines):
            found.append(name)
    assert set(found) <= compiled | alone


def test_no_field_is_one_that_init_would_not_know() -> None:
    """`InitVar`s are not handled: no class of ours has one."""
    for module in pkgutil.walk_packages([str(Path(dally.__file__).parent / "simulator")], "dally.simulator."):
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type) and dataclasses.is_dataclass(each):
                assert {field._field_type.name for field in vars(each)["__dataclass_fields__"].values()} <= {  # type: ignore[attr-defined]
                    "_FIELD", "_FIELD_CLASSVAR"}  # fmt: skip
