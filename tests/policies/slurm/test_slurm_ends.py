"""What the backfill scheduler foresees from the ends of limits, and that it is kept from pass to pass rightly."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from builders import SilentWorld, Spec, calls, cluster, job, play
from dally.core import events as ev
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.placement import Placement
from dally.core.plan import demand_of
from dally.core.scheduler import Scheduler
from dally.policies.options import make_policy
from dally.policies.slurm.ends import End, Ends, group_end, groups, will_run
from dally.policies.slurm.nodes import Nodes, counted, nodes_of
from dally.policies.slurm.policy import Slurm
from dally.policies.slurm.room import RoomLater
from dally.policies.slurm.settings import Partition, Settings
from dally.simulator.knowledge import Perfect

ALL = Partition("all")
KILLED = 30.0  # seconds after its limit


def on(machine: int, gpus: int, first: int = 0) -> Placement:
    return Placement.of([(machine, ((1 << gpus) - 1) << first)])


def one_after_the_other(nodes: Nodes, masks: list[int], ends: list[End], gpus: int, allowed: int, *,
                        one_by_one: bool) -> tuple[float, object] | None:  # fmt: skip
    """The rule without any index: let jobs on these nodes end, and look each time."""
    room = RoomLater([mask.bit_count() for mask in masks])
    there = [end for end in sorted(ends) if end.nodes & allowed]
    for together in ([[end] for end in there] if one_by_one else groups(there)):
        for end in together:
            room.give(end.gpus)
        chosen = nodes.find(room, demand_of(gpus, None), ALL, allowed, None)
        if chosen is not None:
            last = together[-1].time
            return (last if last > 0 else max(last + KILLED, 1.0)), chosen
    return None


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("any_nodes", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_start_is_foreseen_as_if_jobs_were_let_end_one_after_the_other(seed: int, any_nodes: bool, one_by_one: bool) -> None:
    rng = random.Random(seed)
    topology = cluster(3, 4, 4)
    nodes = Nodes(topology, Settings(), any_nodes=any_nodes)
    ends, masks = Ends(12), [0b1111] * 12
    held: dict[str, tuple[float, Placement]] = {}
    for step in range(60):
        if held and rng.random() < 0.4:
            gone = rng.choice(sorted(held))
            for machine, mask in held.pop(gone)[1].slices:
                masks[machine] |= mask
            ends.put(gone, None, None)
        else:
            machines = rng.sample(range(12), rng.choice([1, 1, 1, 2]))
            slices = [(machine, masks[machine] & rng.choice([0b0011, 0b1111, 0b1000])) for machine in machines]
            placement = Placement.of([(machine, mask) for machine, mask in slices if mask])
            if placement.gpus:
                for machine, mask in placement.slices:
                    masks[machine] &= ~mask
                held[f"j{step}"] = float(rng.choice([-20, 10, 40, 100, 100, 500, 2000, 9000])), placement
                ends.put(f"j{step}", *held[f"j{step}"])
        ends.free_are(masks)
        now = [End(limit, name, counted(placed), nodes_of(placed.slices)) for name, (limit, placed) in held.items()]
        assert ends.all == sorted(now)
        for _ in range(3):
            gpus, allowed = rng.choice([1, 2, 3, 4, 6, 8, 16]), rng.getrandbits(12) | rng.getrandbits(12)
            found = will_run(nodes, ends, demand_of(gpus, None), ALL, allowed, None, 0.0, one_by_one)
            assert found == one_after_the_other(nodes, masks, now, gpus, allowed, one_by_one=one_by_one)
            assert found == will_run(nodes, ends, demand_of(gpus, None), ALL, allowed, None, 0.0, one_by_one)


def test_jobs_that_end_close_together_end_at_once_the_later_the_coarser() -> None:
    assert [group_end(60.0, time) for time in (40.0, 90.0, 91.0, 121.0, 400.0)] == [90.0, 90.0, 120.0, 180.0, 540.0]
    times = (40.0, 89.0, 91.0, 119.0, 400.0)
    together = groups([End(time, f"j{place}", (), 0) for place, time in enumerate(times)])
    assert [[end.time for end in each] for each in together] == [[40.0, 89.0], [91.0, 119.0], [400.0]]


@pytest.mark.pure  # it looks into the policy
@pytest.mark.parametrize("options", ["", "[textbook=easy]", "[preempt=qos,tenant=qos,tiers=high:9/low:1]"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_of_running_jobs_is_what_is_so(monkeypatch: pytest.MonkeyPatch, options: str, seed: int) -> None:
    rng, looked = random.Random(seed), 0
    from dally.policies.slurm.turn import Turn

    kept = Turn.ends

    def checked(self: Turn) -> Ends:
        nonlocal looked
        looked += 1
        ends = kept(self)
        found = []
        for job_id, limit in self.memory.limits.items():
            active = self.view.job(job_id)
            placement = self.started.get(job_id, active.placement if active.placement is not None else active.leaving)
            if placement is not None and job_id not in self.evicted:
                found.append(End(limit, job_id, counted(placement), nodes_of(placement.slices)))
        assert ends.all == sorted(found)
        assert ends.counts == [mask.bit_count() for mask in self.free.masks]
        return ends

    monkeypatch.setattr(Turn, "ends", checked)
    made = [job(f"j{i}", rng.choice([1, 2, 4, 8, 16]), rng.randint(60, 4000), rng.randint(0, 6000)) for i in range(60)]
    specs = [Spec(replace(each.job, tenant=rng.choice(["high", "low"])), each.truth) for each in made]
    play(specs, cluster(2, 2, 8), f"slurm{options}", cost="30")
    assert looked > 30


@pytest.mark.pure
def test_a_pass_costs_as_many_calls_with_a_thousand_running_as_with_sixty_four() -> None:
    counted_calls = []
    for machines in (8, 8, 32, 128):  # the first one fills what is looked up once
        work = {"new": 1e5}
        policy = make_policy("slurm")
        assert isinstance(policy, Slurm)
        scheduler = Scheduler(cluster(1, machines, 8), policy, SilentWorld(), Journal(), Perfect(work))
        running = [Job(f"r{i}", 0.0, 1) for i in range(8 * machines)]
        waiting = [Job(f"w{i}", 1.0, (1, 2, 4, 8)[i % 4]) for i in range(100)]
        work.update({each.id: 1000.0 + 60 * (i % 100) for i, each in enumerate(running)})
        work.update({each.id: 1e5 + i for i, each in enumerate(waiting)})
        scheduler.step(0.0, [ev.Arrived(each) for each in running])
        scheduler.step(100.0, [ev.Arrived(each) for each in waiting])
        scheduler.step(200.0, [ev.TimerDue()])
        scheduler.step(300.0, [ev.Arrived(Job("new", 300.0, 8))])  # all that is new is one more in the queue
        scheduler.step(400.0, [ev.Cancelled("new")])
        counted_calls.append(calls(lambda s=scheduler: s.step(500.0, [ev.Finished("r0")])))  # type: ignore[misc]
    assert max(counted_calls[1:]) < 1.2 * min(counted_calls[1:]), counted_calls




@pytest.mark.pure
def test_an_end_costs_as_many_calls_however_many_wait_where_no_limit_ends_inside_the_window() -> None:
    counted_calls = []
    for waiting in (50, 50, 150, 450):  # the first one fills what is looked up once
        policy = make_policy("slurm")
        scheduler = Scheduler(cluster(2, 4, 8), policy, SilentWorld(), Journal(), Perfect({}))
        scheduler.step(0.0, [ev.Arrived(Job(f"r{i}", 0.0, 1)) for i in range(64)])
        scheduler.step(100.0, [ev.Arrived(Job(f"w{i}", 100.0, (2, 4, 8, 16)[i % 4])) for i in range(waiting)])
        scheduler.step(200.0, [ev.Arrived(Job("small", 200.0, 1))])  # the last of all fits, and nobody before it
        counted_calls.append(calls(lambda s=scheduler: s.step(300.0, [ev.Finished("r0")])))  # type: ignore[misc]
    assert max(counted_calls[1:]) < 1.2 * min(counted_calls[1:]), counted_calls
