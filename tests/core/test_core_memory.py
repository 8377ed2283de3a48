"""What a policy remembers: drafts that leave no trace, and plain data that comes back as it was."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dally.policies
from builders import cluster
from dally.core import plain
from dally.core.memory import Memory, Order, Table
from dally.core.placement import Placement
from dally.core.plain import MachineNumber
from dally.core.plan import Demand
from dally.core.topology import MachineSpec, changed

TREE = cluster(2, 2, 4)


class Standing(NamedTuple):
    queue: int
    start: float
    note: str | None = None


class Example(Memory):
    standings: Table[str, Standing]
    by_demand: Table[Demand, tuple[float, ...]]
    where: Table[str, Placement]
    affinity: Table[MachineNumber, int]
    due: Order[tuple[float, str]]
    began: float | None = None
    count: int = 0


keys = st.sampled_from("abcdef")
OPERATIONS = st.lists(st.tuples(st.sampled_from(["put", "drop", "pop", "clear", "scalar", "add", "remove", "default", "update"]),
                                keys, st.integers(0, 9)), max_size=30)  # fmt: skip


def apply(memory: Example, operations: list[tuple[str, str, int]]) -> None:
    for what, key, number in operations:
        if what == "put":
            memory.standings[key] = Standing(number, float(number))
        elif what == "drop" and key in memory.standings:
            del memory.standings[key]
        elif what == "pop":
            memory.standings.pop(key, None)
        elif what == "clear" and number == 0:
            memory.standings.clear()
        elif what == "scalar":
            memory.count += number
            memory.began = float(number)
        elif what == "add" and (float(number), key) not in memory.due:
            memory.due.add((float(number), key))
        elif what == "remove":
            memory.due.discard((float(number), key))
        elif what == "default":
            memory.standings.setdefault(key, Standing(number, 0.0))
        elif what == "update":
            memory.standings.update({key: Standing(number, 1.0), "z": Standing(0, 0.0)})


def picture(memory: Example) -> object:
    """Everything, orders included."""
    return list(memory.standings.items()), list(memory.due), memory.began, memory.count


@given(OPERATIONS, OPERATIONS, OPERATIONS)
def test_a_draft_that_is_dropped_leaves_no_trace_not_even_in_an_order(
    before: list[tuple[str, str, int]], tried: list[tuple[str, str, int]], after: list[tuple[str, str, int]]
) -> None:
    memory, other = Example(), Example()
    for each in (memory, other):
        apply(each, before)
    was = picture(memory)
    memory.begin()
    apply(memory, tried)
    memory.drop()
    assert picture(memory) == was
    for each in (memory, other):
        apply(each, after)
    assert picture(memory) == picture(other)


@given(OPERATIONS, OPERATIONS)
def test_a_draft_that_is_kept_is_as_if_it_had_been_no_draft(first: list[tuple[str, str, int]], second: list[tuple[str, str, int]]) -> None:
    memory, other = Example(), Example()
    for each in (memory, other):
        apply(each, first)
    memory.begin()
    apply(memory, second)
    memory.keep()
    apply(other, second)
    assert picture(memory) == picture(other)


@given(OPERATIONS)
def test_a_memory_comes_back_from_text_as_it_was(operations: list[tuple[str, str, int]]) -> None:
    memory = Example()
    apply(memory, operations)
    memory.by_demand[Demand(4, None)] = (1.5, float("inf"))
    memory.by_demand[Demand(2, "v100")] = ()
    memory.where["a"] = Placement.of([(0, 0b11), (3, 0b1)])
    memory.affinity[MachineNumber(2)] = 8
    back = Example.load(json.loads(json.dumps(memory.save(TREE), allow_nan=False)), TREE)
    assert picture(back) == picture(memory)
    assert (back.by_demand, back.where, back.affinity) == (memory.by_demand, memory.where, memory.affinity)
    assert type(next(iter(back.by_demand))) is Demand and type(back.where["a"]) is Placement
    assert all(type(standing) is Standing for standing in back.standings.values())
    back.begin()
    back.standings["new"] = Standing(1, 1.0)
    back.drop()
    assert "new" not in back.standings


def test_machines_go_by_name_when_the_cluster_changes_and_what_is_gone_is_left_out() -> None:
    memory = Example()
    memory.affinity[MachineNumber(0)], memory.affinity[MachineNumber(3)] = 1, 4
    memory.where["stays"], memory.where["goes"] = Placement.of([(3, 0b1)]), Placement.of([(0, 0b1), (1, 0b1)])
    after = changed(TREE, [MachineSpec(("rack0", "new"), 4)], ["rack0/m0"])
    back = Example.load(memory.save(TREE), after)
    assert dict(back.affinity) == {after.machine_by_name["rack1/m1"]: 4}
    assert dict(back.where) == {"stays": Placement.of([(after.machine_by_name["rack1/m1"], 0b1)])}


@given(OPERATIONS)
def test_a_memory_is_the_same_in_another_process(operations: list[tuple[str, str, int]]) -> None:
    memory = Example()
    apply(memory, operations)
    for back in (pickle.loads(pickle.dumps(memory)), copy.deepcopy(memory)):
        assert picture(back) == picture(memory)
        back.begin()
        apply(back, [("put", "a", 1), ("add", "q", 3), ("scalar", "a", 2)])
        back.drop()
        assert picture(back) == picture(memory)


def test_drafts_do_not_nest() -> None:
    memory = Example()
    memory.begin()
    with pytest.raises(AssertionError):
        memory.begin()


def test_what_memories_keep_says_of_what_type_it_is() -> None:
    """They are saved by it, and compiled named tuples have lost every type that is a union: they must stay Python."""
    for module in pkgutil.walk_packages(dally.policies.__path__, "dally.policies."):
        importlib.import_module(module.name)
    seen: set[type] = set()

    def look(hint: Any, where: str) -> None:
        assert hint is not type, f"{where} has lost its type: its module must not be compiled"
        if isinstance(hint, type) and hint not in seen and hint is not Placement:
            seen.add(hint)
            for name, kind in plain._fields(hint) or ():
                look(kind, f"{hint.__module__}.{hint.__name__}.{name}")
        for inside in get_args(hint):
            look(inside, where)

    def below(kind: type) -> Iterator[type]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    for memory in below(Memory):
        for name, hint in get_type_hints(memory).items():
            look(hint, f"{memory.__name__}.{name}")
    assert Demand in seen
