"""Placement by profile in small scenes: skewed gangs take the fewest machines or wait, the others what there is."""

from __future__ import annotations

from builders import Played, at, cluster, job, mixed_cluster, outages, play
from dally.core.plan import Preempt, Start, Wait
from dally.core.reasons import Token

# two machines of four GPUs with three busy each: two GPUs are free, on different machines
BUSY = [job("x", 3, 50, model="resnet50"), job("y", 3, 80, model="resnet50")]


def machines(played: Played, job_id: str) -> int:
    (_, start), *_ = played.of(Start, job_id)
    return len(start.placement.slices)  # type: ignore[union-attr]


def said(played: Played, job_id: str) -> list[tuple[Token, str]]:
    return [(entry.reason.token, entry.reason.sentence) for _, entry in played.of(Wait)  # type: ignore[union-attr]
            if entry.who == job_id]  # type: ignore[union-attr]  # fmt: skip


def test_a_skewed_gang_waits_for_one_machine_and_says_why() -> None:
    played = play([*BUSY, job("g", 2, 10, 5, model="vgg16")], cluster(2, 4), "tiresias")
    assert played.times(Start, "g") == [50.0]
    assert machines(played, "g") == 1
    token, sentence = said(played, "g")[0]
    assert token is Token.WAITING_FOR_LOCALITY
    assert "74%" in sentence and "PACKLIMIT 40%" in sentence and "2 free GPUs on one machine" in sentence


def test_a_gang_that_is_not_skewed_takes_what_there_is() -> None:
    played = play([*BUSY, job("g", 2, 10, 5, model="resnet50")], cluster(2, 4), "tiresias")
    assert played.times(Start, "g") == [5.0]
    assert machines(played, "g") == 2


def test_an_unknown_model_is_not_skewed_and_its_reason_says_so() -> None:
    played = play([*BUSY, job("g", 3, 10, 5, model="mystery-net")], cluster(2, 4), "tiresias")
    token, sentence = said(played, "g")[0]
    assert token is Token.WAITING_FOR_GPUS
    assert "mystery-net is not in the catalog and counts as not skewed" in sentence


def test_strict_holds_every_gang_to_the_fewest_machines() -> None:
    played = play([*BUSY, job("g", 2, 10, 5, model="resnet50")], cluster(2, 4), "tiresias[placement=strict]")
    assert played.times(Start, "g") == [50.0]


def test_a_gang_larger_than_a_machine_waits_for_as_few_as_can_hold_it() -> None:
    specs = [job("x", 1, 50), job("y", 1, 60), job("g", 8, 10, 5, model="vgg16")]
    played = play(specs, cluster(4, 4), "tiresias[placement=strict]")
    assert machines(played, "g") == 2
    # best fit put x and y on one machine, so three whole machines were free at once
    assert played.times(Start, "g") == [5.0]


def test_others_pass_a_skewed_gang_that_waits() -> None:
    specs = [*BUSY, job("g", 2, 10, 5, model="vgg16"), job("h", 2, 10, 6, model="vgg16"), job("i", 2, 10, 7)]
    played = play(specs, cluster(2, 4), "tiresias")
    assert played.times(Start, "i") == [7.0]
    assert played.times(Start, "g") == played.times(Start, "h") == [50.0]


def test_a_skewed_gang_clears_the_machine_with_the_fewest_victims() -> None:
    # all are in the last queue at 60; machine 0 has one free GPU, machine 1 none
    specs = [job("a", 1, 500), job("b", 2, 500), job("c", 2, 500), job("d", 2, 500),
             job("g", 2, 10, 60, model="vgg16")]  # fmt: skip
    played = play(specs, cluster(2, 4), "tiresias[thresholds=20]")
    assert played.times(Start, "g") == [60.0]
    assert machines(played, "g") == 1
    assert len(played.of(Preempt)) == 1


def test_nobody_is_preempted_for_a_place_that_would_not_be_near_enough() -> None:
    # `front` holds two GPUs of each machine and is before g in the order; `back` is behind but frees only two
    specs = [job("front", 2, 60, model="resnet50"), job("front2", 2, 60, model="resnet50"),
             job("back", 2, 500, 1, model="resnet50"), job("g", 4, 10, 20, model="vgg16")]  # fmt: skip
    played = play(specs, cluster(2, 4), "tiresias[thresholds=1000,placement=strict]")
    assert not played.of(Preempt)


def test_the_dally_authors_version_keeps_listed_models_moving_and_lets_others_wait() -> None:
    waiting = play([*BUSY, job("g", 2, 10, 5, model="MobileNetV3")], cluster(2, 4), "tiresias[variant=dally-paper]")
    moving = play([*BUSY, job("g", 2, 10, 5, model="BERT")], cluster(2, 4), "tiresias[variant=dally-paper]")
    assert waiting.times(Start, "g") == [50.0]
    assert moving.times(Start, "g") == [5.0]


def test_what_jobs_show_on_several_machines_changes_who_is_consolidated() -> None:
    # eight GPUs cross machines: the network makes them three times slower, which resnet50's skew does not tell
    teacher = job("teacher", 8, 20, model="resnet50")
    late = [job("x", 3, 900, 100), job("y", 3, 900, 100), job("g", 2, 10, 110, model="resnet50")]
    network = "level-penalty[cluster=3]"
    taught = play([teacher, *late], cluster(2, 4), "tiresias", network=network)
    untaught = play([teacher, *late], cluster(2, 4), "tiresias[learn=false]", network=network)
    assert machines(untaught, "g") == 2
    assert machines(taught, "g") == 1


def test_a_gang_that_waits_is_judged_anew_when_the_limit_moves() -> None:
    # when the teacher ends, p and q leave one GPU free on each machine; g was not to be consolidated when it came
    specs = [job("teacher", 8, 20, model="resnet50"), job("p", 3, 50, 1), job("q", 3, 80, 2),
             job("g", 2, 10, 3, model="resnet50")]  # fmt: skip
    network = "level-penalty[cluster=3]"
    taught = play(specs, cluster(2, 4), "tiresias", network=network)
    untaught = play(specs, cluster(2, 4), "tiresias[learn=false]", network=network)
    assert (untaught.times(Start, "g"), machines(untaught, "g")) == ([20.0], 2)
    assert (taught.times(Start, "g"), machines(taught, "g")) == ([70.0], 1)
    assert "not above PACKLIMIT" in said(taught, "g")[0][1] and ", above PACKLIMIT" in said(taught, "g")[-1][1]


def test_when_the_only_large_machine_fails_the_fewest_machines_are_counted_anew() -> None:
    topology = mixed_cluster(v100=(8, 4, 4))
    played = play([job("g", 8, 10, 20, model="vgg16")], topology, "tiresias",
                  faults=outages(topology, {0: [(5, None)]}))  # fmt: skip
    assert played.times(Start, "g") == [20.0]
    assert machines(played, "g") == 2


def test_gpu_types_are_never_mixed_and_victims_are_of_the_type_wanted() -> None:
    topology = mixed_cluster(v100=(4,), a100=(4,))
    specs = [job("v", 4, 500, gpu_type="v100"), job("a", 4, 500, gpu_type="a100"),
             job("g", 2, 10, 60, gpu_type="a100", model="vgg16")]  # fmt: skip
    played = play(specs, topology, "tiresias[thresholds=20]")
    assert not played.of(Preempt, "v")
    assert played.times(Preempt, "a") == [60.0]
    assert played.of(Start, "g")[0][1].placement == at((1, 0b11))  # type: ignore[union-attr]
