"""Dally's rules one by one, as small scenes: what is offered, who takes it, what it says otherwise."""

from __future__ import annotations

import pytest

from builders import RACKS as LEVELS
from builders import SilentWorld, at, cluster
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.reasons import Token
from dally.core.scheduler import Scheduler
from dally.core.topology import MachineSpec, Topology, build_topology
from dally.policies.options import make_policy
from dally.simulator.knowledge import Nothing, Perfect

HOUR = 3600.0
RACKS = cluster(2, 2, 4)  # two racks of two machines of four GPUs: machines 0 and 1, 2 and 3


ACTIONS = (pl.Start, pl.Migrate, pl.Preempt, pl.Extend)


class Scene:
    """A scheduler fed by hand. `free`: GPUs of each machine that are not held by somebody outside the scene."""

    def __init__(self, policy: str, topology: Topology = RACKS, free: tuple[int, ...] = (), *,
                 known: bool = True) -> None:  # fmt: skip
        self.world = SilentWorld()
        self.work: dict[str, float] = {}
        estimates = Perfect(self.work) if known else Nothing()
        self.scheduler = Scheduler(topology, make_policy(policy), self.world, Journal(), estimates)
        self.now = 0.0
        self.held = [topology.machines[m].full_mask >> left << left for m, left in enumerate(free)]
        for machine, mask in enumerate(self.held):
            self.scheduler.books.view.free.take_mask(machine, mask)

    def vacate(self, now: float, machine: int) -> list[pl.Action]:
        """Whoever held the rest of a machine leaves it."""
        self.scheduler.books.view.free.give_mask(machine, self.held[machine])
        return self.ring(now)

    def at(self, now: float, *events: ev.Event) -> list[pl.Action]:
        """What is decided when these events happen, timers and reasons aside."""
        self.now = now
        before = len(self.world.done)
        self.scheduler.step(now, events)
        return [a for a in self.world.done[before:] if isinstance(a, ACTIONS)]

    def arrive(self, now: float, *jobs: tuple[str, int]) -> list[pl.Action]:
        self.work.update({name: 1e6 for name, _ in jobs})
        return self.at(now, *(ev.Arrived(Job(name, now, gpus)) for name, gpus in jobs))

    def name(self, machine: int) -> str:
        return self.scheduler.books.view.topology.machines[machine].name

    def ring(self, now: float) -> list[pl.Action]:
        return self.at(now, ev.TimerDue())

    def wakes(self) -> list[float]:
        return [a.time for a in self.world.done if isinstance(a, pl.WakeAt)]

    def reason(self, job_id: str) -> object:
        return self.scheduler.reason(job_id)

    def runs_at(self, job_id: str, speed: float, exposed: float = 0.0) -> None:
        self.at(self.now, ev.Measured(job_id, speed, 1.0, exposed))


MANUAL = "dally[timers=manual,manual=2/5]"


# --- the five steps -------------------------------------------------------------------------------------------

def test_step_1_a_machine_with_room_is_taken_at_once_and_it_is_the_first_one() -> None:
    scene = Scene(MANUAL, free=(1, 3, 4, 4))
    assert scene.arrive(1.0, ("a", 2)) == [pl.Start("a", at((1, 0b0011)), HOUR)]


@pytest.mark.parametrize(("free", "waited", "takes"), [
    ((2, 2, 0, 0), 1.99, None),  # a rack has room, the machine timer (2 leases) runs
    ((2, 2, 0, 0), 2.0, (0, 1)),  # it has run out: the rack is taken
    ((2, 0, 2, 0), 2.0, None),  # only the cluster has room, the rack timer (5 leases) runs
    ((2, 0, 2, 0), 4.99, None),
    ((2, 0, 2, 0), 5.0, (0, 2)),  # any GPUs
    ((1, 1, 2, 2), 2.0, (2, 3)),  # the first rack with room, not the first rack
    ((1, 1, 1, 0), 9.0, None),  # too few are free anywhere
])  # fmt: skip
def test_steps_3_to_5_the_machine_timer_opens_the_rack_and_the_rack_timer_the_cluster(
    free: tuple[int, ...], waited: float, takes: tuple[int, ...] | None
) -> None:
    scene = Scene(MANUAL, free=free)
    assert scene.arrive(0.0, ("a", 4)) == []
    actions = scene.ring(waited * HOUR)
    if takes is None:
        assert actions == []
    else:
        (start,) = actions
        assert tuple(machine for machine, _ in start.placement.slices) == takes


def test_a_machine_is_preferred_to_a_rack_even_when_the_timer_has_run_out() -> None:
    scene = Scene(MANUAL, free=(2, 2, 0, 0))
    scene.arrive(0.0, ("a", 4))
    (start,) = scene.vacate(3 * HOUR, 3)
    assert start.placement == at((3, 0b1111))


@pytest.mark.parametrize(("gpus", "free", "takes"), [
    (6, (4, 2, 0, 0), True),  # larger than a machine: a rack at once
    (6, (4, 0, 2, 0), False),  # but not the cluster: it waits for a rack
    (12, (4, 4, 4, 0), True),  # larger than a rack: any GPUs at once
])  # fmt: skip
def test_a_job_larger_than_a_machine_or_a_rack_skips_that_wait(
    gpus: int, free: tuple[int, ...], takes: bool
) -> None:
    scene = Scene(MANUAL, free=free)
    assert bool(scene.arrive(0.0, ("a", gpus))) is takes


def test_a_failed_machine_does_not_count_as_one_to_wait_for() -> None:
    specs = [MachineSpec(("rack0", "large"), 8), MachineSpec(("rack0", "m1"), 4), MachineSpec(("rack0", "m2"), 4)]
    scene = Scene("dally[timers=infinite]", build_topology(LEVELS, specs), free=(0, 4, 4))
    assert scene.arrive(0.0, ("a", 6)) == []  # the large machine may become free
    scene.vacate(1.0, 0)
    scene.at(2.0, ev.Interrupted("a", 0.0, "test"), ev.MachineDown(scene.name(0)))
    assert len(scene.scheduler.books.jobs["a"].placement.slices) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(("timers", "starts"), [("none", True), ("infinite", False), ("auto", False)])
def test_no_wait_takes_anything_and_fully_consolidated_nothing_but_a_machine(timers: str, starts: bool) -> None:
    scene = Scene(f"dally[timers={timers}]", free=(2, 0, 2, 0))
    assert bool(scene.arrive(0.0, ("a", 4))) is starts
    late = scene.ring(1000 * HOUR)
    assert bool(late) is (timers == "auto")


def test_who_declines_is_passed_by_the_next_and_nothing_is_reserved() -> None:
    scene = Scene(MANUAL, free=(2, 2, 0, 0))
    (start,) = scene.arrive(0.0, ("a", 4), ("b", 2))
    assert start.job == "b"


def test_one_timer_per_level_with_blocks_and_islands_count_as_the_machine() -> None:
    blocks = cluster(2, 2, 2, 4)  # blocks of racks of machines
    scene = Scene("dally[timers=manual,manual=1/2/6]", blocks, free=(1, 0, 1, 0, 1, 0, 1, 0))
    scene.arrive(0.0, ("a", 2))
    assert scene.ring(1.0 * HOUR) == [] == scene.ring(1.99 * HOUR)
    (start,) = scene.ring(2.0 * HOUR)
    assert [machine for machine, _ in start.placement.slices] == [0, 2]
    scene.arrive(2.5 * HOUR, ("b", 2))
    assert [m for m, _ in scene.ring(4.5 * HOUR)[0].placement.slices] == [4, 6]
    islands = Scene("dally[timers=infinite]", cluster(1, 2, 4, islands=(2, 2)), free=(4, 0))
    (start,) = islands.arrive(2.0, ("c", 3))  # across the islands of one machine: no wait
    assert start.placement == at((0, 0b0111))


# --- timers ---------------------------------------------------------------------------------------------------

def test_the_scheduler_is_woken_exactly_when_a_timer_that_matters_expires() -> None:
    scene = Scene(MANUAL, free=(2, 2, 0, 0))
    scene.arrive(7.0, ("a", 4))
    assert scene.wakes() == [7.0 + 2 * HOUR]
    (start,) = scene.ring(scene.wakes()[-1])
    assert start.job == "a"


def test_where_nothing_is_free_no_timer_wakes_anybody() -> None:
    scene = Scene(MANUAL, free=(1, 1, 1, 0))
    scene.arrive(7.0, ("a", 4))
    assert scene.wakes() == []


def test_the_timer_of_the_tier_that_has_room_is_the_one_that_wakes() -> None:
    scene = Scene(MANUAL, free=(2, 0, 2, 0))
    scene.arrive(0.0, ("a", 4))
    assert scene.wakes() == [5 * HOUR]


def test_a_wait_that_paid_makes_the_next_one_of_that_demand_longer() -> None:
    scene = Scene("dally[timers=auto,floors=0.25/9]", cluster(1, 3, 4), free=(0, 1, 2))
    scene.arrive(0.0, ("a", 4))
    scene.vacate(3 * HOUR, 0)
    assert scene.scheduler.books.jobs["a"].placement == at((0, 0b1111))  # a machine, after three leases
    scene.scheduler.books.view.free.give_mask(1, 0b0010)  # four free, two each of two machines
    scene.arrive(4 * HOUR, ("b", 4), ("c", 3))
    assert scene.reason("b").until == 7 * HOUR  # type: ignore[attr-defined]
    assert scene.reason("c").until == 4.25 * HOUR  # type: ignore[attr-defined]  # another demand: its floor
    assert scene.wakes()[-1] == 4.25 * HOUR


def test_where_tuned_timers_cross_the_rack_timer_alone_opens_the_cluster() -> None:
    scene = Scene("dally[timers=manual,manual=5/2]", free=(2, 2, 0, 0))
    scene.arrive(0.0, ("a", 4))
    assert scene.wakes() == [2 * HOUR]
    assert scene.ring(2 * HOUR)


def test_starvation_starts_anew_when_gpus_are_lost_and_when_they_are_got() -> None:
    scene = Scene(MANUAL, free=(4, 2, 2, 0))
    scene.arrive(0.0, ("a", 4))
    assert scene.scheduler.books.jobs["a"].placement == at((0, 0b1111))
    scene.at(HOUR, ev.Interrupted("a", 0.0, "test"), ev.MachineDown(scene.name(0)))
    assert scene.ring(5.99 * HOUR) == []  # would have been six hours since its arrival
    (start,) = scene.ring(6 * HOUR)  # five leases, the timer of the rack, since it lost its GPUs
    assert [machine for machine, _ in start.placement.slices] == [1, 2]
    assert scene.scheduler.books.jobs["a"].starvation(7 * HOUR) == HOUR


def test_the_reason_names_the_level_what_is_free_there_the_timer_and_the_time_left() -> None:
    scene = Scene(MANUAL, free=(2, 3, 0, 0))
    scene.arrive(0.0, ("a", 4), ("b", 4))
    reason = scene.reason("a")
    assert reason.token is Token.WAITING_FOR_LOCALITY and reason.until == 2 * HOUR  # type: ignore[attr-defined]
    said = reason.sentence  # type: ignore[attr-defined]
    assert "waits for one machine (3 free at most there)" in said
    assert "timer is 2 h with 2 h left" in said
    # those behind it in the same demand share its timers and say so together
    shared = scene.reason("b").sentence  # type: ignore[attr-defined]
    assert "2 h for one machine, 5 h for one rack" in shared


def test_a_reason_that_is_no_longer_true_is_replaced() -> None:
    scene = Scene(MANUAL, free=(2, 2, 0, 0))
    scene.arrive(0.0, ("a", 4))
    scene.arrive(1.0, ("b", 2))  # takes two of the four
    assert scene.reason("a").token is Token.WAITING_FOR_GPUS  # type: ignore[attr-defined]


# --- the order of offers --------------------------------------------------------------------------------------

def test_the_job_slowed_most_by_its_placements_is_offered_first_and_one_that_never_ran_before_it() -> None:
    scene = Scene("dally[timers=none]", cluster(1, 2, 4), free=())
    scene.arrive(0.0, ("fast", 4), ("slow", 4))
    scene.runs_at("fast", 0.9)
    scene.runs_at("slow", 0.3)
    scene.at(100.0, ev.Interrupted("fast", 90.0, "test"), ev.Interrupted("slow", 30.0, "test"), ev.MachineDown(scene.name(0)),
             ev.MachineDown(scene.name(1)))  # fmt: skip
    scene.arrive(200.0, ("new", 4))
    assert [a.job for a in scene.at(300.0, ev.MachineUp(scene.name(0)))] == ["new"]
    assert [a.job for a in scene.at(400.0, ev.MachineUp(scene.name(1)))] == ["slow"]


def test_jobs_that_declare_nothing_are_ordered_by_what_was_measured() -> None:
    scene = Scene("dally[timers=none]", cluster(1, 2, 4), free=(), known=False)
    scene.arrive(0.0, ("quiet", 4), ("chatty", 4))
    scene.runs_at("quiet", 1.0, exposed=0.1)
    scene.runs_at("chatty", 1.0, exposed=0.6)
    scene.at(100.0, ev.Interrupted("quiet", 0.0, "test"), ev.Interrupted("chatty", 0.0, "test"), ev.MachineDown(scene.name(0)),
             ev.MachineDown(scene.name(1)))  # fmt: skip
    assert [a.job for a in scene.at(400.0, ev.MachineUp(scene.name(1)))] == ["chatty"]


def test_among_equals_who_starves_longest_and_then_who_came_first_is_served() -> None:
    scene = Scene("dally[timers=none]", cluster(1, 3, 4), free=(0, 0, 0))
    scene.arrive(0.5, ("c", 4))
    scene.arrive(1.0, ("a", 4), ("b", 4))
    order = [a.job for machine in range(3) for a in scene.vacate(10.0 + machine, machine)]
    assert order == ["c", "a", "b"]


# --- leases ---------------------------------------------------------------------------------------------------

def lease_scene(policy: str, free: tuple[int, ...] = (4, 0, 0, 0)) -> Scene:
    scene = Scene(policy, free=free)
    scene.arrive(0.0, ("held", 4))
    scene.runs_at("held", 1.0)
    return scene


def test_a_lease_that_nobody_else_wants_is_extended_at_no_cost() -> None:
    scene = lease_scene("dally[timers=auto]")
    assert scene.at(HOUR, ev.LeaseEnded("held")) == [pl.Extend("held", HOUR)]
    assert scene.scheduler.books.jobs["held"].preemptions == 0


def test_a_job_before_it_in_the_order_takes_the_gpus_of_an_ended_lease() -> None:
    scene = lease_scene("dally[timers=auto]")
    assert scene.arrive(10.0, ("new", 4)) == []  # the lease protects it
    preempt, start = sorted(scene.at(HOUR, ev.LeaseEnded("held")), key=lambda a: type(a).__name__)
    assert preempt == pl.Preempt("held") and start == pl.Start("new", at((0, 0b1111)), HOUR)


@pytest.mark.parametrize(("speed", "keeps"), [(0.2, True), (0.95, False)])
def test_whether_it_keeps_them_is_decided_by_who_was_slowed_more(speed: float, keeps: bool) -> None:
    scene = lease_scene("dally[timers=auto]", free=(4, 4, 0, 0))
    scene.runs_at("held", speed)
    scene.arrive(0.0, ("other", 4))
    scene.runs_at("other", 0.5)
    scene.at(100.0, ev.Interrupted("other", 50.0, "test"), ev.MachineDown(scene.name(1)))
    actions = scene.at(HOUR, ev.LeaseEnded("held"))
    assert (pl.Extend("held", HOUR) in actions) is keeps
    assert (pl.Preempt("held") in actions) is not keeps


def far_scene(policy: str) -> Scene:
    """`far` sits on two machines of a rack because its timers let it."""
    scene = Scene(policy, free=(2, 2, 0, 0))
    scene.arrive(0.0, ("far", 4))
    if scene.scheduler.books.jobs["far"].placement is None:
        scene.ring(scene.wakes()[-1])
    assert len(scene.scheduler.books.jobs["far"].placement.slices) == 2  # type: ignore[union-attr]
    scene.runs_at("far", 0.5)
    return scene


def test_a_far_placement_is_left_at_the_leases_end_if_its_timer_would_not_take_it_again() -> None:
    scene = far_scene("dally[timers=manual,manual=2/5]")
    assert scene.at(3 * HOUR, ev.LeaseEnded("far")) == [pl.Preempt("far")]  # one lease of starvation, two to wait


def test_and_it_is_extended_if_its_timer_would() -> None:
    scene = far_scene("dally[timers=manual,manual=1/5]")
    assert scene.at(2 * HOUR, ev.LeaseEnded("far")) == [pl.Extend("far", HOUR)]


def test_a_machine_that_is_free_at_the_leases_end_is_moved_to() -> None:
    scene = far_scene("dally[timers=none]")
    scene.vacate(HOUR / 2, 2)
    assert scene.at(HOUR, ev.LeaseEnded("far")) == [pl.Migrate("far", at((2, 0b1111)), HOUR)]


def test_fewer_machines_of_the_same_rack_are_moved_to_as_well() -> None:
    wide = Scene("dally[timers=none]", cluster(1, 4, 4), free=(2, 2, 2, 0))
    wide.arrive(0.0, ("gang", 6))
    wide.runs_at("gang", 0.5)
    wide.vacate(10.0, 3)
    assert wide.at(HOUR, ev.LeaseEnded("gang")) == [pl.Migrate("gang", at((0, 0b0011), (3, 0b1111)), HOUR)]


def test_nobody_is_preempted_before_its_checkpoint_was_loaded() -> None:
    scene = far_scene("dally[timers=none,lease=1m]")
    scene.at(0.0, ev.Measured("far", 0.5, 1.0, 0.0, delay=90.0))
    scene.vacate(10.0, 2)  # nearer, but to move now would mean to load twice
    assert scene.at(90.0, ev.LeaseEnded("far")) == [pl.Extend("far", 60.0)]
    assert scene.at(150.0, ev.LeaseEnded("far")) == [pl.Migrate("far", at((2, 0b1111)), 60.0)]
