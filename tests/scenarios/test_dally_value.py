"""Waiting by its value: far GPUs are taken exactly when the nearer ones would come too late to pay."""

from __future__ import annotations

import math

import pytest

from builders import Flat, Played, cluster, job, play, seeded_trace
from dally.core.plan import Migrate, Preempt, Start, Wait
from dally.core.reasons import Token
from dally.core.topology import Topology
from dally.simulator.knowledge import Noisy, Nothing, Perfect

HOUR = 3600.0
VALUE = "dally[timers=value]"
SLOW = "level-penalty[rack=2,cluster=4]"  # two machines of a rack: twice as long
TWO: Topology = cluster(1, 2, 4)


def start(played: Played, job_id: str) -> tuple[float, int]:
    time, action = played.of(Start, job_id)[0]
    return time, len(action.placement.slices)  # type: ignore[union-attr]


@pytest.mark.parametrize(("opens", "needs", "starts", "machines"), [
    (50, 100, 50, 1),  # near GPUs in 50 s save 100 s: it waits
    (99, 100, 99, 1),
    (101, 100, 0, 2),  # they would come after the saving is gone: it takes what there is
    (50, 40, 0, 2),
])  # fmt: skip
def test_a_gang_waits_while_nearer_gpus_come_sooner_than_they_save(
    opens: float, needs: float, starts: float, machines: int
) -> None:
    # one GPU is free on each of two machines when the gang arrives; one machine opens at `opens`
    played = play([job("x", 3, opens), job("y", 3, 900), job("g", 2, needs, 1e-9)], TWO, VALUE, network=SLOW)
    assert start(played, "g") == (pytest.approx(starts, abs=1e-6), machines)


def test_where_the_forecast_is_wrong_it_gives_in_when_the_saving_is_used_up() -> None:
    class Optimistic:
        """Everybody is believed to be through in a minute; speeds are known."""

        def work(self, _job: object) -> float:
            return 100.0 if _job.id == "g" else 60.0  # type: ignore[attr-defined]

        def speed(self, _job: object, placement: object) -> float:
            return 1.0 if len(placement.slices) == 1 else 0.5  # type: ignore[attr-defined]

    played = play([job("x", 3, 5000), job("y", 3, 5000), job("g", 2, 100, 1.0)], TWO, VALUE, network=SLOW,
                  estimates=Optimistic())  # fmt: skip
    assert start(played, "g") == (101.0, 2)  # 200 s far, 100 s near: a wait of 100 s at most
    waits = [entry for _, entry in played.of(Wait) if entry.who == "g"]  # type: ignore[union-attr]
    reason = waits[0].reason  # type: ignore[union-attr]
    assert reason.token is Token.WAITING_FOR_LOCALITY and reason.until == 101.0
    assert "worth a wait of 100.0 s" in reason.sentence


def test_who_was_told_that_it_declines_hears_when_there_is_nothing_to_decline_any_more() -> None:
    # one GPU each of two machines is free until `small` takes one of them
    specs = [job("x", 3, 50), job("y", 3, 900), job("g", 2, 100, 1e-9), job("small", 1, 60, 10)]
    played = play(specs, TWO, VALUE, network=SLOW)
    said = [(time, entry.reason) for time, entry in played.of(Wait) if entry.who == "g"]  # type: ignore[union-attr]
    assert [(time, reason.token) for time, reason in said] == [
        (1e-9, Token.WAITING_FOR_LOCALITY), (10.0, Token.WAITING_FOR_GPUS)]  # fmt: skip
    assert said[0][1].evidence == ("machine", "rack", 50.0) and said[0][1].until is not None


def test_a_queue_behind_it_makes_a_slow_placement_dearer() -> None:
    specs = [job("x", 3, 150), job("y", 3, 900), job("g", 2, 100, 1.0)]
    assert start(play(specs, TWO, VALUE, network=SLOW), "g")[0] == 1.0
    queue = [job(f"q{i}", 4, 5000, 0.5) for i in range(8)]  # saving (1 + 2 · 8 / 8) · 100 s
    assert start(play([*specs, *queue], TWO, VALUE, network=SLOW), "g") == (150.0, 1)


def test_small_jobs_are_packed_so_that_a_machine_stays_whole() -> None:
    specs = [job("a", 1, 500), job("b", 2, 500, 1), job("c", 1, 500, 2), job("gang", 4, 100, 3)]
    played = play(specs, TWO, VALUE, network=SLOW)
    assert start(played, "gang") == (3.0, 1)


@pytest.mark.parametrize(("waiting", "preempted"), [(100.0, True), (4.0 * HOUR, False)])
def test_gpus_are_taken_after_the_lease_and_only_by_who_has_far_less_left(waiting: float, preempted: bool) -> None:
    played = play([job("long", 4, 5 * HOUR), job("w", 4, waiting, 10)], cluster(1, 1, 4), VALUE)
    assert played.times(Preempt, "long") == ([600.0] if preempted else [])


def test_who_sits_far_moves_near_when_that_saves_more_than_it_costs() -> None:
    played = play([job("x", 3, 2 * HOUR), job("y", 3, 90 * HOUR), job("g", 2, HOUR, 1)], TWO, VALUE, network=SLOW)
    assert start(played, "g") == (1.0, 2)  # near GPUs would come after two hours and save one
    longer = [job("x", 3, 2 * HOUR), job("y", 3, 90 * HOUR), job("g", 2, 1.9 * HOUR, 1)]
    long = play(longer, TWO, VALUE, network=SLOW)
    assert long.times(Migrate, "g") == [2 * HOUR]


def test_without_declarations_least_attained_service_goes_first_and_everybody_ends() -> None:
    trace = seeded_trace(3, jobs=80, sizes=(1, 2, 4, 8), span=3000, longest=3000)
    played = play(trace, cluster(2, 2, 4), "dally[timers=value,lease=5m]", network=SLOW, cost=Flat(1, 2),
                  estimates=Nothing())  # fmt: skip
    assert {row.outcome for row in played.run.ledger.rows} == {"finished"}
    served = play([job("old", 4, 3 * HOUR), job("new", 4, HOUR, 10)], cluster(1, 1, 4), VALUE, estimates=Nothing())
    assert served.times(Preempt, "old")[0] == 600.0  # it has had ten minutes, the newcomer nothing


def test_a_job_that_would_outlast_all_others_is_not_left_to_the_end() -> None:
    # 8 GPUs; short jobs for 60 h of them all and one job of 40 h on one GPU: shortest first would end after 97 h
    specs = [job("pole", 1, 40 * HOUR), *(job(f"s{i}", 1, 2 * HOUR) for i in range(240))]
    played = play(specs, cluster(1, 1, 8), VALUE)
    assert 60 * HOUR <= (played.run.ledger.last_end or 0.0) < 75 * HOUR
    begun = played.times(Start, "pole")[0]
    assert begun > 10 * HOUR  # but not before it has to be


def test_noise_in_declarations_is_noticed_and_discounted() -> None:
    trace = seeded_trace(5, jobs=200, sizes=(1, 1, 2, 4), span=10_000, longest=4000)
    work = {one.id: truth.duration or 0.0 for one, truth in zip(trace.jobs, trace.truths, strict=True)}
    jct = {}
    for name, estimates in (("exact", Perfect(work)), ("noisy", Noisy(work, 0.7, 1)), ("none", Nothing())):
        rows = play(trace, cluster(1, 2, 4), VALUE, estimates=estimates).run.ledger.rows
        jct[name] = math.fsum(row.jct or 0.0 for row in rows)
    assert jct["exact"] < jct["noisy"] < jct["none"], jct


def test_a_large_gang_is_not_starved_by_a_stream_of_small_jobs() -> None:
    stream = [job(f"s{i}", 1, 700, 20.0 * i) for i in range(1500)]  # 35 GPUs' worth on 32
    played = play([job("gang", 8, 1000, 5000.0), *stream], cluster(2, 4, 4), "dally[timers=value,lease=10m]")
    begun = played.times(Start, "gang")[0]
    # nobody passes it once it has waited ten times its length; then the others' leases run out
    assert 5000 < begun <= 5000 + 10 * 1000 + 700


def test_the_value_of_waiting_beats_waiting_by_timers_where_distance_costs_much() -> None:
    trace = seeded_trace(11, jobs=150, sizes=(1, 2, 4, 4, 8), span=20_000, longest=6000)
    jct = {}
    for timers in ("value", "auto", "none", "infinite"):
        played = play(trace, cluster(2, 2, 4), f"dally[timers={timers},lease=10m]", network=SLOW, cost="30s")
        jct[timers] = math.fsum(row.jct or 0.0 for row in played.run.ledger.rows)
    assert jct["value"] == min(jct.values()), jct


@pytest.mark.parametrize(("policy", "narrow", "first"), [
    ("dally", 1, "wide"),  # one is in the way of one other: the shorter goes first
    ("dally", 8, "n0"),  # many wait: the wide one would put off all of them
    ("dally[breadth=0]", 8, "wide"),  # least time first, whatever it does to others
])  # fmt: skip
def test_gpus_count_in_the_order_only_where_many_wait(policy: str, narrow: int, first: str) -> None:
    # wide needs 60 s of 16 GPUs, the others 70 s of four; somebody has all 16 until 100 s
    specs = [job("all", 16, 100), job("wide", 16, 60, 1), *(job(f"n{i}", 4, 70, 1) for i in range(narrow))]
    played = play(specs, cluster(1, 2, 8), policy)
    other = "wide" if first == "n0" else "n0"
    assert played.times(Start, first)[0] == 100.0 < played.times(Start, other)[0]


def test_what_orders_jobs_is_the_time_they_need_near_and_not_their_work() -> None:
    class Told:
        """Half the work, at a quarter of the speed."""

        def work(self, asked: object) -> float:
            return {"all": 100.0, "slow": 500.0, "fast": 1000.0}[asked.id]  # type: ignore[attr-defined]

        def speed(self, asked: object, placement: object) -> float:
            return 0.25 if asked.id == "slow" else 1.0  # type: ignore[attr-defined]

    specs = [job("all", 4, 100), job("slow", 4, 500, 1), job("fast", 4, 1000, 1)]
    played = play(specs, cluster(1, 1, 4), VALUE, estimates=Told())
    assert played.times(Start, "fast")[0] == 100.0 < played.times(Start, "slow")[0]


@pytest.mark.parametrize(("opens", "starts", "machines"), [(90.0, 90.0, 2), (4000.0, 1.0, 6)])
def test_a_gang_that_no_machine_holds_waits_for_as_few_machines_as_can_be(
    opens: float, starts: float, machines: int
) -> None:
    class Told:
        """On every machine more than two a step takes as long again."""

        def work(self, asked: object) -> float:
            return float({"g": 100.0, "x0": opens, "x1": opens}.get(asked.id, 5000.0))  # type: ignore[attr-defined]

        def speed(self, asked: object, placement: object) -> float:
            return 1.0 / max(1, len(placement.slices) - 1)  # type: ignore[attr-defined]

    # one GPU is free on each of six machines; two of them open
    busy = [job(f"x{i}", 3, opens if i < 2 else 5000) for i in range(6)]
    played = play([*busy, job("g", 6, 100, 1)], cluster(1, 6, 4), "dally[preempt=never]", estimates=Told())
    assert start(played, "g") == (starts, machines)
