"""What a policy remembers: drafts that leave no trace, and plain data that comes back as it was."""

from __future__ import annotations

import copy
import json
import pickle
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import cluster
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
