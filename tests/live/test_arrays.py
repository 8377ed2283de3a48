"""Arrays: so many of one at a time, and jobs that come after a whole one; also when the service is another one by then."""

from __future__ import annotations

import time

import pytest
from test_restarts import Scripted, go_on, kept, leads, state, store, submit  # noqa: F401 - store is a fixture

from dally.core.errors import UserError
from dally.live.driver import Driver
from dally.live.engine import Began, Exited
from dally.live.spec import expand, read_spec
from dally.store.database import Database
from dally.store.taking import Handed, Taken


def array(store: Database, numbers: str, **more: object) -> list[str]:  # noqa: F811
    spec = read_spec({"command": ["true"], "gpus": 1, "user": "ada", "array": numbers, **more})
    group = [(member, each.plain()) for member, each in expand(spec)]
    (taken,) = store.submit([Handed("ada", time.time(), [group], None, "")])
    assert isinstance(taken, Taken)
    return taken.ids


def ends(driver: Driver, engine: Scripted, job: str, code: int = 0) -> None:
    number = max(attempt for name, attempt in engine.started if name == job)
    engine.reports += [Began(job, number), Exited(job, number, code)]
    go_on(driver)


def test_of_an_array_with_a_limit_so_many_are_there_at_a_time_and_the_next_ones_follow(store: Database) -> None:  # noqa: F811
    ids = array(store, "0-4%2")
    engine = Scripted()
    driver = leads(store, engine)
    go_on(driver)
    assert [job for job, _ in engine.started] == ids[:2]
    assert driver.held_back.why(ids[2]) == (
        "WaitingForArray", f"its array may have 2 at a time, and has {ids[0]}, {ids[1]}", None)  # fmt: skip
    ends(driver, engine, ids[0], 3)  # how it ends does not matter
    assert [job for job, _ in engine.started] == ids[:3]
    ends(driver, engine, ids[2])
    ends(driver, engine, ids[1])
    assert [job for job, _ in engine.started] == ids
    for job in ids[3:]:
        ends(driver, engine, job)
    assert [state(driver, job) for job in ids] == ["failed", *["finished"] * 4]
    assert list(driver.held_back) == []


def test_the_limit_is_the_same_after_a_restart(store: Database) -> None:  # noqa: F811
    ids = array(store, "0-4%2")
    first = Scripted()
    driver = leads(store, first)
    go_on(driver)
    ends(driver, first, ids[0])
    second = Scripted({(ids[1], 1): [Began(ids[1], 1)], (ids[2], 1): [Began(ids[2], 1)]})
    driver = leads(store, second)
    go_on(driver)
    assert second.started == [] and list(driver.held_back) == ids[3:]
    second.reports += [Exited(ids[1], 1, 0)]
    go_on(driver)
    assert second.started == [(ids[3], 1)]


def test_members_that_are_cancelled_held_or_released_leave_their_place_to_the_next(store: Database) -> None:  # noqa: F811
    ids = array(store, "0-5%1")
    engine = Scripted()
    driver = leads(store, engine)
    go_on(driver)
    for what, job in (("cancel", ids[1]), ("hold", ids[2])):
        driver.feed(store.ask({"what": what, "job": job, "user": "ada"}))
    go_on(driver)
    ends(driver, engine, ids[0])
    assert [job for job, _ in engine.started] == [ids[0], ids[3]]
    driver.feed(store.ask({"what": "release", "job": ids[2], "user": "ada"}))
    go_on(driver)
    assert driver.held_back.why(ids[2])[0] == "WaitingForArray"
    driver.feed(store.ask({"what": "cancel", "job": ids[3], "user": "ada"}))
    go_on(driver)
    engine.reports.append(Exited(ids[3], 1, -9))
    go_on(driver)
    assert [job for job, _ in engine.started] == [ids[0], ids[3], ids[2]]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("field", "code", "becomes"), [
    ("after", 0, "starting"), ("after", 1, "starting"), ("after_ok", 0, "starting"), ("after_ok", 1, "cancelled")])  # fmt: skip
def test_a_job_comes_after_a_whole_array(store: Database, restart: bool, field: str, code: int, becomes: str) -> None:  # noqa: F811
    ids = array(store, "0-2")
    whole = ids[0].partition("_")[0]
    last = submit(store, gpus=8, **{field: [whole]})
    engine = Scripted()
    driver = leads(store, engine)
    go_on(driver)
    ends(driver, engine, ids[0], code)
    ends(driver, engine, ids[2])
    assert driver.held_back.why(last)[0] == "WaitingForDependency" and whole in driver.held_back.why(last)[1]
    if restart:
        engine = Scripted({(ids[1], 1): [Began(ids[1], 1)]})
        engine.started.append((ids[1], 1))
        driver = leads(store, engine)
        go_on(driver)
    ends(driver, engine, ids[1])
    assert state(driver, last) == becomes
    if becomes == "cancelled":
        row = kept(driver, last)
        assert row is not None and row["cause"] == f"it was to run after job {whole} had finished, which is failed ({ids[0]})"


def test_an_array_comes_after_another_one_a_few_at_a_time(store: Database) -> None:  # noqa: F811
    first = array(store, "0-1")
    second = array(store, "0-9%3", after=[first[0].partition("_")[0]])
    engine = Scripted()
    driver = leads(store, engine)
    go_on(driver)
    for job in first:
        ends(driver, engine, job)
    assert [job for job, _ in engine.started] == [*first, *second[:3]]


@pytest.mark.parametrize("text", ["0-9%0", "0-9%", "0-9%x", "0-9%2%3", "%2"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not an array"):
        read_spec({"command": ["true"], "gpus": 1, "array": text})
