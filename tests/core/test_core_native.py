"""What is done in C where there is a compiled build does what Python's own ways do, errors included."""

from __future__ import annotations

import bisect
import copy
import heapq
import pickle
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.core import inner
from dally.core.inner import quicken
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.plan import Start, WakeAt
from dally.core.ranking import Rank, before

_NUMBERS = st.one_of(st.floats(allow_nan=False), st.integers(-(2**70), 2**70), st.sampled_from([0.0, 1.0, 1, 2, True]))
_ENTRIES = st.tuples(_NUMBERS, st.integers(-3, 3), st.text("ab", max_size=2))


class Twin(NamedTuple):
    """Of the same fields as one that is quickened, and not of Dally's own modules."""

    first: int
    second: str = "two"
    third: float = 3.0


class Quick(NamedTuple):
    first: int
    second: str = "two"
    third: float = 3.0


@given(st.lists(_ENTRIES, max_size=40))
def test_a_heap_is_the_same_list_at_every_step(entries: list[Any]) -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    for number, entry in enumerate(entries):
        item = (*entry, number)
        inner.heappush(ours, item)
        heapq.heappush(theirs, item)
        assert ours == theirs
    while theirs:
        if len(theirs) % 3 == 0:
            assert inner.heapreplace(ours, (5.0, 1, "x")) == heapq.heapreplace(theirs, (5.0, 1, "x"))
        assert inner.heappop(ours) == heapq.heappop(theirs)
        assert ours == theirs


@given(st.lists(_ENTRIES, max_size=40), _ENTRIES)
def test_a_place_is_where_bisect_finds_it(entries: list[Any], entry: Any) -> None:
    entries.sort()
    assert inner.place_of(entries, entry) == bisect.bisect_left(entries, entry)


@given(_ENTRIES, _ENTRIES)
def test_before_is_less(one: Any, other: Any) -> None:
    assert before(one, other) == (one < other)


def test_what_cannot_be_compared_is_an_error_and_an_empty_heap_too() -> None:
    with pytest.raises(TypeError):
        inner.heappush([("a",)], (1,))  # type: ignore[list-item]
    with pytest.raises(TypeError):
        inner.place_of([("a",)], (1,))  # type: ignore[list-item]
    with pytest.raises(IndexError):
        inner.heappop([])
    with pytest.raises(IndexError):
        inner.heapreplace([], (1,))
    with pytest.raises(TypeError):
        inner.heappush((), 1)  # type: ignore[arg-type]


class _Shrinks:
    """Takes from the list while it is compared."""

    def __init__(self, entries: list[Any]) -> None:
        self.entries = entries

    def __lt__(self, other: object) -> bool:
        self.entries.clear()
        return True


def test_a_list_that_changes_while_it_is_compared_is_an_error_and_no_crash() -> None:
    heap: list[Any] = []
    heap.extend((_Shrinks(heap),) for _ in range(5))
    with pytest.raises((RuntimeError, IndexError)):
        inner.heappop(heap)
    entries: list[Any] = []
    entries.extend((_Shrinks(entries),) for _ in range(5))
    pytest.importorskip("dally.core.native", reason="nothing is compiled")
    with pytest.raises(RuntimeError):
        inner.place_of(entries, (_Shrinks(entries),))


def test_put_goes_past_what_a_derived_class_does() -> None:
    class Refuses(dict[str, int]):
        def __setitem__(self, key: str, value: int) -> None:
            raise AssertionError

    found = Refuses()
    inner.put(found, "a", 1)
    assert found == {"a": 1}
    with pytest.raises(TypeError):
        inner.put([], 0, 1)  # type: ignore[arg-type]


def _result(call: Any) -> object:
    try:
        return tuple(call())
    except TypeError as error:
        return str(error)


CALLS: list[Any] = [
    lambda kind: kind(1), lambda kind: kind(1, "b"), lambda kind: kind(1, "b", 2.0), lambda kind: kind(first=1),
    lambda kind: kind(1, third=4.0), lambda kind: kind(1, third=4.0, second="c"), lambda kind: kind(),
    lambda kind: kind(1, "b", 2.0, 4), lambda kind: kind(1, first=2), lambda kind: kind(second="b"),
    lambda kind: kind(1, fourth=2), lambda kind: kind(*(1, "b")), lambda kind: kind(**{"fir" + "st": 7}),
    lambda kind: kind(1, "b", 2.0, third=1.0),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_quickened_named_tuple_is_made_as_before(call: Any) -> None:
    native = pytest.importorskip("dally.core.native", reason="nothing is compiled")
    native.made(Quick)
    native.read(Quick)
    there = _result(lambda: call(Quick))
    assert there == (expected if isinstance(expected := _result(lambda: call(Twin)), tuple)
                     else expected.replace("Twin", "Quick"))  # fmt: skip


def test_a_quickened_named_tuple_is_what_it_was() -> None:
    native = pytest.importorskip("dally.core.native", reason="nothing is compiled")
    native.made(Quick)
    native.read(Quick)
    assert not native.made(Quick) and not native.read(Quick)  # once is enough
    made = Quick(1, third=2.5)
    assert type(made) is Quick and repr(made) == "Quick(first=1, second='two', third=2.5)"
    assert made == (1, "two", 2.5) and hash(made) == hash((1, "two", 2.5))
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made) and made._replace(first=2).first == 2
    assert (made.first, made.second, made.third, made.count(1), made._fields) == (1, "two", 2.5, 1, Quick._fields)
    with pytest.raises(AttributeError, match="'Quick' object has no attribute 'fourth'"):
        made.fourth  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        made.first = 2  # type: ignore[misc]

    class Derived(Quick):
        __slots__ = ()

        @property
        def second(self) -> str:  # type: ignore[override]
            return "derived"

    assert (Derived(1).second, Derived(1).first, type(Derived(1))) == ("derived", 1, Derived)


def test_what_a_class_is_given_later_is_seen() -> None:
    native = pytest.importorskip("dally.core.native", reason="nothing is compiled")

    class Record(NamedTuple):
        value: int

    native.made(Record)
    native.read(Record)
    made, kept = Record(3), Record.value
    assert [made.value for _ in range(3)] == [3, 3, 3]
    Record.value = property(lambda self: self[0] * 2)  # type: ignore[assignment,misc]
    assert made.value == 6
    Record.value = kept  # type: ignore[misc]
    assert made.value == 3
    Record.extra = 9  # type: ignore[attr-defined]
    assert made.extra == 9  # type: ignore[attr-defined]


def test_what_is_no_named_tuple_is_left_alone() -> None:
    native = pytest.importorskip("dally.core.native", reason="nothing is compiled")

    class Own(tuple[int, ...]):
        _fields = ("a",)

        def __init__(self, *_: object) -> None:
            self.b = 1

    assert not native.made(Own) and not native.made(int) and not native.made(tuple) and not native.made(3)
    assert not native.read(int) and not native.read(3)
    assert Own((5,)).b == 1


def test_dallys_own_are_quickened_once_and_work() -> None:
    quicken()
    assert quicken() == 0
    assert Start("a", Placement.of([(1, 3)])).placement.gpus == 2 and WakeAt(1.0).time == 1.0
    assert Rank(1.0) == (1.0, 0.0, 0.0, 0.0, ()) and Rank(base=2.0, tie=(1.0,)).tie == (1.0,)
    job = Job(id="a", gpus=2, submit_time=0.0)
    assert (job.id, job.gpus, job.within) == ("a", 2, None)
    with pytest.raises(AttributeError):
        job.__class__.__new__(Job).id  # noqa: B018 - never set
