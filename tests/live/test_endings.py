"""What the end of an attempt means for its job."""

from __future__ import annotations

import pytest

from dally.core import events as ev
from dally.core.placement import Placement
from dally.live.attempts import Attempt, Key, Leaving, Terms
from dally.live.endings import VANISHES, Known, outcome
from dally.live.engine import Exited, NotBegun, Vanished


def attempt(leaving: Leaving = Leaving.NOT, *, moves: bool = False) -> Attempt:
    found = Attempt(Key("a", 1), Placement.of([(0, 1)]))
    found.began, found.leaving, found.saved = True, leaving, 5.0
    found.moves_to = Attempt(Key("a", 2), Placement.of([(1, 1)])) if moves else None
    return found


def known(retries: int = 0, failures: int = 0, terms: Terms | None = None) -> Known:
    return Known(terms or Terms(), retries, failures, work=9.0)


@pytest.mark.parametrize("leaving", list(Leaving))
def test_code_0_is_done_whoever_asked_it_to_leave(leaving: Leaving) -> None:
    assert outcome(attempt(leaving), Exited("a", 1, 0), known()) == (ev.Finished("a"), True, False)


@pytest.mark.parametrize("code", [137, -9, -15, 1, 3])
def test_only_143_of_a_job_that_was_asked_says_that_it_saved(code: int) -> None:
    event = outcome(attempt(Leaving.PREEMPTED), Exited("a", 1, code), known()).event
    assert isinstance(event, ev.Interrupted) and event.work_done == 5.0 and not event.failure
    assert outcome(attempt(Leaving.PREEMPTED), Exited("a", 1, 143), known()).event == ev.Yielded("a")
    assert outcome(attempt(Leaving.MOVES, moves=True), Exited("a", 1, 143), known()).follows
    assert not outcome(attempt(Leaving.MOVES, moves=True), Exited("a", 1, code), known()).follows


def test_a_crash_counts_and_the_last_one_is_the_end() -> None:
    again = outcome(attempt(), Exited("a", 1, 7), known(retries=2, failures=1))
    assert isinstance(again.event, ev.Interrupted) and again.event.failure and not again.over
    assert outcome(attempt(), Exited("a", 1, 7), known(retries=2, failures=2)) == (ev.Failed("a", "exit code 7"), True, False)
    assert outcome(attempt(), Exited("a", 1, 7), known(retries=2, terms=Terms(retries=0))).over


def test_a_code_with_which_it_asks_to_run_again_counts_against_nothing() -> None:
    found = outcome(attempt(), Exited("a", 1, 75), known(terms=Terms(0, (75,))))
    assert isinstance(found.event, ev.Interrupted) and not found.event.failure and not found.over


def test_143_without_being_asked_is_an_exit_code_like_any_other() -> None:
    assert outcome(attempt(), Exited("a", 1, 143), known()).over


def test_what_never_began_because_the_service_died_costs_nothing_and_a_missing_program_does() -> None:
    new = attempt()
    new.began = False
    assert outcome(new, NotBegun("a", 1, "it never began", void=True), known()).event == ev.StartFailed("a", "it never began")
    assert outcome(new, NotBegun("a", 1, "no such program"), known()).over


def test_an_attempt_that_ran_and_of_which_nothing_is_left_has_vanished() -> None:
    event = outcome(attempt(), NotBegun("a", 1, "it never began", void=True), known()).event
    assert isinstance(event, ev.Interrupted) and event.failure


def test_who_was_asked_to_leave_by_a_service_that_is_gone_was_asked_all_the_same() -> None:
    event = outcome(attempt(), Exited("a", 1, 143, asked=True), known()).event
    assert isinstance(event, ev.Interrupted) and event.work_done == 9.0 and not event.failure


def test_an_attempt_may_vanish_a_few_times_even_without_retries() -> None:
    assert not outcome(attempt(), Vanished("a", 1, "gone"), known(failures=VANISHES - 1)).over
    assert outcome(attempt(), Vanished("a", 1, "gone"), known(failures=VANISHES)).over


def test_what_the_engine_put_out_with_a_cause_has_failed() -> None:
    found = outcome(attempt(), Exited("a", 1, -9, "its time limit is over"), known(retries=5))
    assert found == (ev.Failed("a", "its time limit is over"), True, False)


def test_a_requeued_job_keeps_the_work_it_saved() -> None:
    event = outcome(attempt(Leaving.REQUEUED), Exited("a", 1, 143), known()).event
    assert isinstance(event, ev.Interrupted) and event.work_done == 9.0
