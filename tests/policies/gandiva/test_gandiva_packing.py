"""Packing is a trial: profiled first, judged by measured throughput, undone where it hurts, not tried twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from builders import Played, Spec, cluster, job, play, watched_steps
from dally.catalog.interference import CatalogInterference
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.scheduler import Scheduler
from dally.core.states import State
from dally.policies.gandiva.draft import Draft
from dally.policies.gandiva.memory import GandivaMemory
from dally.policies.gandiva.packing import Packing
from dally.simulator.meter import NoisyMeter

ONE = cluster(1, gpu_type="V100")


class Pairs:
    """Slowdowns as the test says, for either of the two; memory always fits unless a model is huge."""

    def __init__(self, **slowdowns: float) -> None:
        self.slowdowns = slowdowns

    def slowdown(self, job: Job, others: Sequence[Job], gpu_type: str) -> float:
        return self.slowdowns.get("_".join(sorted(str(j.model) for j in (job, *others))), 1.0)

    def fits(self, jobs: Sequence[Job], gpu_type: str) -> str | None:
        return "they are too large" if any(j.model == "vgg16" for j in jobs) and len(jobs) > 1 else None


def packs(played: Played) -> list[tuple[float, pl.Reshare | pl.Migrate]]:
    return [(t, e) for t, e in played.of(pl.Reshare) + played.of(pl.Migrate) if e.share and e.share.beside]  # type: ignore[union-attr]


def undone(played: Played) -> list[tuple[float, pl.Reshare]]:
    return [(t, e) for t, e in played.of(pl.Reshare) if e.share.beside is None]  # type: ignore[union-attr]


def counts(played: Played) -> tuple[int, int, int]:
    """Trials; of these, kept and undone."""
    memory = played.run.memory
    assert isinstance(memory, GandivaMemory)
    return memory.tried, memory.kept, memory.parted


def two(duration: float = 2000, a: str = "lstm", b: str = "lstm") -> list[Spec]:
    return [job("a", 1, duration, model=a), job("b", 1, duration, 1, model=b)]


def test_two_language_models_are_packed_and_stay_packed() -> None:
    played = play(two(), ONE, "gandiva", interference=CatalogInterference())
    ((_, action),) = packs(played)
    assert {action.job, action.share.beside} == {"a", "b"} and not undone(played)  # type: ignore[union-attr]
    sliced = play(two(), ONE, "gandiva[packing=false]")
    assert max(v or 0 for v in played.jcts().values()) < 0.65 * max(v or 0 for v in sliced.jcts().values())


def test_nothing_is_packed_before_both_have_been_profiled_alone() -> None:
    played = play(two(), ONE, "gandiva[minibatches=50]", interference=CatalogInterference())
    (when, _), *_ = packs(played)
    assert when >= 2 * 50  # mini-batches take a second each, and each job has every second turn


def test_nothing_is_packed_without_overload() -> None:
    played = play(two(), cluster(2, gpu_type="V100"), "gandiva", interference=CatalogInterference())
    assert not packs(played)


def test_what_does_not_fit_the_memory_is_not_tried() -> None:
    played = play(two(a="vgg16", b="vgg16"), ONE, "gandiva", interference=Pairs())
    assert not packs(played)
    assert CatalogInterference().fits((two(a="vgg16")[0].job,) * 2, "V100") is not None


@pytest.mark.parametrize("seed", range(5))
def test_a_packed_pair_that_hurts_is_undone_within_forty_minibatches_and_not_tried_again(seed: int) -> None:
    played = play(two(), ONE, f"gandiva[minibatches=20,seed={seed}]", interference=Pairs(lstm_lstm=2.4), meter=NoisyMeter(0.02, seed))
    ((began, _),) = packs(played)
    ((ended, _),) = undone(played)
    assert 20 <= (ended - began) / 2.4 <= 40
    assert counts(played) == (1, 0, 1)


def test_after_an_undone_trial_the_next_neighbour_is_tried() -> None:
    specs = [job("a", 1, 3000, model="a3c"), job("b", 1, 3000, 1, model="recommendation"),
             job("c", 1, 3000, 2, model="lstm")]  # utilisation .2, .3, .5  # fmt: skip
    played = play(specs, ONE, "gandiva", interference=Pairs(a3c_recommendation=2.5))
    tried = [(e.job, e.share.beside) for _, e in packs(played)]
    assert set(tried[0]) == {"a", "b"}  # the two that use their GPU least
    assert len(tried) > 1 and set(tried[1]) != {"a", "b"}
    assert [set(pair) for pair in tried].count({"a", "b"}) == 1


def test_the_job_of_lowest_utilisation_goes_to_the_gpu_of_lowest_utilisation() -> None:
    specs = [job("big", 1, 5000, model="resnet50"), job("mid", 1, 5000, 1, model="lstm"),
             job("low", 1, 5000, 2, model="a3c")]  # low takes turns with big on the first GPU  # fmt: skip
    played = play(specs, cluster(2, gpu_type="V100"), "gandiva[migration=false]", interference=CatalogInterference())
    (_, action), *_ = packs(played)
    assert (action.job, action.share.beside) == ("low", "mid")  # type: ignore[union-attr]


def test_who_was_packed_gets_gpus_of_its_own_when_there_is_room_again() -> None:
    specs = [job("a", 1, 3000, model="lstm"), job("b", 1, 3000, 3, model="lstm"), job("short", 1, 300, 2, model="vgg16")]
    played = play(specs, cluster(2, gpu_type="V100"), "gandiva", interference=CatalogInterference())
    ((_, packed),) = packs(played)
    assert played.times(pl.Migrate, packed.job) == [played.end("short")]


def test_a_neighbour_that_ends_during_the_trial_ends_the_trial() -> None:
    specs = [job("a", 1, 70, model="lstm"), job("b", 1, 500, 1, model="lstm")]
    played = play(specs, ONE, "gandiva[minibatches=30]", interference=CatalogInterference())
    assert packs(played) and not undone(played)
    assert {played.outcome(j) for j in "ab"} == {"finished"}


def test_a_pair_that_does_no_more_than_by_taking_turns_is_not_kept_and_one_that_does_a_little_more_is() -> None:
    """Together they do 2 ÷ slowdown of what one does alone; what counts is 1 + gain."""
    for slowdown, gain, kept in ((1.85, 0.05, True), (1.95, 0.05, False), (1.95, 0.0, True), (2.05, 0.0, False),
                                 (1.2, 0.6, True), (1.3, 0.6, False)):  # fmt: skip
        played = play(two(), ONE, f"gandiva[gain={gain}]", interference=Pairs(lstm_lstm=slowdown))
        assert counts(played) == (1, int(kept), int(not kept)), (slowdown, gain)
        ((when, _),) = packs(played)
        assert len(undone(played)) == (0 if kept else 1)
        together = [e for t, e in played.of(ev.Measured) if t == when]
        assert {round(e.step_time, 6) for e in together} == {slowdown}  # type: ignore[union-attr]


def test_a_pair_of_which_one_loses_more_than_the_other_wins_is_undone() -> None:
    class Unequal(Pairs):
        def slowdown(self, job: Job, others: Sequence[Job], gpu_type: str) -> float:
            return {"lstm": 1.05, "a3c": 20.0}[str(job.model)] if others else 1.0

    for models in (("lstm", "a3c"), ("a3c", "lstm")):  # whoever of them moves
        played = play(two(a=models[0], b=models[1]), ONE, "gandiva", interference=Unequal())
        assert counts(played) == (1, 0, 1)  # 1 ÷ 1.05 + 1 ÷ 20 is just above 1: not by the gain


def test_after_a_neighbour_left_a_job_is_measured_anew() -> None:
    """A pair is judged by mini-batches done beside each other alone, not by those before or after."""
    seen: dict[float, tuple[int, float | None]] = {}

    def look(scheduler: Scheduler, now: float) -> None:
        view = scheduler.books.view
        if view.job("a").state is State.RUNNING:
            seen[now] = view.minibatches(view.job("a"), now), view.minibatch_time(view.job("a"), now + 50)

    specs = [job("a", 1, 3000, model="lstm"), job("b", 1, 60, 1, model="lstm"), job("later", 2, 1, 900)]
    with watched_steps(look):
        played = play(specs, ONE, "gandiva[minibatches=10,migration=false]", interference=Pairs(lstm_lstm=1.5))
    ((packed, _),) = packs(played)
    left = played.end("b")
    assert left is not None and packed < left
    assert seen[packed] == (0, 1.5)  # from here on beside b
    assert seen[left] == (0, 1.0)  # and from here on alone again: nothing of the slow ones is left in it


def journal(seed: int, noise: int = 0) -> list[object]:
    specs = [job(f"j{i}", 1 + i % 2, 900 + 50 * i, 10 * i, model=("lstm", "a3c", "resnet50")[i % 3]) for i in range(12)]
    played = play(specs, cluster(2, 2, gpu_type="V100"), f"gandiva[seed={seed}]", interference=CatalogInterference(),
                  meter=NoisyMeter(0.3, noise), cost="gandiva")  # fmt: skip
    return list(played.entries)


def test_the_same_seed_gives_the_same_journal_and_another_seed_other_noise() -> None:
    assert journal(1) == journal(1)
    assert journal(1) != journal(2)


@pytest.mark.pure
def test_where_nobody_can_be_packed_nobody_looks_again_before_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[float] = []
    look = Packing._pack_any

    def noted(self: Packing, draft: Draft, *rest: Any) -> bool:
        looked.append(draft.now)
        return look(self, draft, *rest)

    monkeypatch.setattr(Packing, "_pack_any", noted)
    waiting = [job(f"w{i}", 1, 200, 1000 + i, model="vgg16") for i in range(20)]
    play(two(5000, a="vgg16", b="vgg16") + waiting, ONE, "gandiva[height=2]", interference=Pairs())
    assert [time for time in looked if 1000 <= time <= 2000] == [1000]  # by the others the class only waits longer
    assert looked[-1] > 2000  # who comes in the place of one of the two is profiled
