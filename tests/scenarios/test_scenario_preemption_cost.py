"""What a preemption costs, in whole small stories on one machine."""

from __future__ import annotations

import pytest

from builders import Flat, Played, at, cluster, job, play
from dally.catalog import find_model
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job, Truth
from dally.core.journal import Leaving
from dally.simulator.costs import PreemptionCost
from dally.traces.trace import Trace

# a: 100 s on both GPUs; b: 10 s on one GPU, comes at 20 and is smaller
LONG_AND_SMALL = [job("a", 2, 100), job("b", 1, 10, 20)]

STORIES: dict[str, tuple[PreemptionCost | str, dict[str, float]]] = {
    # a is stopped at 20, b runs 20–30, a has 80 s left
    "nothing": ("0", {"b starts": 20, "a yields": 20, "b ends": 30, "a again": 30, "a ends": 110}),
    # paid when it comes back: 5 s of loading
    "a constant": ("5s", {"b starts": 20, "a yields": 20, "b ends": 30, "a again": 30, "a ends": 115}),
    # 4 s to save: b is given its GPU at 20 and makes progress from 24; 3 s to load
    "saving and loading": (
        Flat(4, 3), {"b starts": 20, "a yields": 24, "b ends": 34, "a again": 34, "a ends": 117}),
    # a has not yielded yet when b is through with nothing: b 10 s from 60, and a cannot come back before
    "a save longer than the successor": (
        Flat(40, 3), {"b starts": 20, "a yields": 60, "b ends": 70, "a again": 70, "a ends": 153}),
}  # fmt: skip


@pytest.mark.parametrize("price", STORIES)
def test_preemption_costs(price: str) -> None:
    cost, expected = STORIES[price]
    played = play(LONG_AND_SMALL, cluster(1, 2), "smallest", cost=cost)
    starts = played.times(pl.Start, "a")
    seen = {"b starts": played.times(pl.Start, "b")[0], "a yields": played.times(ev.Yielded, "a")[0],
            "b ends": played.end("b"), "a again": starts[1], "a ends": played.end("a")}  # fmt: skip
    assert seen == expected


def test_a_preempted_job_keeps_what_nobody_claims_until_it_has_yielded() -> None:
    jobs = [*LONG_AND_SMALL, job("c", 1, 10, 22)]  # c could use the second GPU, but a still saves on it
    played = play(jobs, cluster(1, 2), "smallest", cost=Flat(4, 0))
    assert played.of(Leaving) == [(20, Leaving("a", 1))]
    assert played.times(pl.Start, "c") == [24]
    assert played.end("c") == 34
    assert played.run.ledger.leaving_gpu_seconds == 4


@pytest.mark.parametrize(("x", "y"), [(3.0, 8.0), (8.0, 3.0)])
def test_the_successor_begins_when_the_last_of_its_gpus_is_handed_over(x: float, y: float) -> None:
    models = {"x": x, "y": y}

    class ByModel:
        def save(self, job: Job) -> float:
            return models.get(job.model or "", 0.0)

        def restore(self, job: Job) -> float:
            return 0.0

    jobs = [job("a", 2, 100, model="x"), job("b", 2, 100, model="y"), job("c", 4, 10, 50)]
    played = play(jobs, cluster(2, 2), "srtf", cost=ByModel())
    delay = next(e.delay for _, e in played.of(ev.Measured, "c"))  # type: ignore[union-attr]
    assert (played.times(pl.Start, "c"), delay, played.end("c")) == ([50], 8, 68)
    assert (played.times(ev.Yielded, "a"), played.times(ev.Yielded, "b")) == ([50 + x], [50 + y])


@pytest.mark.parametrize("model", ["resnet50", "bert"])
def test_the_price_by_model_size_is_the_checkpoint_over_the_storages_bandwidth(model: str) -> None:
    seconds = find_model(model).checkpoint_bytes / 1e9
    played = play([job("a", 1, 100, model=model), job("b", 1, 10, 20, model=model)], cluster(1, 1), "srtf",
                  cost="model[storage=1GB/s]")  # fmt: skip
    assert played.end("b") == pytest.approx(20 + seconds + 10)
    assert played.end("a") == pytest.approx(20 + seconds + 10 + seconds + 80)
    assert played.run.ledger.row("a").lost == pytest.approx(seconds)  # loading
    assert played.run.ledger.row("b").lost == pytest.approx(seconds)  # waiting for the GPU it was given


def swaps(played: Played) -> int:
    return sum(row.preemptions for row in played.run.ledger.rows)


@pytest.mark.parametrize("policy", ["srtf", "srtf[gpu_time=true]", "las[quantum=0]", "las[quantum=1s]", "smallest"])
@pytest.mark.parametrize("network", ["ideal", "level-penalty"])
def test_jobs_of_nearly_equal_rank_do_not_swap_places_for_ever(policy: str, network: str) -> None:
    jobs = [job(f"j{i}", 1 + i % 2, 8 + 0.3 * i, 0.7 * (i % 5)) for i in range(8)]
    played = play(jobs, cluster(1, 2), policy, network=network, cost=Flat(0.5, 0.5), instants=5_000)
    assert all(row.outcome == "finished" for row in played.run.ledger.rows)
    assert swaps(played) < 300


def test_a_job_that_still_loads_is_not_preempted_again() -> None:
    # a is stopped for b at 10 and comes back at 21 (1 s save, 10 s run); c arrives while a loads for 5 s
    jobs = [job("a", 1, 100), job("b", 1, 10, 10), job("c", 1, 5, 23)]
    played = play(jobs, cluster(1, 1), "srtf", cost=Flat(1, 5))
    assert played.times(pl.Start, "a")[1] == 21
    assert played.times(pl.Preempt, "a")[:1] == [10]
    assert all(not 21 <= t <= 26 for t in played.times(pl.Preempt, "a"))


def test_a_migration_saves_moves_and_loads() -> None:
    from builders import Scripted

    trace = Trace("t", "made", [Job("a", 0.0, 1), Job("b", 10.0, 1)], [Truth(20.0), Truth(1.0)])
    policy = Scripted([pl.Start("a", at((0, 1)))], [pl.Migrate("a", at((1, 1))), pl.Start("b", at((0, 1)))])
    played = play(trace, cluster(2, 1), policy, cost=Flat(2, 3))
    assert played.end("a") == 10 + 2 + 3 + 10
    assert played.end("b") == 10 + 2 + 1  # a's old GPU is handed over when a's checkpoint is saved
    assert played.run.ledger.row("a").migrations == 1
