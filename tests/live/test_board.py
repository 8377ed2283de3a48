"""What people see of a job whose beginning nobody was there to hear of."""

from __future__ import annotations

import pytest

from builders import at, cluster, job
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Entry, Instant
from dally.live.board import Board, Row

TOPOLOGY = cluster(1, 4)


def seen(*happened: Entry) -> Row:
    board = Board()
    board.take(board.after(Instant(1.0, (ev.Arrived(job("a", 1, 9.0).job),), (pl.Start("a", at((0, 1))),)), TOPOLOGY))
    board.take(board.after(Instant(5.0, happened, ()), TOPOLOGY))  # type: ignore[arg-type]
    return board.rows["a"]


@pytest.mark.parametrize("end", [ev.Finished("a"), ev.Failed("a", "exit code 3"), ev.Yielded("a"),
                                 ev.Interrupted("a", 0.0, "its machine is gone")])  # fmt: skip
def test_an_attempt_that_ended_has_begun_once_whether_or_not_its_beginning_was_heard_of(end: Entry) -> None:
    for row in (seen(end), seen(ev.Started("a"), end)):
        assert (row["attempts"], row["started"], row["history"][0]["began"]) == (1, 5.0, 5.0)


@pytest.mark.parametrize("end", [ev.StartFailed("a", "the node is gone"), ev.Cancelled("a")])
def test_one_that_never_began_is_not_counted(end: Entry) -> None:
    assert seen(end)["attempts"] == 0
