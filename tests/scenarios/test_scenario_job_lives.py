"""Crashes, retries, attempts, cancellations, rejections and odd arrivals."""

from __future__ import annotations

import pytest

from builders import Scripted, cluster, job, mixed_cluster, play
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Rejected
from dally.core.reasons import Token
from dally.simulator.faults import Faults
from dally.simulator.knowledge import Nothing

ONE = cluster(1, 1)


class CrashAfter(Faults):
    """Every start crashes after so many seconds of running."""

    after = 7.0

    def crash_after(self, job_id: str, retries: int, now: float) -> float | None:
        return self.after


def test_a_job_that_crashes_is_retried_and_given_up_when_its_retries_are_used_up() -> None:
    played = play([job("a", 1, 100)], ONE, "fifo", faults=CrashAfter(retries=2, checkpoint_interval=5.0))
    assert [(t, e.work_done) for t, e in played.of(ev.Interrupted)] == [(7, 5), (14, 10)]  # type: ignore[union-attr]
    assert (played.outcome("a"), played.end("a")) == ("failed", 21)


def test_a_job_that_is_through_before_it_crashes_finishes() -> None:
    played = play([job("a", 1, 7), job("b", 1, 7)], ONE, "fifo", faults=CrashAfter(retries=0))
    assert [played.outcome(name) for name in "ab"] == ["finished", "finished"]


def test_checkpoints_let_a_crashing_job_finish_in_the_end() -> None:
    # crashes at 7 with 5 s saved and at 14 with 10 s saved; 3 s are left
    played = play([job("a", 1, 13)], ONE, "fifo", faults=CrashAfter(retries=9, checkpoint_interval=5.0))
    assert (played.outcome("a"), played.end("a")) == ("finished", 14 + 3)


def test_crashes_by_mean_time_come_from_the_seed() -> None:
    def ends(seed: int) -> list[float | None]:
        faults = Faults(1, job_mtbf=20.0, retries=50, checkpoint_interval=1.0, seed=seed)
        return [play([job("a", 1, 100)], ONE, "fifo", faults=faults).end("a")]

    assert ends(1) == ends(1) != ends(2)


@pytest.mark.parametrize(("failures", "starts", "end"), [
    ((), [0], 100), ((0.5,), [0, 50], 100), ((0.25, 0.5), [0, 25, 50], 100), ((0.5, 0.25), [0, 50, 50], 100),
])  # fmt: skip
def test_a_traced_job_dies_and_is_retried_where_its_attempts_ended(
    failures: tuple[float, ...], starts: list[float], end: float
) -> None:
    played = play([job("a", 1, 100, failures=failures)], ONE, "fifo")
    assert played.times(pl.Start, "a") == starts
    assert played.end("a") == end


def test_between_two_attempts_somebody_else_may_have_the_gpus() -> None:
    played = play([job("a", 1, 100, failures=(0.5,)), job("b", 1, 30, 10)], ONE, "srtf[placement=any]")
    assert (played.end("b"), played.end("a")) == (40, 130)
    slow = play([job("a", 1, 100, failures=(0.5,)), job("b", 1, 30, 10)], ONE, "las[quantum=1000s]")
    assert (slow.end("b"), slow.end("a")) == (80, 130)


def test_a_user_gives_up_a_job_that_has_not_started() -> None:
    played = play([job("a", 1, 100), job("b", 1, 10, 5, cancel_at=60.0), job("c", 1, 10, 6)], ONE, "fifo")
    assert (played.outcome("b"), played.end("b"), played.times(pl.Start, "b")) == ("cancelled", 60, [])
    assert played.end("c") == 110


def test_a_job_that_started_before_its_cancellation_runs_for_its_traced_time() -> None:
    played = play([job("a", 1, 100, cancel_at=60.0)], ONE, "fifo")
    assert (played.outcome("a"), played.end("a")) == ("finished", 100)


def test_a_preempted_job_is_no_longer_one_that_has_not_started() -> None:
    played = play([job("a", 1, 50, cancel_at=12.0), job("b", 1, 10, 5)], ONE, "srtf")
    assert (played.outcome("a"), played.end("a")) == ("finished", 60)


def test_a_job_cancelled_before_its_submission_is_gone_at_once_unless_it_can_start() -> None:
    played = play([job("a", 1, 10), job("b", 1, 10, 5, cancel_at=1.0)], ONE, "fifo")
    assert (played.outcome("b"), played.end("b")) == ("cancelled", 5)


# what is asked → why it can never run here
@pytest.mark.parametrize(("asked", "token", "words"), [
    ({"gpus": 17}, Token.EXCEEDS_CAPACITY, "asks for 17 GPUs; the cluster has 16"),
    ({"gpus": 9, "gpu_type": "v100"}, Token.EXCEEDS_CAPACITY, "9 GPUs of type v100; the cluster has 8"),
    ({"gpus": 1, "gpu_type": "h100"}, Token.NO_MATCHING_GPU_TYPE, "no GPU of type h100"),
    ({"gpus": 20}, Token.EXCEEDS_CAPACITY, "a gang never mixes types, so 24 GPUs are not 20 of one"),
])  # fmt: skip
def test_a_job_that_can_never_run_is_turned_away_with_the_reason(
    asked: dict[str, object], token: Token, words: str
) -> None:
    tree = mixed_cluster(v100=(4, 4), a100=(8, 8))
    played = play([job("big", **asked), job("ok", 1, 5)], tree, "fifo")  # type: ignore[arg-type]
    (_, entry), = played.of(Rejected)  # fmt: skip
    assert entry.reason.token is token  # type: ignore[union-attr]
    if not words.startswith("a gang"):
        assert words in entry.reason.sentence  # type: ignore[union-attr]
    assert (played.outcome("big"), played.outcome("ok")) == ("rejected", "finished")


def test_a_job_the_size_of_the_cluster_runs() -> None:
    played = play([job("all", 8, 10), job("one", 1, 5)], cluster(2, 4), "fifo")
    assert (played.outcome("all"), played.end("one")) == ("finished", 15)


def test_a_wish_for_a_gpu_type_is_kept_while_others_go_where_there_is_room() -> None:
    tree = mixed_cluster(v100=(2,), a100=(4,))
    jobs = [job("v1", 2, 10, gpu_type="v100"), job("v2", 2, 10, gpu_type="v100"), job("x", 2, 10)]
    played = play(jobs, tree, "fifo[backfill=true]")
    assert played.jcts() == {"v1": 10, "v2": 20, "x": 10}
    kinds = {e.job: {tree.machines[m].gpu_type for m, _ in e.placement.slices}  # type: ignore[union-attr]
             for _, e in played.of(pl.Start)}  # fmt: skip
    assert kinds == {"v1": {"v100"}, "v2": {"v100"}, "x": {"a100"}}


@pytest.mark.parametrize("policy", ["fifo", "fifo[backfill=true]", "smallest", "srtf", "las", "las[quantum=0]"])
def test_jobs_of_no_duration_come_and_go_in_one_instant(policy: str) -> None:
    jobs = [job("zero", 2, 0, 3), job("zero too", 2, 0, 3), job("a", 2, 10, 3)]
    played = play(jobs, cluster(1, 2), policy)
    assert {played.outcome(name) for name in ("zero", "zero too", "a")} == {"finished"}
    assert played.end("zero") == 3
    assert max(row.end or 0 for row in played.run.ledger.rows) == 13


def test_jobs_that_arrive_together_are_seen_together() -> None:
    played = play([job("big", 2, 10), job("s1", 1, 10), job("s2", 1, 10)], cluster(1, 2), "smallest")
    assert played.of(pl.Preempt) == []  # had big been seen alone, it would have started first
    assert played.jcts() == {"big": 20, "s1": 10, "s2": 10}


def test_an_end_and_an_arrival_in_one_instant_are_one_decision() -> None:
    played = play([job("a", 1, 10), job("b", 1, 5, 10)], ONE, "fifo")
    assert played.times(pl.Start, "b") == [10]
    assert played.end("b") == 15


def test_where_nothing_is_known_of_durations_srtf_falls_back_to_the_order_of_arrival() -> None:
    jobs = [job("long", 1, 50), job("short", 1, 5, 1)]
    assert play(jobs, ONE, "srtf", estimates=Nothing()).jcts() == {"long": 50, "short": 54}
    assert play(jobs, ONE, "srtf").jcts() == {"long": 55, "short": 5}


def test_a_policy_that_never_starts_anybody_leaves_all_unfinished() -> None:
    played = play([job("a"), job("b")], ONE, Scripted())
    assert [played.outcome(name) for name in "ab"] == ["unfinished", "unfinished"]


def test_an_empty_trace_is_over_at_once() -> None:
    assert play([], ONE, "fifo").entries == []
