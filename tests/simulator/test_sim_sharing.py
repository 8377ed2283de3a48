"""Shared and resized GPUs in the simulated world: jobs end exactly when arithmetic says."""

from __future__ import annotations

import pytest

from builders import Flat, Pairwise, Timed, at, cluster, job, outages, play
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.placement import Placement
from dally.core.policy import View
from dally.core.sharing import Share
from dally.core.topology import Level, regular
from dally.simulator.costs import Gandiva
from dally.simulator.meter import NoisyMeter

HERE, THERE = at((0, 0b1)), at((1, 0b1))
SWITCH = 60.0 / 60.1  # of the time is left to work where a quantum of 60 s costs a switch of 0.1 s
EVEN = Share()
SLOW_LINKS = regular((1, 2, 4), (Level("machine"), Level("rack", bandwidth=1e9), Level("cluster")))


def shared(*names: str, where: Placement = HERE, **shares: Share) -> list[pl.Action]:
    return [pl.Start(name, where, None, shares.get(name, EVEN)) for name in names]


def test_two_equal_jobs_in_turns_end_together_after_twice_their_time_and_the_switches() -> None:
    played = play([job("a", 1, 600), job("b", 1, 600)], cluster(1, 1), Timed({0.0: shared("a", "b")}))
    assert played.end("a") == played.end("b") == pytest.approx(1200 / SWITCH)


def test_weights_divide_the_time_and_a_departure_speeds_up_those_who_stay() -> None:
    plan = shared("a", "b", "c", a=Share(3.0), b=Share(2.0), c=Share(1.0))
    played = play([job(name, 1, 600) for name in "abc"], cluster(1, 1), Timed({0.0: plan}))
    round_ = 6 * 60 / (6 * 60 + 3 * 0.1)
    first = 600 / (round_ / 2)
    assert played.end("a") == pytest.approx(first)
    left_b, left_c = 600 - first * round_ / 3, 600 - first * round_ / 6
    pair = 3 * 60 / (3 * 60 + 2 * 0.1)
    second = first + left_b / (pair * 2 / 3)
    assert played.end("b") == pytest.approx(second)
    assert played.end("c") == pytest.approx(second + left_c - (second - first) * pair / 3)


def test_packed_jobs_run_at_once_slower_by_their_interference() -> None:
    plan = shared("a", "b", b=Share(beside="a"))
    played = play([job("a", 1, 100), job("b", 1, 200)], cluster(1, 1), Timed({0.0: plan}),
                  interference=Pairwise(1.19))  # fmt: skip
    assert played.end("a") == pytest.approx(119.0)
    assert played.end("b") == pytest.approx(119.0 + 100.0)


def test_a_packed_pair_takes_turns_with_a_third_job_as_one() -> None:
    plan = shared("a", "b", "c", b=Share(beside="a"))
    played = play([job("a", 1, 600), job("b", 1, 600), job("c", 1, 300)], cluster(1, 1), Timed({0.0: plan}),
                  interference=Pairwise(1.5))  # fmt: skip
    third = 600 / SWITCH
    assert played.end("c") == pytest.approx(third)
    assert played.end("a") == pytest.approx(third + (600 - 300 / 1.5) * 1.5)


def test_packing_and_unpacking_in_place_loses_nothing() -> None:
    agenda = {0.0: shared("a", "b"), 100.0: [pl.Reshare("b", Share(beside="a"))], 200.0: [pl.Reshare("b", EVEN)]}
    played = play([job("a", 1, 300), job("b", 1, 300)], cluster(1, 1), Timed(agenda), interference=Pairwise(1.25))
    left = 300 - 50 * SWITCH - 100 / 1.25
    assert played.end("a") == played.end("b") == pytest.approx(200 + 2 * left / SWITCH)


def test_the_member_that_is_preempted_gives_up_its_share_and_the_others_keep_the_gpus() -> None:
    agenda = {0.0: shared("a", "b"), 100.0: [pl.Preempt("a")], 150.0: [pl.Start("a", THERE)]}
    played = play([job("a", 1, 300), job("b", 1, 300)], cluster(2, 1), Timed(agenda))
    assert played.end("b") == pytest.approx(100 + 300 - 50 * SWITCH)
    assert played.end("a") == pytest.approx(150 + 300 - 50 * SWITCH)
    assert played.run.ledger.row("a").preemptions == 1


def test_the_last_to_leave_frees_the_gpus_for_the_next() -> None:
    jobs = [job("a", 1, 100), job("b", 1, 300), job("c", 1, 10)]
    agenda = {0.0: shared("a", "b"), 500.0: [pl.Start("c", HERE)]}
    played = play(jobs, cluster(1, 1), Timed(agenda))
    assert played.end("c") == 510.0


def test_a_job_migrates_out_of_a_group_into_another() -> None:
    jobs = [job("a", 1, 300), job("b", 1, 300), job("c", 1, 900)]
    agenda = {0.0: [*shared("a", "b"), pl.Start("c", THERE)], 100.0: [pl.Migrate("b", THERE, None, EVEN)]}
    played = play(jobs, cluster(2, 1), Timed(agenda), cost=Flat(4.0, 6.0))
    assert played.end("a") == pytest.approx(100 + 300 - 50 * SWITCH)
    assert played.end("b") == pytest.approx(110 + (300 - 50 * SWITCH) / (SWITCH / 2))


def test_a_migration_at_gandivas_price_takes_a_second_and_a_half_for_one_gpu_and_35_for_eight() -> None:
    for gpus, price in ((1, 1.5), (8, 35.0)):
        mask = (1 << gpus) - 1
        agenda = {0.0: [pl.Start("a", at((0, mask)))], 50.0: [pl.Migrate("a", at((1, mask)))]}
        played = play([job("a", gpus, 100)], cluster(2, 8), Timed(agenda), cost=Gandiva())
        assert played.end("a") == pytest.approx(100 + price)


def test_a_grown_job_works_in_proportion_to_its_gpus_and_a_shrunken_one_too() -> None:
    agenda = {0.0: [pl.Start("a", at((0, 0b11)))], 100.0: [pl.Resize("a", at((0, 0b1111)))],
              200.0: [pl.Resize("a", at((0, 0b1)))]}  # fmt: skip
    played = play([job("a", 2, 600, limits=(1, 4))], cluster(1, 4), Timed(agenda))
    assert played.end("a") == pytest.approx(200 + (600 - 100 - 200) * 2)
    row = played.run.ledger.row("a")
    assert (row.resizes, row.migrations) == (2, 0)


def test_a_resize_costs_what_a_migration_costs() -> None:
    agenda = {0.0: [pl.Start("a", at((0, 0b1)))], 100.0: [pl.Resize("a", at((0, 0b11)))]}
    played = play([job("a", 1, 200, limits=(1, 2))], cluster(1, 2), Timed(agenda), cost=Flat(3.0, 5.0))
    assert played.end("a") == pytest.approx(100 + 8 + 50)


def test_a_machine_that_goes_down_takes_all_members_and_what_none_of_them_saved() -> None:
    topology = cluster(2, 1)
    agenda = {0.0: shared("a", "b"), 101.0: [pl.Start("a", THERE), pl.Start("b", THERE, None, EVEN)]}
    agenda[101.0] = shared("a", "b", where=THERE)
    played = play([job("a", 1, 300), job("b", 1, 300)], topology, Timed(agenda),
                  faults=outages(topology, {0: [(100, None)]}, checkpoint_interval=60.0))  # fmt: skip
    assert played.times(ev.Interrupted) == [100.0, 100.0]
    assert played.end("a") == pytest.approx(101 + (300 - 30 * SWITCH) * 2 / SWITCH)
    assert played.run.lost_work_gpu_seconds == pytest.approx(2 * 20 * SWITCH)


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_quantum_by_quantum_ends_at_most_a_round_apart_from_fluid_shares(names: str) -> None:
    jobs = [job(name, 1, 1000 + 130 * number) for number, name in enumerate(names)]
    fluid, exact = (play(jobs, cluster(1, 1), Timed({0.0: shared(*names)}), quanta=quanta) for quanta in (False, True))
    for name in names:
        a, b = fluid.end(name), exact.end(name)
        assert a is not None and b is not None
        assert abs(a - b) <= len(names) * 60.1
    assert fluid.run.events < exact.run.events + 50  # and the scheduler is not woken for turns


def test_in_quanta_the_first_job_has_the_gpus_for_whole_turns() -> None:
    played = play([job("a", 1, 90), job("b", 1, 90)], cluster(1, 1), Timed({0.0: shared("a", "b")}), quanta=True)
    assert played.end("a") == pytest.approx(60 + 0.1 + 60 + 0.1 + 30)
    assert played.end("b") == pytest.approx(150.2 + 0.1 + 30)


def test_in_quanta_a_turn_ends_at_a_step_boundary() -> None:
    share = Share(quantum=2.5)
    played = play([job("a", 1, 3), job("b", 1, 3)], cluster(1, 1), Timed({0.0: shared("a", "b", a=share, b=share)}),
                  quanta=True)  # fmt: skip
    assert played.end("a") == 3.0  # steps take a second: 2.5 s of quantum are three whole ones


def test_what_is_measured_is_the_time_per_minibatch_while_the_job_has_its_gpus() -> None:
    seen: list[tuple[float, int, float | None]] = []

    def look(view: View, now: float) -> None:
        if "a" in view.groups:
            a = view.job("a")
            seen.append((now, view.minibatches(a, now), view.minibatch_time(a, now)))

    agenda = {0.0: shared("a", "b"), 0.5: [], 10.0: [], 100.0: [pl.Reshare("b", Share(beside="a"))], 200.0: []}
    play([job("a", 1, 150), job("b", 1, 900)], cluster(1, 1), Timed(agenda, look), interference=Pairwise(1.25))
    assert seen[:3] == [(0.5, 0, None), (10.0, 5, 1.0), (100.0, 50, 1.0)]
    assert seen[3] == (200.0, 80, pytest.approx(1.25))


def test_a_measurement_is_off_by_little_the_same_every_time_and_another_for_another_seed() -> None:
    a = job("a").job
    meter = NoisyMeter(0.1, seed=1)
    reads = [meter.read(a, 2.0, 100, seed) for seed in range(200)]
    assert reads == [NoisyMeter(0.1, seed=1).read(a, 2.0, 100, seed) for seed in range(200)]
    assert len(set(reads)) == 200
    spread = (sum((read / 2.0 - 1) ** 2 for read in reads) / 200) ** 0.5
    assert spread == pytest.approx(0.01, rel=0.2)  # sigma over the square root of 100 mini-batches
    assert NoisyMeter(0.1, seed=2).read(a, 2.0, 100, 0) != reads[0]
    assert NoisyMeter(0.0).read(a, 2.0, 1, 0) == 2.0


@pytest.mark.parametrize("quanta", [False, True])
def test_members_of_one_group_never_meet_on_the_links(quanta: bool) -> None:
    wide = at((0, 0b11), (1, 0b11))
    jobs = [job(name, 4, 600, model="vgg16") for name in "ab"]
    plan = shared("a", "b", where=wide)
    played = play(jobs, SLOW_LINKS, Timed({0.0: plan}), network="analytic", quanta=quanta)
    assert all(entry.neighbours == 1.0 for _, entry in played.of(ev.Measured))  # type: ignore[union-attr]


def test_a_neighbour_slows_down_all_turns_of_a_group_alike() -> None:
    wide, other = at((0, 0b0011), (1, 0b0011)), at((0, 0b1100), (1, 0b1100))
    jobs = [job(name, 4, 600, model="vgg16") for name in "abc"]
    agenda = {0.0: shared("a", "b", where=wide), 100.0: [pl.Start("c", other)]}
    played = play(jobs, SLOW_LINKS, Timed(agenda), network="analytic")
    late = {entry.job: entry for now, entry in played.of(ev.Measured) if now == 100.0}  # type: ignore[union-attr]
    assert late["a"].neighbours == late["b"].neighbours > 1.0  # type: ignore[union-attr]
    assert late.keys() == {"a", "b", "c"}


def test_fluid_and_quanta_differ_by_at_most_a_round_and_one_per_cent_with_neighbours_arrivals_and_departures() -> None:
    wide, other = at((0, 0b0011), (1, 0b0011)), at((0, 0b1100), (1, 0b1100))
    jobs = [job(name, 4, 3000 + 500 * i, model="vgg16") for i, name in enumerate("abcd")]
    agenda = {0.0: shared("a", "b", where=wide), 500.0: shared("c", "d", where=other)}
    fluid, exact = (play(jobs, SLOW_LINKS, Timed(agenda), network="analytic", quanta=quanta)
                    for quanta in (False, True))  # fmt: skip
    for name in "abcd":
        a, b = fluid.end(name), exact.end(name)
        assert a is not None and b is not None and abs(a - b) <= 2 * 60.1 + 0.01 * a


@pytest.mark.parametrize("quanta", [False, True])
@pytest.mark.parametrize("fault", [75.0, 150.0, 290.3])
def test_what_survives_a_fault_is_what_had_been_done_at_the_last_checkpoint_in_whoever_s_turn_it_was(
    fault: float, quanta: bool
) -> None:
    def left(when: float, interval: float) -> dict[str, float]:
        """Work of each job that is left after a fault; with an interval of 0 that is all it has done."""
        topology = cluster(1, 1)
        specs = [job(name, 1, 1000) for name in "ab"]
        played = play(specs, topology, Timed({0.0: shared("a", "b"), 5000.0: shared("a", "b")}), quanta=quanta,
                      faults=outages(topology, {0: [(when, when + 1)]}, checkpoint_interval=interval))  # fmt: skip
        return {e.job: e.work_done for _, e in played.of(ev.Interrupted)}  # type: ignore[union-attr]

    # in their own turns, in the other's, and in the tenth of a second in which the GPUs change hands
    for interval in (7.3, 30.0, 44.0, 60.05, 70.0, 71.0, 100.0, 120.05, 120.15, 130.0):
        last = fault // interval * interval
        expected = left(last, 0.0) if last else dict.fromkeys("ab", 0.0)
        assert left(fault, interval) == pytest.approx(expected), (interval, last)
