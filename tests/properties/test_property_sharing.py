"""Whatever is sliced, packed, unpacked, moved, grown, shrunk and preempted in whatever order: work is conserved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from every_policy import Replay, work_by_journal
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from builders import BUSY, Flat, Pairwise, Timed, cluster, into, job, trace
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.journal import Entry, Journal
from dally.core.ledger import Ledger
from dally.core.placement import Placement
from dally.core.policy import View
from dally.core.scheduler import Scheduler
from dally.core.sharing import Groups, Share
from dally.core.states import State
from dally.network.registry import make_network
from dally.policies.placing import place_best_fit
from dally.simulator.slices import SharingRules
from dally.simulator.workload import prepare
from dally.simulator.world import SimulatedWorld, WorldRules

TOPOLOGY = cluster(2, 2, 2)
SPECS = [job(f"j{i}", gpus, 40.0 + 37.0 * i, limits=(1, 4) if i % 2 else None)
         for i, gpus in enumerate((1, 1, 1, 2, 2, 2, 4))]  # fmt: skip
Build = Callable[[View, float], Sequence[pl.Action]]


class Puppet(Timed):
    """Does what it is told at the time it is told; in the end, starts whoever fits."""

    def __init__(self) -> None:
        super().__init__({})
        self.when = 0.0
        self.build: Build | None = None
        self.free_run = False

    def plan(self, view: View, memory: object, now: float) -> pl.Plan:
        plan: list[pl.Action] = []
        if self.free_run:
            for waiting in view.waiting.ordered(now):
                placement = place_best_fit(view.free, waiting.demand)
                if placement is not None:
                    plan.append(pl.Start(waiting.id, placement))
                    break
            if plan and len(view.waiting) > 1:
                plan.append(pl.WakeAt(now + 0.25))
        elif self.build is not None:
            if now >= self.when:
                plan, self.build = list(self.build(view, now)), None
            else:
                plan.append(pl.WakeAt(self.when))
        return plan + [pl.Wait(demand, BUSY) for demand in view.waiting.buckets]


class Sharing(RuleBasedStateMachine):
    @initialize(cost=st.sampled_from([(0.0, 0.0), (0.0, 2.0), (1.5, 2.5)]), network=st.sampled_from(["ideal", "level-penalty"]))
    def set_up(self, cost: tuple[float, float], network: str) -> None:
        made = trace(SPECS)
        model = make_network(network, TOPOLOGY)
        self.workload = prepare(made, TOPOLOGY, model)
        rules = SharingRules(Pairwise(1.3), ["gpu"] * len(TOPOLOGY.machines))
        self.world = SimulatedWorld(self.workload, TOPOLOGY, model, WorldRules(Flat(*cost), sharing=rules))
        self.entries: list[tuple[float, Entry]] = []
        self.ledger = Ledger(TOPOLOGY)
        self.puppet = Puppet()
        self.scheduler = Scheduler(TOPOLOGY, self.puppet, self.world,
                                   Journal(self.ledger, into(self.entries)),
                                   interference=Pairwise(1.3, most=3))  # fmt: skip
        self.now = 0.0
        self.do(0.0, lambda view, now: [])

    def do(self, wait: float, build: Build) -> None:
        """Let the time pass, then hand in the plan."""
        self.puppet.when, self.puppet.build = self.now + wait, build
        # a plan is asked for only when something happens: ask for the timer by hand
        self.world.carry_out(self.now, [pl.WakeAt(self.puppet.when)])
        while self.puppet.build is not None and (happened := self.world.next_events()) is not None:
            self.now = happened[0]
            self.scheduler.step(*happened)

    waits = st.floats(0.0, 40.0)
    picks = st.integers(0, 10**6)

    @rule(wait=waits, pick=picks, share=st.booleans())
    def start_on_free_gpus(self, wait: float, pick: int, share: bool) -> None:
        def build(view: View, now: float) -> list[pl.Action]:
            chosen = choose(view.waiting.ordered(now), pick)
            placement = place_best_fit(view.free, chosen.demand) if chosen else None
            return [pl.Start(chosen.id, placement, None, Share() if share else None)] if chosen and placement else []

        self.do(wait, build)

    @rule(wait=waits, pick=picks, other=picks, weight=st.sampled_from([0.5, 1.0, 3.0]), pack=st.booleans(),
          quantum=st.sampled_from([5.0, 60.0]))  # fmt: skip
    def start_on_shared_gpus(self, wait: float, pick: int, other: int, weight: float, pack: bool, quantum: float) -> None:
        def build(view: View, now: float) -> list[pl.Action]:
            chosen = choose(view.waiting.ordered(now), pick)
            groups = [g for g in view.groups if chosen and g.placement.gpus == chosen.gpus]
            if not chosen or not groups:
                return []
            group = groups[other % len(groups)]
            beside = next((turn[0] for turn in group.turns if len(turn) < 3), None) if pack else None
            return [pl.Start(chosen.id, group.placement, None, Share(weight, beside, quantum))]

        self.do(wait, build)

    @rule(wait=waits, pick=picks, other=picks, weight=st.sampled_from([0.5, 1.0, 3.0]))
    def reshare(self, wait: float, pick: int, other: int, weight: float) -> None:
        def build(view: View, now: float) -> list[pl.Action]:
            chosen = choose(running(self.scheduler), pick)
            if not chosen:
                return []
            group = view.groups.of(chosen.id)
            targets = [None, *(turn[0] for turn in group.turns if chosen.id not in turn and len(turn) < 3)]
            return [pl.Reshare(chosen.id, Share(weight, targets[other % len(targets)]))]

        self.do(wait, build)

    @rule(wait=waits, pick=picks, other=picks, join=st.booleans())
    def migrate(self, wait: float, pick: int, other: int, join: bool) -> None:
        def build(view: View, now: float) -> list[pl.Action]:
            chosen = choose(running(self.scheduler), pick)
            if not chosen or not chosen.placement:
                return []
            size = chosen.placement.gpus
            if join:
                groups = [g for g in view.groups if g.placement.gpus == size and chosen.id not in g]
                return [pl.Migrate(chosen.id, groups[other % len(groups)].placement, None, Share())] if groups else []
            placement = place_best_fit(view.free, pl.Demand(size, None))
            return [pl.Migrate(chosen.id, placement)] if placement else []

        self.do(wait, build)

    @rule(wait=waits, pick=picks, size=st.integers(1, 4))
    def resize(self, wait: float, pick: int, size: int) -> None:
        def build(view: View, now: float) -> list[pl.Action]:
            chosen = choose([j for j in running(self.scheduler) if j.job.elastic], pick)
            if not chosen or not chosen.placement:
                return []
            with view.free.trial() as free:
                if len(view.groups.of(chosen.id)) == 1:
                    free.give(chosen.placement)
                placement = place_best_fit(free, pl.Demand(size, None))
            return [pl.Resize(chosen.id, placement)] if placement else []

        self.do(wait, build)

    @rule(wait=waits, pick=picks)
    def preempt(self, wait: float, pick: int) -> None:
        def build(view: View, now: float) -> list[pl.Action]:
            chosen = choose(running(self.scheduler), pick)
            return [pl.Preempt(chosen.id)] if chosen else []

        self.do(wait, build)

    @rule(wait=waits)
    def let_time_pass(self, wait: float) -> None:
        self.do(wait, lambda view, now: [])

    @invariant()
    def no_gpu_is_in_two_groups_or_lost(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        masks = [machine.full_mask for machine in TOPOLOGY.machines]
        held: list[Placement] = [group.placement for group in self.scheduler.books.view.groups]
        held += [j.leaving for j in self.scheduler.books.jobs.values() if j.leaving]
        for placement in held:
            for machine, mask in placement.slices:
                assert masks[machine] & mask == mask, "a GPU is in two groups"
                masks[machine] ^= mask
        assert masks == self.scheduler.books.view.free.masks
        for group in self.scheduler.books.view.groups:
            assert sum(group.fraction(turn[0]) for turn in group.turns) == pytest.approx(1.0)
            assert sorted(group.members) == sorted(job_id for turn in group.turns for job_id in turn)

    @invariant()
    def the_world_and_the_scheduler_agree(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        slices = self.world._slices
        if slices is not None:
            assert turns(slices.groups) == turns(self.scheduler.books.view.groups)
        for job_id, run in self.world._running.items():
            begin = max(run.since, run.progress_from)
            truth = run.done + run.going * max(0.0, self.now - begin)
            assert self.scheduler.books.jobs[job_id].work_at(self.now) == pytest.approx(truth, abs=1e-6)

    @invariant()
    def everybody_runs_as_fast_as_his_gpus_and_his_share_of_them_allow(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for active in running(self.scheduler):
            assert active.placement is not None
            group = self.scheduler.books.view.groups.of(active.id)
            shares = {member: group.share(member) for member in group.members}
            weights = [max(shares[member].weight for member in turn) for turn in group.turns]
            mine = next(i for i, turn in enumerate(group.turns) if active.id in turn)
            quantum = min(share.quantum for share in shares.values())
            fraction = weights[mine] * quantum / (sum(weights) * quantum + len(weights) * 0.1) if len(weights) > 1 else 1
            step = self.world.network.step_time(active.job, active.placement, 0.0).seconds
            alone = self.workload.reference[active.id] / step * active.placement.gpus / active.gpus
            assert active.speed == pytest.approx(alone * fraction / 1.3 ** (len(group.turns[mine]) - 1))

    @invariant()
    def the_ledgers_gpu_seconds_are_the_gpus_held(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        assert booked(self.ledger, self.now) == pytest.approx(held(self.ledger, self.now), abs=1e-6)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.puppet.free_run = True
        self.world.carry_out(self.now, [pl.WakeAt(self.now + 0.5)])
        self.scheduler.run()
        assert [row.outcome for row in self.ledger.rows] == ["finished"] * len(SPECS)
        done = work_by_journal(self.entries)
        for job_id, work in self.workload.work.items():
            assert done[job_id] == pytest.approx(work, rel=1e-6)
        assert not Replay(TOPOLOGY, SPECS, self.entries).owner
        assert self.scheduler.books.view.free.total == TOPOLOGY.gpus
        assert not len(self.scheduler.books.view.groups)
        end = max(now for now, _ in self.entries)
        assert booked(self.ledger, end) == pytest.approx(held(self.ledger, end), abs=1e-6)
        for row in self.ledger.rows:
            assert row.suspended <= row.running + 1e-9


def choose(jobs: Sequence[ActiveJob], pick: int) -> ActiveJob | None:
    return jobs[pick % len(jobs)] if jobs else None


def running(scheduler: Scheduler) -> list[ActiveJob]:
    return [j for j in scheduler.books.jobs.values() if j.state is State.RUNNING]


def turns(groups: Groups) -> dict[Placement, list[list[str]]]:
    return {group.placement: group.turns for group in groups}


def booked(ledger: Ledger, now: float) -> float:
    """GPU-seconds of all jobs up to now, the present stretch included."""
    return sum(row.gpu_seconds + (row._gpus * (now - row._since) if row._placement is not None else 0.0)
               for row in ledger.rows)  # fmt: skip


def held(ledger: Ledger, now: float) -> float:
    """The area under the curve of busy GPUs."""
    ends = [*ledger.time[1:], now]
    return sum(busy * (end - begin) for begin, end, busy in zip(ledger.time, ends, ledger.busy, strict=True))


NO_SHRINK = (Phase.explicit, Phase.generate)
TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=30, stateful_step_count=30, deadline=None, phases=NO_SHRINK)
