"""The properties themselves: each a sentence, and a function that raises where a policy breaks it in a small world."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.journal import Entry, Instant, Journal
from dally.core.policy import Policy
from dally.core.queues import Queue
from dally.core.records import dataclass
from dally.core.scheduler import Scheduler
from dally.core.states import ENDED, State
from dally.core.told import DURATIONS, SPEEDS
from dally.experiments.checks.disturbed import disturbed, kill
from dally.experiments.checks.replay import Replay, must, work_by_journal
from dally.experiments.checks.worlds import MOST_INSTANTS, Played, SmallWorld, watched
from dally.policies.options import make_policy
from dally.simulator.experiment import as_policy
from dally.simulator.sweep import AnyPolicy
from dally.simulator.world import SimulatedWorld
from dally.store.store import Store

Make = Callable[[], Policy]


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    sentence: str
    check: Callable[[Make, int], None]  # the policy, and the seed of the world


def maker(policy: AnyPolicy) -> Make:
    return lambda: as_policy(policy)


def _ends(make: Make, seed: int) -> None:
    SmallWorld.draw(seed).play(make())


def _whole(make: Make, seed: int) -> None:
    world = SmallWorld.draw(seed)
    left = Replay(world.topology, world.jobs, world.play(make()).entries).owner
    must(not left, f"{len(left)} GPUs are held after everybody ended")


def _nobody_forgotten(make: Make, seed: int) -> None:
    world = SmallWorld.draw(seed)
    rows = world.play(make()).run.ledger.rows
    must(len(rows) == len(world.jobs), f"{len(world.jobs)} jobs arrived and {len(rows)} are in the books")
    for row in rows:
        wanted = "finished" if row.job_id in world.runnable else "rejected"
        must(row.outcome == wanted, f"job {row.job_id} is {row.outcome} in the end, and should be {wanted}")


def _work(make: Make, seed: int) -> None:
    world = SmallWorld.draw(seed, faulty=False, late=False)
    played = world.play(make())
    done = work_by_journal(played.entries)
    for job_id in sorted(world.runnable):
        work = played.workload.work[job_id]
        did = done.get(job_id, 0.0)
        must(math.isclose(did, work, rel_tol=1e-6, abs_tol=1e-6), f"job {job_id} did {did:g} of {work:g} s of work")


def _reasons(make: Make, seed: int) -> None:
    def look(scheduler: Scheduler, now: float) -> None:
        for job in scheduler.jobs.values():
            if job.state in (State.WAITING, State.YIELDING, State.REJECTED, State.STARTING):
                reason = scheduler.reason(job.id)
                must(reason is not None and bool(reason.sentence), f"{job.id} waits at {now:g} s and nobody knows why")

    with watched(look):
        SmallWorld.draw(seed).play(make())


def _books(make: Make, seed: int) -> None:
    def look(scheduler: Scheduler, now: float) -> None:
        books, view = scheduler.books, scheduler.view
        held = {placement for job in books.jobs.values() for placement in (job.placement, job.leaving) if placement}
        down = sum(view.topology.machines[machine].gpus for machine in books.fleet.down)
        there = sum(placement.gpus for placement in held) + down + view.free.total
        must(there == view.topology.gpus, f"at {now:g} s {there} GPUs are held, free or down, of {view.topology.gpus}")
        for job in view.waiting:
            must(job.state is State.WAITING, f"{job.id} is in the queue at {now:g} s and is {job.state.value}")

    with watched(look):
        SmallWorld.draw(seed, late=False, faulty=False).play(make())


def _same(make: Make, seed: int) -> None:
    world = SmallWorld.draw(seed)
    _must_be_the_same(world.play(make()), world.play(make()), "run twice")


def _asking(make: Make, seed: int) -> None:
    world = SmallWorld.draw(seed)
    plain = world.play(make())
    with disturbed(seed, asks=2):
        again = world.play(make())
    _must_be_the_same(plain, again, "asked twice before every decision")


def _memory(make: Make, seed: int) -> None:
    world = SmallWorld.draw(seed)
    plain = world.play(make())
    with disturbed(seed, asks=0, rebirths=0.3, make=lambda name: make()):
        again = world.play(make())
    _must_be_the_same(plain, again, "its memory written as text and read by a new object")


def _killed(make: Make, seed: int) -> None:
    world = SmallWorld.draw(seed)

    def begin(store: Store, seen: list[Instant]) -> tuple[SimulatedWorld, Scheduler]:
        return world.begin(make(), Journal(store, seen.append))

    with tempfile.TemporaryDirectory() as folder:
        kill(begin, make().name, world.topology, random.Random(seed), 2, Path(folder), lambda name: make())


def _late(make: Make, seed: int) -> None:
    _finishes(SmallWorld.draw(seed, late=True), make)


def _faults(make: Make, seed: int) -> None:
    _finishes(SmallWorld.draw(seed, faulty=True), make)


def _finishes(world: SmallWorld, make: Make) -> None:
    rows = world.play(make()).run.ledger.rows
    for row in rows:
        must(row.outcome == "finished" or row.job_id not in world.runnable, f"job {row.job_id} is {row.outcome}")


def _taken_over(make: Make, seed: int) -> None:
    world = SmallWorld.draw(seed)
    _, scheduler = world.begin(make_policy("fifo"), Journal())
    decisions, change = 0, random.Random(seed).randint(1, 8)

    def between(now: float) -> bool:
        nonlocal decisions
        decisions += 1
        if decisions == change:
            scheduler.put_in_charge(make(), now)
            scheduler.decide(now)
        return decisions < 30_000

    scheduler.run(between)
    _all_ended(scheduler, "put in charge of a cluster that fifo ran, it")


def _holds(make: Make, seed: int) -> None:
    world, chance = SmallWorld.draw(seed, late=False), random.Random(f"holds {seed}")
    _, scheduler = world.begin(make(), Journal())
    decisions = 0

    def between(now: float) -> bool:
        nonlocal decisions
        decisions += 1
        there = [job.id for job in scheduler.jobs.values() if job.state not in ENDED]
        if there and decisions < 200 and chance.random() < 0.3:
            kind = chance.choice((ev.Held, ev.Held, ev.Released))
            scheduler.step(now, [kind(chance.choice(there)) for _ in range(chance.randint(1, 3))])
        return decisions < MOST_INSTANTS

    scheduler.run(between)
    while held := [job.id for job in scheduler.jobs.values() if job.hold is not None and job.state not in ENDED]:
        scheduler.step(scheduler.time, [ev.Released(job) for job in held])
        scheduler.run(between)
    _all_ended(scheduler, "jobs are held and released, and it")


def _levels(make: Make, seed: int) -> None:
    world, chance = SmallWorld.draw(seed), random.Random(f"levels {seed}")
    names = [None, *(level.name for level in world.topology.levels)]
    world = replace(world, jobs=tuple(replace(job, within=chance.choice(names)) for job in world.jobs))
    within = {job.id: job.within for job in world.jobs}
    played = world.play(make())
    for now, entry in played.entries:
        if isinstance(entry, (pl.Start, pl.Migrate)) and (level := within[entry.job]) is not None:
            inside = entry.placement.level(world.topology) <= world.topology.level_index(level)
            must(inside, f"job {entry.job} must be inside one {level}, and is not at {now:g} s")
    for row in played.run.ledger.rows:
        wanted = "finished" if row.job_id in world.runnable else "rejected"
        must(row.outcome == wanted, f"job {row.job_id}, which must be inside one {within[row.job_id]}, is "
             f"{row.outcome}, and should be {wanted}")  # fmt: skip


def _shapes(make: Make, seed: int) -> None:
    world, chance = SmallWorld.draw(seed), random.Random(f"shapes {seed}")
    world = world.with_sets(("even", "odd"))

    def shaped(job: Job) -> Job:
        even = [nodes for nodes in (1, 1, 2, 3, 4) if job.gpus % nodes == 0]
        level = chance.choice((None, None, *(level.name for level in world.topology.levels)))
        return replace(job, nodes=chance.choice((None, *even)), within=level,
                       among=chance.choice((None, "even", "odd", "even|odd", "even&odd")))  # fmt: skip

    world = replace(world, jobs=tuple(map(shaped, world.jobs)))
    jobs = {job.id: job for job in world.jobs}
    played = world.play(make())
    for now, entry in played.entries:
        if isinstance(entry, (pl.Start, pl.Migrate, pl.Resize)):
            job, slices = jobs[entry.job], entry.placement.slices
            held = {mask.bit_count() for _, mask in slices}
            must(job.nodes is None or (len(slices) == job.nodes and len(held) == 1),
                 f"job {job.id} of {job.gpus} GPUs on {job.nodes} machines is on {len(slices)} at {now:g} s")
            names = {name for machine, _ in slices for name in world.topology.machines[machine].sets}
            must(job.among in (None, "even|odd") or names == {job.among},
                 f"job {job.id}, which must be among {job.among}, is on {', '.join(sorted(names))} at {now:g} s")
    for row in played.run.ledger.rows:
        wanted = "finished" if row.job_id in world.runnable else "rejected"
        must(row.outcome == wanted, f"job {row.job_id} is {row.outcome}, and should be {wanted}")


def _queues(make: Make, seed: int) -> None:
    world, chance = SmallWorld.draw(seed), random.Random(f"queues {seed}")
    world = replace(world, jobs=tuple(replace(job, tenant=chance.choice(("a", "b", None)), user=chance.choice("uv"))
                                      for job in world.jobs))  # fmt: skip
    most = max((job.gpus for job in world.jobs), default=1)  # so that a limit turns nobody away
    queues = (Queue("a", chance.choice((0.5, 3.0)), most), Queue("b", 1.0, None, most, chance.choice((1, 3))))
    _, scheduler = world.begin(make(), Journal(), queues)
    decisions = 0

    def between(now: float) -> bool:
        nonlocal decisions
        decisions += 1
        for name, limit in (("a", most), ("b", None)):
            holding = [job for job in scheduler.books.holding.values() if job.job.tenant == name]
            used = sum(job.gpus for job in holding)
            must(limit is None or used <= limit, f"queue {name} has {used} GPUs at {now:g} s and may have {limit}")
        return decisions < MOST_INSTANTS

    scheduler.run(between)
    _all_ended(scheduler, "behind queues it")


def _all_ended(scheduler: Scheduler, who: str) -> None:
    for job in scheduler.jobs.values():
        must(job.state in (State.FINISHED, State.REJECTED), f"{who} leaves job {job.id} {job.state.value}")


def _uses(make: Make, seed: int) -> None:
    world, uses = SmallWorld.draw(seed), make().uses
    plain = world.play(make(), knowledge="declared")
    if DURATIONS not in uses:
        for knowledge in ("none", "noisy=1"):
            again = world.play(make(), knowledge=knowledge)
            must(_decisions(plain) == _decisions(again), "told other durations it decides otherwise, and does not say "
                 "that it uses them (uses = frozenset({DURATIONS}))")  # fmt: skip
    if SPEEDS not in uses:
        again = world.play(make(), knowledge="declared", speeds=False)
        must(_decisions(plain) == _decisions(again), "told no speeds it decides otherwise, and does not say that it "
             "uses them (uses = frozenset({SPEEDS}))")  # fmt: skip


def _decisions(played: Played) -> list[tuple[float, Entry]]:
    """What was done and when; what jobs said of themselves and why they waited are left out."""
    return [(now, entry) for now, entry in played.entries if not isinstance(entry, (ev.Arrived, pl.Wait))]


def _must_be_the_same(plain: Played, again: Played, how: str) -> None:
    for number, (one, other) in enumerate(zip(plain.instants, again.instants, strict=False)):
        must(one == other, f"{how}, it decides otherwise at {one.time:g} s (decision {number + 1:,})")
    must(len(plain.instants) == len(again.instants), f"{how}, the run has another length")


PROPERTIES = (
    Property("ends", "plans keep the rules, nothing raises, and every run ends", _ends),
    Property("gpus", "no GPU is given twice, and gangs are whole", _whole),
    Property("nobody-forgotten", "every job that fits the cluster finishes, and the others are turned away",
             _nobody_forgotten),
    Property("work", "work is conserved across preemption: nobody does too much or too little", _work),
    Property("reasons", "whoever waits has a reason, at every instant", _reasons),
    Property("books", "the scheduler's books balance, at every instant", _books),
    Property("same", "the same seed gives the same journal", _same),
    Property("asking", "asking changes nothing: plans may be thrown away", _asking),
    Property("memory", "what it remembers survives as text, and is all it needs to go on", _memory),
    Property("killed", "killed at any byte and resumed, it comes to the same end", _killed),
    Property("late-starts", "starts may take a while and fail: everybody finishes", _late),
    Property("faults", "machines and jobs fail and come back: everybody finishes", _faults),
    Property("taken-over", "put in charge of a cluster in operation, it finishes what is there", _taken_over),
    Property("holds", "jobs are held and released at any time: everybody finishes", _holds),
    Property("levels", "who must be inside one domain is, and finishes where one is large enough", _levels),
    Property("shapes", "who must be on so many machines, or on those of a set, is, and finishes where there are such",
             _shapes),
    Property("queues", "behind queues with weights and limits everybody finishes, and limits hold", _queues),
    Property("knowledge", "it decides by what it says it uses of what it is told, and by nothing more", _uses),
)  # fmt: skip
