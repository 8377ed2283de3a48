"""Load that means load: arrivals scaled, the stream's past at work, the middle measured."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dally
from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.simulator.window import Window, busy_share, parse_window
from dally.traces.reshape import BEFORE, arrivals, at_load, ideal_run_time, offered, resampled, with_past
from dally.traces.trace import Trace

GPUS = 16


def capacity(kind: str | None) -> int:
    return GPUS


@st.composite
def streams(draw: st.DrawFn) -> Trace:
    count = draw(st.integers(2, 40))
    chance = Random(draw(st.integers(0, 10**6)))
    times = sorted(chance.uniform(0, 1e5) for _ in range(count - 1))
    jobs = [Job(str(i), at, chance.choice([1, 2, 4, 8, 64])) for i, at in enumerate([0.0, *times])]
    truths = [Truth(chance.lognormvariate(8, 2), cancel_at=job.submit_time + 50 if chance.random() < 0.1 else None) for job in jobs]
    return Trace("drawn", "drawn", jobs, truths)


@given(streams(), st.floats(0.05, 5))
def test_any_trace_can_be_brought_to_any_load(trace: Trace, load: float) -> None:
    if all(job.gpus > GPUS for job in trace.jobs):
        return
    made = at_load(trace, load, GPUS, capacity)
    assert offered(made, GPUS, capacity) == pytest.approx(load, rel=1e-6)
    assert [replace(job, submit_time=0.0) for job in made.jobs] == [replace(job, submit_time=0.0) for job in trace.jobs]
    for before, after, old, new in zip(trace.jobs, made.jobs, trace.truths, made.truths, strict=True):
        if old.cancel_at is not None and new.cancel_at is not None:  # patience is the user's, not the clock's
            assert new.cancel_at - after.submit_time == pytest.approx(old.cancel_at - before.submit_time)


@given(streams())
def test_the_past_makes_up_for_what_outlasts_the_submissions(trace: Trace) -> None:
    """If all start at once, GPU-seconds in one period with the past are those of all jobs, whenever they end."""
    made = with_past(trace)
    first, last = arrivals(trace)
    period = (last - first) * len(trace) / (len(trace) - 1)
    inside = 0.0
    for job, truth in zip(made.jobs, made.truths, strict=True):
        run_time = ideal_run_time(job, truth) or 0.0
        inside += job.gpus * max(0.0, min(job.submit_time + run_time, first + period) - job.submit_time)
    whole = sum(job.gpus * (ideal_run_time(job, truth) or 0.0) for job, truth in zip(trace.jobs, trace.truths, strict=True))
    # runs of which less than a second is left are let go
    assert inside == pytest.approx(whole, rel=1e-6, abs=64.0 * len(trace))


@given(streams(), st.integers(1, 100), st.integers(0, 3))
def test_a_draw_has_as_many_jobs_as_asked_all_of_the_trace_and_in_order(trace: Trace, count: int, seed: int) -> None:
    made = resampled(trace, count, seed)
    assert len(made) == count and len({job.id for job in made.jobs}) == count
    assert all(a.submit_time <= b.submit_time for a, b in zip(made.jobs, made.jobs[1:], strict=False))
    known = {(job.gpus, truth.duration) for job, truth in zip(trace.jobs, trace.truths, strict=True)}
    assert all((job.gpus, truth.duration) in known for job, truth in zip(made.jobs, made.truths, strict=True))
    assert resampled(trace, count, seed).jobs == made.jobs


def test_another_seed_is_another_draw() -> None:
    trace = dally.Scenario(trace="synth:philly", cluster="1x2x8", jobs=100, network="ideal").prepare().trace
    assert resampled(trace, 100, 1).jobs != resampled(trace, 100, 2).jobs


def test_a_batch_has_neither_load_nor_past() -> None:
    batch = Trace("batch", "drawn", [Job("a", 0.0, 1), Job("b", 0.0, 1)], [Truth(10.0), Truth(10.0)])
    for what in (lambda: at_load(batch, 1.0, GPUS, capacity), lambda: with_past(batch)):
        with pytest.raises(UserError, match="all its jobs at once"):
            what()


@pytest.mark.parametrize(("text", "expected"), [("10%..90%", (10.0, 90.0)), ("20..1m", (20.0, 60.0)), ("all", (0.0, 100.0)), ("0%..50", (0.0, 50.0))])
def test_windows_are_shares_or_times(text: str, expected: tuple[float, float]) -> None:
    trace = Trace("t", "drawn", [Job(str(at), float(at), 1) for at in range(101)], [Truth(1.0)] * 101)
    assert parse_window(text, trace) == Window(*expected)


@pytest.mark.parametrize("load", [0.6, 1.0])
@pytest.mark.parametrize("trace", ["synth:helios", "synth:philly"])
def test_a_load_asked_for_is_reached(trace: str, load: float) -> None:
    """From an empty cluster to the last end, load 1.0 of such heavy tails used to be 20 to 30 % utilisation."""
    warm = dally.simulate("srtf", trace=trace, jobs=1500, load=load, cluster="2x4x8", network="ideal", knowledge="exact", seed=5)
    held = warm.figures["measured"]["gpus_held"]
    assert abs(held - load) < 0.12
    cold = dally.simulate("srtf", trace=trace, jobs=1500, load=load, cluster="2x4x8", network="ideal", knowledge="exact", seed=5, warm_start=False, window="all")
    assert cold.figures["measured"]["gpus_held"] < held - 0.1


def test_only_the_jobs_in_the_window_are_measured_and_all_are_in_the_list() -> None:
    run = dally.simulate("las", trace="synth:helios", jobs=100, load=1.0, cluster="1x2x8", seed=1)
    window = run.experiment.window
    assert window is not None
    chosen = [window.start <= at <= window.end and BEFORE not in name for name, at in run.jobs.select("job_id", "submit_time").iter_rows()]
    assert run.jobs["measured"].to_list() == chosen and 60 <= sum(chosen) <= 99
    assert run.figures["jobs"] == sum(chosen) < len(run.jobs)
    assert run.figures["avg_jct"] == pytest.approx(run.jobs.filter("measured")["jct"].mean())
    said = [note for note in run.notes if note.startswith("measured: ")]
    assert said and f"the {sum(chosen)} of 100 jobs" in said[0]
    assert run.figures["avg_jct_over_bound"] >= 1 - 1e-9


def test_gpus_held_is_the_area_under_the_load_over_the_window() -> None:
    run = dally.simulate("fifo", trace="synth:helios", jobs=60, load=1.0, cluster="1x2x8", seed=2)
    window, ledger = run.experiment.window, run.measured.run.ledger
    assert window is not None
    by_hand = sum(
        (max(0.0, min(s.end, window.end) - max(s.start, window.start))) * s.placement.gpus for s in ledger.segments
    ) / (16 * (window.end - window.start))
    assert busy_share(ledger, window) == pytest.approx(by_hand)


@pytest.mark.parametrize("means", ["one-gpu", "best-placement"])
@pytest.mark.parametrize("trace", ["synth:helios", "synth:dally-poisson"])
def test_a_load_is_that_of_the_durations_as_they_are_meant(trace: str, means: str) -> None:
    scenario = dally.Scenario(trace=trace, cluster="2x4x8", jobs=200, load=0.7, duration_means=means, warm_start=False, network="ideal")
    prepared = scenario.prepare()
    workload = prepared.workload(prepared.make_network(prepared.topology))
    first, last = arrivals(prepared.trace)
    asked = sum(workload.best_run_time[job.id] * job.gpus for job in prepared.trace.jobs)
    assert asked / (64 * (last - first)) == pytest.approx(0.7, rel=1e-3)


def test_where_nobody_waits_it_is_said() -> None:
    quiet = dally.compare("fifo,las", trace="synth:philly", jobs=100, load=0.05, cluster="4x8x8")
    assert any("nothing to decide here" in note for note in quiet.notes)
    busy = dally.compare("fifo,las", trace="synth:philly", jobs=100, load=1.2, cluster="1x2x8")
    assert not any("nothing to decide here" in note for note in busy.notes)
