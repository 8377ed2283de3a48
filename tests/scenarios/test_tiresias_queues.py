"""Tiresias' queues in small scenes: who is demoted when, who comes first, who is promoted."""

from __future__ import annotations

from typing import Any

import pytest

from builders import Played, cluster, job, play, watched_steps
from dally.core.plan import Preempt, Start
from dally.core.scheduler import Scheduler
from dally.policies.tiresias.released import Released
from dally.policies.tiresias.remembered_released import ReleasedMemory

TWO = "tiresias[thresholds=100]"


def first_starts(played: Played) -> dict[str, float | None]:
    return {row.job_id: row.first_start for row in played.run.ledger.rows}


def test_a_job_yields_to_newcomers_once_it_has_had_its_share() -> None:
    # four GPUs for 25 s are the 100 GPU-seconds of queue 0
    played = play([job("long", 4, 200), job("new", 4, 10, 5)], cluster(1, 4), TWO)
    assert played.times(Preempt, "long") == [25.0]
    assert first_starts(played)["new"] == 25.0
    assert played.end("long") == 210.0


def test_the_demotion_comes_on_time_after_events_in_between() -> None:
    specs = [job("long", 2, 200), job("new", 4, 10, 5), job("other", 2, 3, 1)]
    played = play(specs, cluster(1, 4), TWO)
    assert played.times(Preempt, "long") == [50.0]


def test_who_started_first_goes_first_inside_a_queue() -> None:
    specs = [job("first", 4, 100), job("second", 4, 100, 1), job("third", 4, 5, 60)]
    played = play(specs, cluster(1, 4), TWO)
    # both long jobs are in the last queue at 60; `third` takes their place, then `first` comes back before `second`
    back = [entry.job for time, entry in played.of(Start) if time >= 65.0]  # type: ignore[attr-defined]
    assert back[0] == "first"


def test_a_running_job_is_not_preempted_by_one_of_its_own_queue_that_has_not_started() -> None:
    played = play([job("a", 4, 20), job("b", 4, 1, 1)], cluster(1, 4), TWO)
    assert not played.of(Preempt)


def test_jobs_that_fit_pass_one_that_does_not() -> None:
    played = play([job("a", 3, 20), job("wide", 4, 5, 1), job("thin", 1, 5, 2)], cluster(1, 4), TWO)
    assert first_starts(played) == {"a": 0.0, "wide": 20.0, "thin": 2.0}


def test_service_is_counted_in_gpu_seconds_not_in_seconds() -> None:
    specs = [job("wide", 4, 400), job("thin", 1, 400), job("new", 5, 1, 30)]
    played = play(specs, cluster(1, 5), TWO)
    # `wide` is demoted at 25; `thin` still has 70 GPU-seconds left in queue 0, so `new` does not fit before 100
    assert played.times(Preempt, "wide") == [100.0]
    assert played.times(Preempt, "thin") == [100.0]
    assert first_starts(played)["new"] == 100.0


def test_a_promoted_job_goes_back_to_queue_zero_with_counters_at_zero() -> None:
    stream = [job(f"s{i}", 4, 20, 1 + 20 * i) for i in range(40)]
    played = play([job("long", 4, 60), *stream], cluster(1, 4), "tiresias[thresholds=100,promote=2]")
    # 25 s of running, 2 × 25 s of waiting, another 25 s from queue 0, and again
    assert played.times(Preempt, "long") == [25.0, 100.0]
    assert played.times(Start, "long") == [0.0, 75.0, 150.0]
    assert played.end("long") == 160.0


def test_without_the_knob_the_same_job_waits_for_the_stream_to_end() -> None:
    stream = [job(f"s{i}", 4, 20, 1 + 20 * i) for i in range(40)]
    played = play([job("long", 4, 60), *stream], cluster(1, 4), TWO)
    assert played.times(Start, "long") == [0.0, 825.0]


def test_the_index_puts_the_likelier_to_end_first_and_learns_it_from_ends() -> None:
    # short jobs take 5 GPU-seconds, long ones 90: who has had 10 is a long one and the index knows it
    past = [job(f"p{i}", 1, 5, i * 5) for i in range(10)] + [job(f"q{i}", 1, 90, 50 + 90 * i) for i in range(4)]
    now = 500
    specs = [*past, job("old", 1, 90, now), job("new", 1, 5, now + 10)]
    las = play(specs, cluster(1, 1), TWO)
    gittins = play(specs, cluster(1, 1), "tiresias[index=gittins,thresholds=100]")
    assert first_starts(las)["new"] == now + 90
    assert first_starts(gittins)["new"] == now + 10


def test_three_queues_have_two_limits() -> None:
    specs = [job("a", 1, 300), job("b", 1, 300), job("c", 1, 10, 450)]
    played = play(specs, cluster(1, 1), "tiresias[queues=3,thresholds=100/200]")
    # in turns of 100 through queues 0 and 1, then in order
    assert played.times(Start, "a")[:3] == [0.0, 200.0, 400.0]
    assert played.times(Start, "b")[:2] == [100.0, 300.0]
    assert played.times(Start, "c") == [450.0]


def test_without_queues_equal_jobs_take_turns_every_quantum() -> None:
    specs = [job("a", 1, 30), job("b", 1, 30)]
    played = play(specs, cluster(1, 1), "tiresias[continuous=true,quantum=10]")
    assert played.times(Start, "a") == [0.0, 20.0, 40.0]
    assert played.times(Start, "b") == [10.0, 30.0, 50.0]


@pytest.mark.parametrize("policy", ["tiresias[promote=2,thresholds=20]", "tiresias[index=gittins,promote=2,thresholds=20]",
                                    "tiresias[variant=released,promote=2,thresholds=20/40]"])  # fmt: skip
def test_memory_of_ended_jobs_is_given_back(policy: str) -> None:
    seen: list[Scheduler] = []
    with watched_steps(lambda scheduler, now: seen.append(scheduler)):
        play([job(f"j{i}", 1 + i % 4, 30, i, model="vgg16") for i in range(20)], cluster(2, 4), policy)
    memory: Any = seen[-1].memory
    assert not memory.standings
    if isinstance(memory, ReleasedMemory):
        assert not memory.promotions and not any(memory.clocks.values())
    else:
        assert not memory.due and not memory.looks and not memory.machines and not memory.unexplained
        assert len(memory.totals) == (20 if "gittins" in policy else 0)  # what is learned stays
    rules = seen[-1].policy.rules  # type: ignore[attr-defined]
    assert isinstance(rules, Released) or not rules.placing.lanes.heads
