"""The store of a service: whole decisions or none, one leader at a time, and nothing taken in twice. On both databases."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from builders import cluster
from dally.core import events as ev
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Instant
from dally.core.topology import MachineSpec
from dally.store.database import Database
from dally.store.errors import FencedError, StoreUnavailableError
from dally.store.taking import Handed, Taken

TREE = cluster(2, 2)
Open = Callable[[], Database]


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same store as often as one likes."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/dally.db"
    else:
        url = request.getfixturevalue("postgres").database(f"t{uuid.uuid4().hex}")

    def make() -> Database:
        database = Database(url)
        database.prepare(TREE, policy="fifo")
        database.begin_text(TREE)
        return database

    return make


def leads(database: Database) -> Database:
    assert database.take_the_lead(database.lead(), {"who": "me"})
    return database


def instant(number: int) -> Instant:
    return Instant(float(number), (ev.Arrived(Job(f"j{number}", float(number), 1)),), ())


def handed(*specs: dict[str, object], key: str | None = None, digest: str = "d") -> Handed:
    return Handed("ann", 1.0, [[(None, spec)] for spec in specs], key, digest)


def test_instants_come_back_as_they_were_written(opened: Open) -> None:
    database = leads(opened())
    written = [instant(number) for number in range(5)]
    for each in written:
        database.append(each)
    again = opened()
    assert list(again.since(0)) == written and list(again.since(3)) == written[3:]
    assert again.written() == 5


def test_an_instant_its_rows_and_the_requests_it_answers_are_written_together(opened: Open) -> None:
    database = leads(opened())
    request = database.ask({"what": "cancel", "job": "7"})
    assert opened().open_requests() == [request]
    database.append(instant(0), [request.seq], {"7": {"state": "cancelled"}})
    again = opened()
    assert again.open_requests() == [] and again.rows() == {"7": {"state": "cancelled"}}


def test_who_was_followed_can_write_nothing_any_more(opened: Open) -> None:
    first = leads(opened())
    request = first.ask({"what": "cancel"})
    second = leads(opened())
    for write in (lambda: first.append(instant(0), [request.seq], {"1": {}}), first.beat, first.step_down,
                  lambda: first.snapshot({}), lambda: first.put_rows({"1": {}}, [request.seq])):  # fmt: skip
        with pytest.raises(FencedError):
            write()
    assert second.written() == 0 and second.rows() == {} and second.open_requests() == [request]


def test_of_many_who_want_to_lead_one_does(opened: Open) -> None:
    opened()
    won: list[bool] = []

    def try_it() -> None:
        database = opened()
        seen = database.lead()
        barrier.wait()
        won.append(database.take_the_lead(seen, {}))
        database.close()

    barrier = threading.Barrier(6)
    threads = [threading.Thread(target=try_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 5 + [True]


def test_the_same_key_is_the_same_submission(opened: Open) -> None:
    database = opened()
    (first,) = database.submit([handed({"n": 1}, {"n": 2}, key="k")])
    (again,) = opened().submit([handed({"n": 1}, {"n": 2}, key="k")])
    assert first == Taken(["1", "2"], True) and again == Taken(["1", "2"], False)
    (other,) = database.submit([handed({"n": 3}, key="k", digest="another")])
    assert isinstance(other, UserError)
    assert [each.id for _, each in database.submissions()] == ["1", "2"]


def test_members_of_an_array_carry_its_number(opened: Open) -> None:
    database = opened()
    group = [(number, {"n": number}) for number in (0, 5, 7)]
    (taken,) = database.submit([Handed("ann", 1.0, [group, [(None, {})]], None, "d")])
    assert isinstance(taken, Taken)
    ids = taken.ids
    assert ids[:3] == ["1_0", "1_5", "1_7"] and ids[3].isdigit() and ids[3] != "1"
    found = {each.id: each for _, each in database.submissions()}["1_5"]
    assert found.spec == {"n": 5} and found.who == "ann"


def test_submissions_of_many_at_once_are_all_there_once(opened: Open) -> None:
    def hand_in(who: int) -> None:
        database = opened()
        for number in range(10):
            database.submit([handed({"who": who}, key=f"{who}-{number}")])
        database.close()

    opened()
    threads = [threading.Thread(target=hand_in, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = opened().submissions()
    assert len(found) == len({each.id for _, each in found}) == 40


def test_machines_that_come_and_go_are_followed_only_when_written(opened: Open) -> None:
    database = leads(opened())
    grown = Instant(1.0, (ev.MachinesChanged((MachineSpec(("m9",), 2),)),), ())
    leads(opened())
    with pytest.raises(FencedError):
        database.append(grown)
    third = leads(opened())
    third.append(grown)
    third.append(instant(2))
    assert list(third.since(0)) == [grown, instant(2)]


def test_a_snapshot_is_found_again_and_old_ones_go(opened: Open) -> None:
    database = leads(opened())
    for number in range(4):
        database.append(instant(number))
        database.snapshot({"topology": None, "number": number})
    found = opened().newest_snapshot()
    assert found is not None and found[0] == 4 and found[1]["number"] == 3


def test_a_store_that_is_gone_is_said_and_comes_back(postgres: object) -> None:
    url = postgres.database(f"t{uuid.uuid4().hex}")  # type: ignore[attr-defined]
    database = Database(url, patience=2.0)
    database.prepare(TREE, policy="fifo")
    database.begin_text(TREE)
    leads(database).append(instant(0))
    postgres.stop()  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailableError):
        database.append(instant(1))
    postgres.start()  # type: ignore[attr-defined]
    assert database.written() == 1
    database.append(instant(1))
    assert list(database.since(0)) == [instant(0), instant(1)]
