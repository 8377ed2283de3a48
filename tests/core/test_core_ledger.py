"""The journal summed up per job."""

from __future__ import annotations

import copy
import pickle

import pytest

from builders import at, cluster
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.journal import Entry, Instant, Leaving, Rejected
from dally.core.ledger import Ledger
from dally.core.reasons import Reason, Token
from dally.core.row import FIELDS

TREE = cluster(2, 2, 4)


def fed(*entries: tuple[float, Entry]) -> Ledger:
    ledger = Ledger(TREE)
    for now, entry in entries:
        ledger(Instant(now, (entry,), None))  # type: ignore[arg-type]
    return ledger


ARRIVED = (0.0, ev.Arrived(Job("a", 0.0, 2)))
HERE, THERE = at((0, 0b11)), at((0, 1), (2, 1))


def test_a_segment_lasts_from_getting_the_gpus_to_losing_them_whatever_the_neighbours_do() -> None:
    ledger = fed(ARRIVED, (5, pl.Start("a", HERE)), (5, ev.Measured("a", 1, 1, 0)),
                 (8, ev.Measured("a", 0.5, 2, 0.25, 0.0, 2.0)), (10, ev.Finished("a")))  # fmt: skip
    assert [(s.start, s.end, s.placement) for s in ledger.segments] == [(5, 10, HERE)]
    row = ledger.row("a")
    assert (row.running, row.comm, row.neighbour_loss) == (5, 2 * 0.25, 2 * 0.5)


def test_waiting_running_and_loading_add_up() -> None:
    ledger = fed(ARRIVED, (5, pl.Start("a", HERE)), (5, ev.Measured("a", 1, 1, 0.5)), (9, pl.Preempt("a")),
                 (9, Leaving("a", 2)), (12, ev.Yielded("a")), (20, pl.Start("a", THERE)),
                 (20, ev.Measured("a", 1, 1, 0.5, 3.0)), (30, ev.Finished("a")))  # fmt: skip
    row = ledger.row("a")
    assert (row.jct, row.running, row.queueing, row.lost, row.preemptions) == (30, 14, 16, 3, 1)
    assert row.comm == 0.5 * (4 + 7)
    assert (row.first_start, row.outcome, TREE.levels[row.level or 0].name) == (5, "finished", "cluster")
    assert ledger.leaving_gpu_seconds == 6


def test_busy_and_queue_follow_every_change() -> None:
    ledger = fed(ARRIVED, (0, ev.Arrived(Job("b", 0.0, 4))), (1, pl.Start("a", HERE)), (2, pl.Preempt("a")),
                 (2, pl.Start("b", at((0, 15)))), (3, ev.Interrupted("b", 0.0, "x")), (4, ev.Cancelled("a")),
                 (5, pl.Start("b", at((1, 15)))), (6, ev.Failed("b")))  # fmt: skip
    assert list(zip(ledger.time, ledger.busy, ledger.queue, strict=True)) == [
        (0, 0, 2), (1, 2, 1), (2, 4, 1), (3, 0, 2), (4, 0, 1), (5, 4, 0), (6, 0, 0)]  # fmt: skip
    assert (ledger.row("a").outcome, ledger.row("b").outcome) == ("cancelled", "failed")


def test_a_rejected_job_has_no_end_and_leaves_the_queue() -> None:
    ledger = fed(ARRIVED, (0, Rejected("a", Reason(Token.EXCEEDS_CAPACITY, "too big"))))
    assert (ledger.row("a").outcome, ledger.row("a").jct, list(ledger.queue)) == ("rejected", None, [0])


def test_closing_books_what_still_runs() -> None:
    ledger = fed(ARRIVED, (2, pl.Start("a", HERE)))
    ledger.close(7)
    assert ledger.row("a").running == 5
    assert ledger.row("a").outcome == "unfinished"
    assert [(s.start, s.end) for s in ledger.segments] == [(2, 7)]


def test_a_migration_is_two_segments_and_no_wait() -> None:
    ledger = fed(ARRIVED, (0, pl.Start("a", HERE)), (4, pl.Migrate("a", THERE)), (9, ev.Finished("a")))
    assert [(s.start, s.end, s.placement) for s in ledger.segments] == [(0, 4, HERE), (4, 9, THERE)]
    row = ledger.row("a")
    assert (row.migrations, row.preemptions, row.queueing) == (1, 0, 0)


def test_an_unknown_job_is_a_key_error_and_not_an_empty_row() -> None:
    with pytest.raises(KeyError):
        fed(ARRIVED).row("nobody")


def test_an_ended_job_is_the_same_row_again_figure_by_figure() -> None:
    ledger = fed(ARRIVED, (5, pl.Start("a", HERE)), (5, ev.Measured("a", 1, 1, 0)), (7, pl.Preempt("a")),
                 (8, pl.Start("a", THERE)))  # fmt: skip
    living = ledger.row("a")
    ledger(Instant(10, (ev.Finished("a"),), None))
    again = ledger.row("a")
    assert again is not living
    public = [name for name in FIELDS if not name.startswith("_")]
    assert {name: getattr(again, name) for name in public} == {name: getattr(living, name) for name in public}
    assert [row.job_id for row in ledger.rows] == ["a"] and ledger.rows[-1].jct == 10


def test_what_a_world_says_of_a_job_after_its_end_still_counts() -> None:
    ledger = fed(ARRIVED, (5, ev.Cancelled("a")), (6, ev.StartFailed("a", "too late")))
    assert (ledger.row("a").outcome, ledger.row("a").failed_starts) == ("cancelled", 1)
    ledger.settle()
    assert [(row.outcome, row.failed_starts) for row in ledger.rows] == [("cancelled", 1)]


def test_a_name_that_comes_again_is_another_job() -> None:
    ledger = fed(ARRIVED, (5, ev.Cancelled("a")), (6, ev.Arrived(Job("a", 6.0, 1))), (9, ev.Cancelled("a")))
    assert [(row.submit, row.end, row.gpus) for row in ledger.rows] == [(0, 5, 2), (6, 9, 1)]
    assert ledger.row("a").submit == 6


def test_equal_placements_are_kept_once() -> None:
    entries = [ARRIVED]
    for now in (1.0, 3.0):
        entries += [(now, pl.Start("a", at((0, 0b11)))), (now + 1, pl.Preempt("a"))]
    first, second = fed(*entries).segments.placements
    assert first == HERE and first is second


def test_a_ledger_is_the_same_in_another_process_and_goes_on_there() -> None:
    ledger = fed(ARRIVED, (5, pl.Start("a", HERE)), (5, ev.Measured("a", 1, 1, 0.25)), (7, ev.Arrived(Job("b", 7, 1))))
    figures = [[getattr(row, name) for name in FIELDS] for row in ledger.rows]
    for again in (pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger)):
        assert [[getattr(row, name) for name in FIELDS] for row in again.rows] == figures
        again(Instant(10, (ev.Finished("a"),), None))
        again.close(10)
        assert [row.outcome for row in again.rows] == ["finished", "unfinished"] and again.row("a").running == 5
        assert list(again.time) == [*ledger.time, 10] and len(again.segments) == 1
    assert ledger.row("a").outcome == "unfinished"
