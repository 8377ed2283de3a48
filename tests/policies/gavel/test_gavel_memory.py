"""What Gavel remembers: saved, loaded, thrown away, or missing because somebody else was in charge before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from builders import (
    Flat,
    Pairwise,
    Played,
    Timed,
    at,
    cluster,
    job,
    mixed_cluster,
    outages,
    play,
    seeded_trace,
    watched_steps,
)
from dally.catalog.throughputs import Throughputs
from dally.core import plan as pl
from dally.core.job import Job, Truth
from dally.core.scheduler import Scheduler
from dally.core.sharing import Share
from dally.policies.options import make_policy
from dally.simulator.experiment import Experiment
from dally.simulator.faults import StartRules
from dally.simulator.run import Run
from dally.traces.trace import Trace

sys.path.insert(0, str(Path(__file__).parents[2] / "properties"))

from disturbed import disturbed

SHORT = "round=60s,reallocate=150s"
FORMS = [SHORT, f"{SHORT},aware=false", f"{SHORT},objective=makespan", f"{SHORT},objective=finish-time-fairness",
         f"{SHORT},objective=fifo", f"{SHORT},objective=sjf", f"{SHORT},objective=cost-slo",
         f"{SHORT},objective=hierarchical", f"{SHORT},objective=allox", f"{SHORT},throughputs=estimated",
         f"{SHORT},placement_sensitive=true", f"{SHORT},backfill=true", f"{SHORT},space_sharing=true",
         f"{SHORT},space_sharing=true,backfill=true", f"{SHORT},optimum=corner", f"{SHORT},optimum=central",
         f"{SHORT},variant=released", f"{SHORT},variant=released,objective=makespan",
         f"{SHORT},variant=released,aware=false", f"{SHORT},variant=released,objective=fifo,aware=false",
         f"{SHORT},variant=released,objective=finish-time-fairness"]  # fmt: skip

MIXED = mixed_cluster(V100=(4, 2), K80=(4,))
SPEEDS = {"V100": 1.0, "K80": 0.4}
MODELS = {"a": 1.0, "b": 3.0, "c": 0.3}
TABLE = Throughputs("table", {kind: {(model, gpus): speed * rate * gpus**(0.9 if kind == "K80" else 0.7)
                                     for model, rate in MODELS.items() for gpus in (1, 2, 4)}
                              for kind, speed in SPEEDS.items()}, {}, {})  # fmt: skip


def tabled(seed: int, options: str) -> Run:
    """Jobs of three models that differ in where they are fast, on two GPU types, more than fit."""
    drawn = seeded_trace(seed, jobs=10 if "released" in options else 24, sizes=(1, 1, 2, 4), span=900, longest=900)
    models = list(MODELS)
    jobs = [Job(each.id, each.submit_time, each.gpus, model=models[i % 3], tenant=models[i % 2],
                declared_steps=1.0 + 3 * (truth.duration or 0.0)) for i, (each, truth)
            in enumerate(zip(drawn.jobs, drawn.truths, strict=True))]  # fmt: skip
    truths = [Truth(None, steps=each.declared_steps) for each in jobs]
    experiment = Experiment(Trace("made", "made", jobs, truths), MIXED, "ideal", "5s", throughputs=TABLE,
                            interference="none" if "space_sharing" in options else "auto")  # fmt: skip
    return experiment.run(f"gavel[{options}]")


def rows(run: Run) -> list[object]:
    return [(row.job_id, row.first_start, row.end, row.preemptions, row.migrations, row.outcome)
            for row in run.ledger.rows]  # fmt: skip


@pytest.mark.parametrize("options", FORMS)
def test_asking_in_vain_and_another_object_with_the_saved_memory_change_nothing(options: str) -> None:
    undisturbed = rows(tabled(5, options))
    with disturbed(5, asks=2, rebirths=0.15):
        assert rows(tabled(5, options)) == undisturbed


# --- in charge in the middle ------------------------------------------------------------------------------------


@contextmanager
def taken_over(policy: str, at: float) -> Iterator[None]:
    """Another policy is put in charge at the first instant from this time on."""
    original = Scheduler.decide
    done: list[float] = []

    def decide(self: Scheduler, now: float) -> None:
        if now >= at and not done:
            done.append(now)
            self.put_in_charge(make_policy(policy), now)
        original(self, now)

    Scheduler.decide = decide  # type: ignore[method-assign]
    try:
        yield
        assert done, "nobody took over"
    finally:
        Scheduler.decide = original  # type: ignore[method-assign]


@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize("before", ["fifo", "las[quantum=30s]"])
def test_put_in_charge_in_the_middle_it_gets_everybody_through(before: str, options: str) -> None:
    made = seeded_trace(3, jobs=25, span=400)
    with taken_over(f"gavel[{options}]", 150.0):
        played = play(made, cluster(2, 2, 4), before, cost=Flat(3.0, 4.0), interference=Pairwise(1.3))
    assert {row.outcome for row in played.run.ledger.rows} == {"finished"}


def test_put_in_charge_it_leaves_those_who_run_where_they_are_and_deals_in_rounds() -> None:
    jobs = [job("a", 1, 3600.0), job("b", 1, 3600.0), job("c", 1, 3600.0)]
    with taken_over("gavel", 1000.0):
        played = play([*jobs, job("late", 1, 1.0, submit=1000.0)], cluster(2), "fifo")
    assert not played.of(pl.Migrate)
    assert played.times(pl.Preempt)[0] == 1360.0, "nobody has had anything that it knows of; who runs stays a round"
    assert played.times(pl.Start, "c")[0] == 1360.0
    assert all(played.outcome(name) == "finished" for name in "abc")


def test_jobs_that_shared_in_ways_it_does_not_know_go_back_to_the_queue_and_end() -> None:
    jobs = [job(name, 1, 900.0) for name in "abcde"]
    plan = {0.0: [pl.Start("a", at((0, 1))), pl.Start("b", at((0, 1)), None, Share(beside="a")),
                  pl.Start("c", at((0, 1)), None, Share(beside="a")),
                  pl.Start("d", at((0, 2))), pl.Start("e", at((0, 2)), None, Share())], 200.0: []}  # fmt: skip
    with taken_over(f"gavel[{SHORT},space_sharing=true]", 200.0):
        played = play(jobs, cluster(4), Timed(plan), interference=Pairwise(1.25))
    assert {row.outcome for row in played.run.ledger.rows} == {"finished"}
    assert all(played.times(pl.Preempt, name)[0] == 200.0 for name in "abcde")


def test_a_pair_is_a_pair_whoever_formed_it() -> None:
    plan = {0.0: [pl.Start("a", at((0, 1))), pl.Start("b", at((0, 1)), None, Share(beside="a"))], 200.0: []}
    with taken_over("gavel[space_sharing=true]", 200.0):
        played = play([job("a", 1, 900.0), job("b", 1, 900.0)], cluster(1), Timed(plan), interference=Pairwise(1.25))
    assert played.times(pl.Start) == [0.0, 0.0] and not played.of(pl.Preempt) and not played.of(pl.Migrate)


def test_a_job_that_was_resized_goes_on_in_its_own_size() -> None:
    elastic = job("e", 2, 900.0, limits=(1, 4))
    for options in ("", "space_sharing=true", "variant=released"):
        plan = {0.0: [pl.Start("e", at((0, 3)))], 100.0: [pl.Resize("e", at((0, 15)))], 200.0: []}
        with taken_over(f"gavel[{options}]", 200.0):
            played = play([elastic], cluster(4), Timed(plan))
        assert played.outcome("e") == "finished"
        assert [entry.placement.gpus for _, entry in played.of(pl.Start) if isinstance(entry, pl.Start)] == [2, 2]


# --- a world that lags and refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize("starts", [StartRules(30.0, 0.0), StartRules(20.0, 0.3), StartRules(0.0, 0.3)])
def test_starts_that_take_time_or_are_refused_lose_nobody(options: str, starts: StartRules) -> None:
    tree = cluster(2, 2, 4)
    played = play(seeded_trace(7, jobs=20, span=300), tree, f"gavel[{options}]", cost=Flat(3.0, 4.0), starts=starts,
                  interference=Pairwise(1.3), faults=outages(tree, {1: [(200.0, 500.0)]}))  # fmt: skip
    assert {row.outcome for row in played.run.ledger.rows} == {"finished"}


# --- jobs that stay ---------------------------------------------------------------------------------------------


def stays(played: Played, name: str) -> bool:
    return len(played.of(pl.Start, name)) == 1 and not played.of(pl.Migrate, name) and not played.of(pl.Preempt, name)


@pytest.mark.parametrize("options", ["", "backfill=true", "space_sharing=true", "placement_sensitive=true",
                                     "variant=released"])  # fmt: skip
def test_a_job_that_keeps_its_gpu_type_keeps_its_gpus(options: str) -> None:
    """The holes that short jobs leave, and machines with more room, are no reason to move anybody."""
    tree = cluster(2, 4)
    short = [job(f"s{i}", 1, 400.0 + 300.0 * i, submit=10.0 * i) for i in range(5)]
    later = [job(f"t{i}", 2, 500.0, submit=1500.0 + 700.0 * i) for i in range(4)]
    long = [job("a", 1, 9000.0), job("b", 2, 9000.0)]
    played = play([*short[:2], long[0], short[2], long[1], *short[3:], *later], tree, f"gavel[{options}]", cost="50s")
    assert {row.outcome for row in played.run.ledger.rows} == {"finished"}
    assert not played.of(pl.Migrate)
    assert stays(played, "a") and stays(played, "b")


def test_jobs_that_stay_are_not_moved_to_make_room_for_gangs_that_would_fit_better() -> None:
    """Who runs where is settled before those who come are placed, over many rounds in which others take turns."""
    held: dict[str, object] = {}

    def check(scheduler: Scheduler, now: float) -> None:
        for name, active in scheduler.books.jobs.items():
            before, held[name] = held.get(name), active.placement
            assert active.placement is None or before in (None, active.placement), f"{name} moved at {now}"

    jobs = [job(f"j{i}", (1, 2, 1, 4)[i % 4], 4000.0 + 100.0 * i, submit=30.0 * i) for i in range(12)]
    with watched_steps(check):
        played = play(jobs, cluster(3, 4), "gavel")
    assert not played.of(pl.Migrate), "there is one GPU type: nobody ever has a reason to move"
    assert played.of(pl.Preempt), "jobs take turns"


# --- wrong estimates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", ["variant=released", "variant=released,aware=false",
                                     "variant=released,objective=makespan", "variant=released,objective=fifo"])  # fmt: skip
def test_jobs_that_take_longer_than_they_said_are_given_whole_rounds_by_the_released_rules(
    options: str, seed: int
) -> None:
    drawn = seeded_trace(seed, jobs=20, span=2000, longest=4000)
    jobs = [Job(each.id, each.submit_time, each.gpus, declared_duration=truth.duration)
            for each, truth in zip(drawn.jobs, drawn.truths, strict=True)]  # fmt: skip
    experiment = Experiment(Trace("made", "made", jobs, drawn.truths), cluster(2, 4), "ideal", "0",
                            knowledge="noisy=1.0", seed=seed)  # fmt: skip
    run = experiment.run(f"gavel[{options}]")
    assert {row.outcome for row in run.ledger.rows} == {"finished"}
    assert run.events < 2500, "and no rounds of next to nothing"
