"""Grow and shrink, and the age threshold the original lacks."""

from __future__ import annotations

import pytest

from builders import cluster, job, play
from dally.core import plan as pl


def sizes(played: object) -> list[tuple[float, int]]:
    return [(t, e.placement.gpus) for t, e in played.of(pl.Resize)]  # type: ignore[attr-defined]


def test_a_job_that_declares_it_grows_after_gpus_were_idle_for_a_while() -> None:
    grown = play([job("e", 2, 5000, limits=(2, 4))], cluster(2, 4), "gandiva")
    assert sizes(grown) == [(300, 4)]
    assert (grown.end("e") or 0) < 5000
    assert not sizes(play([job("e", 2, 5000)], cluster(2, 4), "gandiva"))  # it did not declare it
    assert not sizes(play([job("e", 2, 5000, limits=(2, 4))], cluster(2, 4), "gandiva[grow_shrink=false]"))
    early = play([job("e", 2, 5000, limits=(2, 4))], cluster(2, 4), "gandiva[grow_after=10]")
    assert sizes(early)[0] == (10, 4)


def test_a_job_grows_inside_its_server_only() -> None:
    grown = play([job("e", 2, 50_000, limits=(2, 16))], cluster(2, 4), "gandiva")
    assert sizes(grown) == [(300, 4)]
    (_, action), *_ = grown.of(pl.Resize)
    assert len(action.placement.slices) == 1  # type: ignore[union-attr]


def test_a_grown_job_shrinks_at_once_when_somebody_needs_its_gpus() -> None:
    specs = [job("e", 2, 5000, limits=(2, 4)), job("n", 2, 100, 1000)]
    played = play(specs, cluster(4), "gandiva")
    assert sizes(played)[:2] == [(300, 4), (1000, 2)]
    assert played.times(pl.Start, "n") == [1000]


def test_a_grown_job_keeps_its_gpus_when_a_newcomer_has_room_elsewhere() -> None:
    specs = [job("e", 2, 5000, limits=(2, 4)), job("n", 2, 100, 1000)]
    played = play(specs, cluster(2, 4), "gandiva")
    assert sizes(played) == [(300, 4)]


def test_it_grows_again_once_the_newcomer_is_gone() -> None:
    specs = [job("e", 2, 9000, limits=(2, 4)), job("n", 2, 100, 1000)]
    played = play(specs, cluster(4), "gandiva")
    assert [size for _, size in sizes(played)] == [4, 2, 4]
    assert sizes(played)[2][0] >= (played.end("n") or 0) + 300


def test_it_grows_although_somebody_starts_elsewhere_and_does_not_while_somebody_waits() -> None:
    elsewhere = play([job("e", 2, 5000, limits=(2, 4)), job("n", 4, 100, 300)], cluster(2, 4), "gandiva")
    assert elsewhere.times(pl.Start, "n") == [300] and sizes(elsewhere) == [(300, 4)]
    waits = play([job("e", 2, 5000, limits=(2, 4)), job("w", 4, 100, 10)], cluster(4), "gandiva")
    assert waits.times(pl.Start, "w") == [5000] and not sizes(waits)


def stream(count: int, each: float) -> list[object]:
    return [job(f"s{i}", 1, each, i * each / 4) for i in range(count)]


def test_a_gang_behind_a_stream_of_small_jobs_starves_without_the_option_and_not_with_it() -> None:
    specs = [*stream(400, 200), job("gang", 4, 100, 50)]
    without = play(specs, cluster(4), "gandiva[packing=false]")  # type: ignore[arg-type]
    assert without.times(pl.Start, "gang")[0] > 15_000
    aged = play(specs, cluster(4), "gandiva[packing=false,starvation=1000]")  # type: ignore[arg-type]
    assert aged.times(pl.Start, "gang")[0] == pytest.approx(1050)
    assert aged.of(pl.Preempt)
    assert {aged.outcome(spec.job.id) for spec in specs} == {"finished"}  # type: ignore[attr-defined]


def test_an_old_job_takes_turns_beyond_the_height_limit_before_anybody_is_preempted() -> None:
    jobs = [job(f"j{i}", 4, 4000, i) for i in range(3)]
    aged = play(jobs, cluster(4), "gandiva[packing=false,height=2,starvation=500]")
    assert aged.times(pl.Start, "j2") == [502]
    assert not aged.of(pl.Preempt)
