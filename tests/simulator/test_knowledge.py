"""What is known of durations: one choice, with nothing from the future in it but where it says so."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import cluster
from dally.core import events as ev
from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.core.journal import Entry
from dally.core.told import DURATIONS, SPEEDS
from dally.simulator.experiment import Experiment
from dally.simulator.knowledge import make_estimates, settled, told
from dally.simulator.predicting import Predictor
from dally.simulator.run import Run
from dally.simulator.scenario import Scenario
from dally.traces.trace import Trace


def history(jobs: int = 60, *, limits: bool = True, seed: int = 0) -> Trace:
    """Users whose jobs are alike, each with its own length, and limits that say little."""
    chance, made, truths = random.Random(seed), [], []
    for number in range(jobs):
        user = chance.choice("abcd")
        ran = {"a": 60.0, "b": 600.0, "c": 3000.0, "d": 9000.0}[user] * chance.uniform(0.8, 1.25)
        limit = ran * chance.uniform(1.0, 30.0) if limits else None
        made.append(Job(f"j{number}", 200.0 * number, chance.choice((1, 2, 4)), user=user, limit=limit,
                        declared_duration=limit))  # fmt: skip
        truths.append(Truth(ran))
    return Trace("history", "made", made, truths)


def run(trace: Trace, knowledge: str, policy: str = "srtf") -> tuple[Run, list[Entry]]:
    seen: list[Entry] = []
    made = Experiment(trace, cluster(1, 4), knowledge=knowledge, preemption_cost="0")
    found = made.run(policy, listeners=(lambda instant: seen.extend(instant.happened),))
    return found, seen


def said(seen: list[Entry]) -> dict[str, float | None]:
    return {entry.job.id: entry.job.work for entry in seen if isinstance(entry, ev.Arrived)}


def ends(found: Run) -> list[float | None]:
    return [row.end for row in found.ledger.rows]


def test_limits_are_what_users_declared_and_scrambling_them_changes_the_figures() -> None:
    trace = history()
    found, seen = run(trace, "limits")
    assert said(seen) == {job.id: job.limit for job in trace.jobs} and found.told == "time limits"
    limits = [job.limit for job in trace.jobs]
    random.Random(1).shuffle(limits)
    mixed = replace(trace, jobs=[replace(job, limit=None, declared_duration=limit)
                                 for job, limit in zip(trace.jobs, limits, strict=True)])  # fmt: skip
    assert ends(run(mixed, "limits")[0]) != ends(found)
    assert ends(run(mixed, "exact")[0]) == ends(run(replace(trace, jobs=[
        replace(job, limit=None) for job in trace.jobs]), "exact")[0])  # fmt: skip


def test_what_is_learned_comes_from_jobs_that_had_ended_and_from_nothing_else() -> None:
    trace = history(limits=False)
    _, seen = run(trace, "learned")
    # what has not happened yet at the arrival of a job may be anything: it is told the same
    cut = 40
    other = replace(trace, truths=[truth if number < cut else Truth((truth.duration or 0.0) * 50)
                                   for number, truth in enumerate(trace.truths)])  # fmt: skip
    _, again = run(other, "learned")
    first = [f"j{number}" for number in range(cut + 1)]
    assert {job: said(seen)[job] for job in first} == {job: said(again)[job] for job in first}


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), cut=st.integers(1, 39), factor=st.floats(0.01, 100.0), limits=st.booleans())
def test_no_future_changes_what_was_learned_before_it(seed: int, cut: int, factor: float, limits: bool) -> None:
    """Whatever becomes of the jobs from some arrival on, all that came until then are told the same."""
    trace = history(40, limits=limits, seed=seed)
    chance = random.Random(seed)
    other = replace(trace, truths=[truth if number < cut else Truth((truth.duration or 0.0) * factor * chance.uniform(0.5, 2))
                                   for number, truth in enumerate(trace.truths)])  # fmt: skip
    told_first, told_again = said(run(trace, "learned")[1]), said(run(other, "learned")[1])
    assert [told_first[f"j{number}"] for number in range(cut + 1)] == [told_again[f"j{number}"] for number in range(cut + 1)]


def test_who_asks_for_the_same_again_is_taken_to_run_as_long_again() -> None:
    """A user with two kinds of job, told apart by nothing but the limit they are given."""
    predictor = Predictor()
    for number in range(20):
        short = number % 2 == 0
        job = Job(f"j{number}", 0.0, 1, user="ann", limit=600.0 if short else 7200.0)
        predictor.predict(job)
        predictor.ended(job, 100.0 if short else 5000.0)
    assert predictor.predict(Job("a", 0.0, 1, user="ann", limit=600.0)) == pytest.approx(100.0)
    assert predictor.predict(Job("b", 0.0, 1, user="ann", limit=7200.0)) == pytest.approx(5000.0)


def test_what_is_learned_is_near_where_users_repeat_themselves_and_says_how_near() -> None:
    found, seen = run(history(300, limits=False), "learned")
    assert said(seen)["j0"] is None  # nobody has ended, nothing is declared
    calibration = found.calibration
    assert calibration is not None and calibration.jobs == 300 and 0.8 < calibration.median < 1.25
    assert calibration.within_two > 0.8
    assert any("durations learned from ended jobs: predicted" in note for note in found.notes)
    assert found.told == "durations learned from ended jobs"


def test_who_is_like_nobody_is_said_to_take_what_its_owner_declares() -> None:
    predictor = Predictor()
    assert predictor.predict(Job("a", 0.0, 1, user="u", limit=60.0)) == 60.0
    assert predictor.predict(Job("b", 0.0, 1)) is None
    predictor.ended(Job("a", 0.0, 1, user="u"), 30.0)
    assert predictor.predict(Job("c", 0.0, 1, user="u")) == pytest.approx(30.0)
    assert predictor.predict(Job("d", 0.0, 1, user="u", limit=10.0)) == 10.0  # no job outlasts its limit


def test_nothing_known_is_nothing_also_to_who_plans_by_limits() -> None:
    _, seen = run(history(), "none", "slurm")
    arrived = [entry.job for entry in seen if isinstance(entry, ev.Arrived)]
    assert {(job.work, job.declared_duration) for job in arrived} == {(None, None)}
    assert all(job.limit is not None for job in arrived)  # it still ends them


@pytest.mark.parametrize(("limits", "name"), [(True, "limits"), (False, "none")])
def test_by_default_it_is_what_a_real_cluster_would_have(limits: bool, name: str) -> None:
    made = Scenario(history(limits=limits), "1x1x4", network="ideal").prepare()
    assert settled(made.knowledge, made.trace.jobs) == name
    assert made.run("srtf").told == {"limits": "time limits", "none": "nothing"}[name]


def test_exact_knowledge_is_called_exact_and_declared_is_its_older_name() -> None:
    both = frozenset({DURATIONS, SPEEDS})
    assert told(both, settled("declared")) == told(both, "exact") == "exact durations and speeds"
    assert ends(run(history(), "declared")[0]) == ends(run(history(), "exact")[0])
    with pytest.raises(UserError, match="write none, limits, learned, exact, noisy"):
        make_estimates("perfect", {})
