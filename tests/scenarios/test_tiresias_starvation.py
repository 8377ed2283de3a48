"""PROMOTEKNOB bounds the wait: however long a stream of short jobs fills the cluster, nobody starves."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Played, Spec, cluster, job, play
from dally.core import events as ev
from dally.core.plan import Preempt, Start

GPUS = 4
LIMIT = 100.0


def adversary(gpus: int, short: int, stream: int) -> list[Spec]:
    """A long job, and short ones that fill every GPU from the first second on and never stop coming."""
    arrivals = [job(f"s{i}", 1, short, 1 + (i // GPUS) * short) for i in range(GPUS * stream // short)]
    return [job("long", gpus, 150), *arrivals]


def waits_and_runs(played: Played, job_id: str) -> list[tuple[float, float]]:
    """(length of a wait, seconds it had run before since its last one of these waits) of one job."""
    found = []
    since, ran, begun = 0.0, 0.0, 0.0
    for time, entry in played.entries:
        if isinstance(entry, Start) and entry.job == job_id:
            found.append((time - since, ran))
            begun = time
        elif isinstance(entry, Preempt) and entry.job == job_id:
            since, ran = time, ran + time - begun
        elif isinstance(entry, ev.Finished) and entry.job == job_id:
            break
    return found


@settings(max_examples=8)
@given(st.integers(1, GPUS), st.sampled_from((5, 10, 20, 40)), st.sampled_from((1.0, 2.0, 4.0)),
       st.sampled_from(("las", "gittins")))  # fmt: skip
def test_with_the_knob_no_wait_is_longer_than_k_times_the_run_and_the_queue_before_it(
    gpus: int, short: int, knob: float, index: str
) -> None:
    policy = f"tiresias[index={index},thresholds={LIMIT:g},promote={knob:g}]"
    played = play(adversary(gpus, short, 1200), cluster(1, GPUS), policy)
    for wait, ran in waits_and_runs(played, "long"):
        # jobs promoted earlier than it leave queue 0 after LIMIT GPU-seconds each; a short one ends before
        assert wait <= knob * max(ran, LIMIT / gpus) + LIMIT + short


@settings(max_examples=8)
@given(st.integers(1, GPUS), st.sampled_from((5, 10, 20, 40)))
def test_without_the_knob_the_wait_is_as_long_as_the_stream(gpus: int, short: int) -> None:
    waits = []
    for stream in (800, 1600):
        played = play(adversary(gpus, short, stream), cluster(1, GPUS), f"tiresias[thresholds={LIMIT:g}]")
        waits.append(max(wait for wait, _ in waits_and_runs(played, "long")))
    assert waits[1] - waits[0] > 500


@settings(max_examples=8)
@given(st.integers(2, GPUS), st.sampled_from((7, 10, 20)), st.sampled_from((1.0, 4.0)))
def test_a_large_gang_that_never_ran_gets_its_turn_as_well(gpus: int, short: int, knob: float) -> None:
    # single GPUs come free one at a time and are taken by the next short job before the gang fits
    stream = [job(f"s{i}", 1, short, i * short / GPUS) for i in range(GPUS * 1000 // short)]
    specs = [*stream, job("gang", gpus, 30, short)]
    bounded = play(specs, cluster(1, GPUS), f"tiresias[thresholds={LIMIT:g},promote={knob:g}]")
    start = bounded.run.ledger.row("gang").first_start
    assert start is not None
    assert start - short <= knob * LIMIT / gpus + LIMIT + short
    endless = play(specs, cluster(1, GPUS), f"tiresias[thresholds={LIMIT:g}]")
    assert (endless.run.ledger.row("gang").first_start or math.inf) > 900
