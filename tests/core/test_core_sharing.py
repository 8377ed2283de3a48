"""Shares of GPUs in the core: groups and turns, and each rule a plan that shares or resizes must keep."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from builders import Pairwise, Scripted, SilentWorld, at, cluster, mixed_cluster
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import PlanError
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.ledger import Lane, Ledger
from dally.core.policy import PolicyBase
from dally.core.scheduler import Scheduler
from dally.core.sharing import Groups, Share
from dally.core.states import State
from dally.core.topology import Topology

HERE, THERE, BOTH = at((0, 0b01)), at((0, 0b10)), at((0, 0b11))
EVEN = Share()


def arrivals(*names: str, gpus: int = 1) -> list[ev.Event]:
    return [ev.Arrived(Job(name, 0.0, gpus)) for name in names]


def desk(*plans: Sequence[pl.Action], topology: Topology | None = None, most: int = 99, shares: bool = True,
         ledger: Ledger | None = None) -> Scheduler:  # fmt: skip
    policy = Scripted(*plans)
    policy.shares = shares  # type: ignore[attr-defined]
    sinks = [ledger] if ledger else []
    return Scheduler(topology or cluster(1, 2), policy, SilentWorld(), Journal(*sinks),
                     interference=Pairwise(most=most))  # type: ignore[arg-type]  # fmt: skip


def refused(scheduler: Scheduler, events: Sequence[ev.Event], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        scheduler.step(0.0, events)


def test_turns_are_served_by_weight_and_a_packed_turn_weighs_as_much_as_its_heaviest_member() -> None:
    groups = Groups()
    assert groups.enter("a", HERE, Share(1.0))
    assert not groups.enter("b", HERE, Share(3.0))
    assert not groups.enter("c", HERE, Share(2.0, beside="a"))
    group = groups.at(HERE)
    assert group is not None and group.turns == [["a", "c"], ["b"]]
    assert [group.fraction(job) for job in "abc"] == [0.4, 0.6, 0.4]
    assert group.others("a") == ["c"] and group.others("b") == []


def test_who_is_unpacked_is_served_right_after_those_it_was_packed_with() -> None:
    groups = Groups()
    for name, beside in (("a", None), ("b", "a"), ("c", None)):
        groups.enter(name, HERE, Share(beside=beside))
    groups.reshare("a", EVEN)
    assert groups.of("a").turns == [["b"], ["a"], ["c"]]
    groups.reshare("a", Share(beside="c"))
    assert groups.of("a").turns == [["b"], ["c", "a"]]


def test_a_group_is_forgotten_with_its_last_member_and_found_by_machine_till_then() -> None:
    groups = Groups()
    groups.enter("a", HERE)
    groups.enter("b", HERE, EVEN)
    groups.enter("c", at((1, 0b1)))
    assert groups.residents(0) == ["a", "b"] and [group.placement for group in groups.on(1)] == [at((1, 0b1))]
    assert groups.leave("a") and not groups.leave("b")
    assert groups.at(HERE) is None and list(groups.on(0)) == [] and "b" not in groups and len(groups) == 1


def test_the_shortest_quantum_anybody_wants_holds_for_all() -> None:
    groups = Groups()
    groups.enter("a", HERE, Share(quantum=60.0))
    groups.enter("b", HERE, Share(quantum=10.0))
    assert groups.of("a").quantum == 10.0


def test_gpus_are_taken_once_per_group_and_given_back_by_the_last() -> None:
    scheduler = desk([pl.Start("a", HERE), pl.Start("b", HERE, None, EVEN)])
    scheduler.step(0.0, arrivals("a", "b"))
    assert scheduler.free.total == 1
    scheduler.step(10.0, [ev.Finished("a")])
    assert scheduler.free.total == 1
    scheduler.step(20.0, [ev.Finished("b")])
    assert scheduler.free.total == 2


def test_service_is_counted_by_share_and_holding_is_not() -> None:
    scheduler = desk([pl.Start("a", HERE), pl.Start("b", HERE, None, Share(3.0))])
    scheduler.step(0.0, arrivals("a", "b"))
    a, b = scheduler.jobs["a"], scheduler.jobs["b"]
    assert (a.attained_at(100.0), b.attained_at(100.0), a.executed_at(100.0)) == (25.0, 75.0, 100.0)
    scheduler.step(100.0, [ev.Finished("b")])
    assert (a.fraction, a.attained_at(110.0)) == (1.0, 35.0)


def test_packed_jobs_are_both_served_in_full() -> None:
    scheduler = desk([pl.Start("a", HERE), pl.Start("b", HERE, None, Share(beside="a"))])
    scheduler.step(0.0, arrivals("a", "b"))
    assert [scheduler.jobs[name].attained_at(10.0) for name in "ab"] == [10.0, 10.0]


def test_a_preempted_member_keeps_no_gpus_while_it_saves() -> None:
    scheduler = desk([pl.Start("a", HERE), pl.Start("b", HERE, None, EVEN)], [pl.Preempt("a")])
    scheduler.step(0.0, arrivals("a", "b"))
    scheduler.step(5.0, [])
    assert scheduler.jobs["a"].state is State.YIELDING and scheduler.free.masks == [0b10]
    scheduler.step(6.0, [ev.Yielded("a")])
    assert scheduler.free.masks == [0b10] and scheduler.jobs["a"].state is State.WAITING


def test_two_jobs_swap_groups_in_one_plan() -> None:
    start = [pl.Start("a", HERE), pl.Start("b", HERE, None, EVEN), pl.Start("c", THERE), pl.Start("d", THERE, None, EVEN)]
    scheduler = desk(start, [pl.Migrate("a", THERE, None, EVEN), pl.Migrate("c", HERE, None, Share(beside="b"))])
    scheduler.step(0.0, arrivals("a", "b", "c", "d"))
    scheduler.step(1.0, [])
    groups = scheduler.view.groups
    assert groups.of("a").turns == [["d"], ["a"]] and groups.of("c").turns == [["b", "c"]]
    assert scheduler.free.total == 0


def test_a_share_of_a_policy_that_does_not_say_it_shares_is_refused() -> None:
    refused(desk([pl.Start("a", HERE, None, EVEN)], shares=False), arrivals("a"), r"does not declare that it shares")


def test_gpus_of_others_are_refused_without_a_share() -> None:
    refused(desk([pl.Start("a", HERE), pl.Start("b", HERE)]), arrivals("a", "b"), "'b': GPUs 1 of machine m0 are not all")


def test_only_the_very_same_gpus_can_be_shared() -> None:
    plan = [pl.Start("a", HERE), pl.Start("big", BOTH, None, EVEN)]
    events = [*arrivals("a"), *arrivals("big", gpus=2)]
    refused(desk(plan), events, "only jobs that hold the very same GPUs can share them")


@pytest.mark.parametrize(("share", "rule"), [
    (Share(0.0), "weight of a share must be above 0"), (Share(-1.0), "weight"), (Share(float("nan")), "weight"),
    (Share(float("inf")), "weight"), (Share(quantum=0.0), "quantum of a share must be above 0"),
    (Share(beside="c"), "beside 'c', which does not hold the very same GPUs"),
])  # fmt: skip
def test_a_share_that_makes_no_sense_is_refused(share: Share, rule: str) -> None:
    refused(desk([pl.Start("a", HERE), pl.Start("b", HERE, None, share)]), arrivals("a", "b"), rule)


def test_nobody_is_packed_on_free_gpus() -> None:
    refused(desk([pl.Start("a", HERE, None, Share(beside="b"))]), arrivals("a"), "nobody else holds these very GPUs")


def test_memory_that_does_not_fit_is_refused_with_the_reason() -> None:
    plan = [pl.Start("a", HERE), pl.Start("b", HERE, None, Share(beside="a"))]
    refused(desk(plan, most=1), arrivals("a", "b"), "'b': cannot be packed beside a: only 1 fit on a gpu")
    assert desk(most=1).view.fits([Job("a", 0.0, 1)], "gpu") is None
    assert desk(most=1).view.fits([Job("a", 0.0, 1), Job("b", 0.0, 1)], "gpu") == "only 1 fit on a gpu"


def test_memory_is_asked_for_when_a_job_is_packed_in_place_too() -> None:
    scheduler = desk([pl.Start("a", HERE), pl.Start("b", HERE, None, EVEN)], [pl.Reshare("b", Share(beside="a"))], most=1)
    scheduler.step(0.0, arrivals("a", "b"))
    with pytest.raises(PlanError, match="only 1 fit"):
        scheduler.step(1.0, [])


def test_only_a_running_job_has_a_share_to_change() -> None:
    refused(desk([pl.Reshare("a", EVEN)]), arrivals("a"), "is waiting; only a job that has GPUs has a share")


def test_a_job_is_not_packed_beside_itself() -> None:
    refused(desk([pl.Start("a", HERE), pl.Reshare("a", Share(beside="a"))]), arrivals("a"), "beside itself")


def test_a_rigid_job_cannot_be_resized() -> None:
    scheduler = desk([pl.Start("a", HERE)], [pl.Resize("a", BOTH)])
    scheduler.step(0.0, arrivals("a"))
    with pytest.raises(PlanError, match="declares no min_gpus or max_gpus"):
        scheduler.step(1.0, [])


@pytest.mark.parametrize(("to", "fine"), [(at((0, 0b1)), True), (at((0, 0b1111)), True), (at((0, 0b11111)), False)])
def test_an_elastic_job_is_resized_within_its_limits(to: object, fine: bool) -> None:
    topology = cluster(1, 8)
    scheduler = desk([pl.Start("a", BOTH)], [pl.Resize("a", to)], topology=topology)  # type: ignore[arg-type]
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2, min_gpus=1, max_gpus=4))])
    if fine:
        scheduler.step(1.0, [])
        assert scheduler.free.total == 8 - to.gpus  # type: ignore[attr-defined]
        assert scheduler.jobs["a"].attained_at(11.0) == 2 + 10 * to.gpus  # type: ignore[attr-defined]
    else:
        with pytest.raises(PlanError, match="was given 5 GPUs; it can run on 1 to 4"):
            scheduler.step(1.0, [])


def test_a_resized_job_is_moved_with_all_its_gpus_and_started_again_as_the_gang_it_declared() -> None:
    topology = cluster(2, 4)
    grown = [pl.Resize("a", at((0, 0b1111)))]
    elastic = [ev.Arrived(Job("a", 0.0, 2, min_gpus=1, max_gpus=4))]
    scheduler = desk([pl.Start("a", BOTH)], grown, [pl.Migrate("a", at((1, 0b1111)))], topology=topology)
    scheduler.step(0.0, elastic)
    scheduler.step(1.0, [])
    scheduler.step(2.0, [])
    assert scheduler.jobs["a"].placement == at((1, 0b1111))
    refused(desk([pl.Start("a", at((0, 0b1)))], topology=topology), elastic, "a gang of 2 was given 1")


def test_a_shared_gang_may_not_mix_gpu_types_either() -> None:
    plan = [pl.Start("a", at((0, 1), (1, 1)), None, EVEN)]
    refused(desk(plan, topology=mixed_cluster(v100=(2,), a100=(2,))), arrivals("a", gpus=2), "may not mix GPU types")


def test_a_policy_that_says_nothing_of_sharing_does_not_share() -> None:
    class Plain(PolicyBase):
        name = "plain"

        def plan(self, view: object, memory: object, now: float) -> pl.Plan:
            return [pl.Start("a", HERE)]

    scheduler = Scheduler(cluster(1, 2), Plain(), SilentWorld(), Journal())
    scheduler.step(0.0, arrivals("a"))
    assert scheduler.jobs["a"].state is State.RUNNING and not scheduler.books.residents.shares


def test_the_ledger_counts_shared_gpus_once_and_tells_held_from_served_time() -> None:
    ledger = Ledger(cluster(1, 2))
    plans = [[pl.Start("a", HERE), pl.Start("b", HERE, None, Share(3.0))], [pl.Reshare("b", Share(beside="a"))], []]
    scheduler = desk(*plans, ledger=ledger)
    scheduler.step(0.0, arrivals("a", "b"))
    scheduler.step(100.0, [])
    scheduler.step(200.0, [ev.Finished("a"), ev.Finished("b")])
    a, b = ledger.row("a"), ledger.row("b")
    assert list(ledger.busy) == [1, 0]
    assert (a.running, a.suspended, a.gpu_seconds) == (200.0, 75.0, 25.0 + 50.0)
    assert (b.running, b.suspended, b.gpu_seconds) == (200.0, 25.0, 75.0 + 50.0)
    assert (b.packs, a.packs, b.unpacks) == (1, 0, 0)
    assert a.suspensions == pytest.approx(100 / 240)  # a round is one quantum and three
    lanes = [(segment.row, segment.start, segment.end, segment.lane) for segment in ledger.segments]
    assert lanes[:2] == [(0, 0.0, 100.0, Lane(0, 2)), (1, 0.0, 100.0, Lane(1, 2))]
    assert ledger.deepest_pack == 2


def test_the_time_to_the_hundredth_minibatch_counts_turns_and_loading() -> None:
    ledger = Ledger(cluster(1, 2))
    scheduler = desk([pl.Start("a", HERE), pl.Start("b", HERE, None, EVEN)], ledger=ledger)
    scheduler.step(0.0, arrivals("a", "b"))
    scheduler.step(0.0, [ev.Measured("a", 0.5, 2.0, 0.0, 30.0)])
    scheduler.step(1000.0, [ev.Finished("a")])
    assert ledger.row("a").first_minibatches == pytest.approx(30 + 100 * 2.0 * 2)

