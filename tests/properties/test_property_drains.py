"""Machines are drained and come back at any time: what runs there goes on, nothing new is put there, everybody ends."""

from __future__ import annotations

import json
import random

import pytest
from every_policy import NAMES, Case
from test_property_holds import begin

from builders import cluster, job
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Instant, Journal
from dally.core.snapshot import save
from dally.core.states import State
from dally.policies.options import make_policy
from dally.store.recovery import execute

TREE = cluster(2, 2, 2)


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_a_drained_machine_finishes_what_it_has_and_gets_nothing_new(policy: str, seed: int) -> None:
    chance = random.Random(seed)
    jobs = [job(f"j{i}", chance.choice((1, 1, 2, 4)), chance.uniform(5, 200), chance.uniform(0, 300), model="resnet50")
            for i in range(25)]  # fmt: skip
    case = Case(policy, jobs, TREE, "level-penalty", (0, 0), None, 1.0)
    seen: list[Instant] = []
    _, scheduler = begin(case, Journal(seen.append))
    instants = 0

    def between(now: float) -> bool:
        nonlocal instants
        instants += 1
        if chance.random() < 0.3:
            name = chance.choice(TREE.machine_names)
            up = chance.random() < 0.6
            scheduler.step(now, [ev.MachineUp(name) if up else ev.MachineDrained(name)])
        return instants < 20_000

    while True:
        scheduler.run(between)
        assert instants < 20_000, "it goes on for ever"
        if all(active.state is State.FINISHED for active in scheduler.jobs.values()):
            break
        assert scheduler.books.fleet.drained, "jobs wait though every machine is up"
        scheduler.step(scheduler.time, [ev.MachineUp(name) for name in sorted(scheduler.books.fleet.drained)])
    _nothing_new_on_drained(seen)
    _, again = begin(case, Journal())
    assert execute(again, seen, make_policy) == len(seen)
    assert json.dumps(save(again)) == json.dumps(save(scheduler))


def _nothing_new_on_drained(seen: list[Instant]) -> None:
    drained: set[int] = set()
    where: dict[str, pl.Placement] = {}
    for instant in seen:
        for entry in instant.entries():
            if isinstance(entry, ev.MachineDrained):
                drained.add(TREE.machine_by_name[entry.machine])
            elif isinstance(entry, ev.MachineUp):
                drained.discard(TREE.machine_by_name[entry.machine])
            elif isinstance(entry, (pl.Start, pl.Migrate, pl.Resize)):
                assert not drained & {machine for machine, _ in entry.placement.slices}, entry
                where[entry.job] = entry.placement
            elif isinstance(entry, pl.Preempt):
                assert not drained & {machine for machine, _ in where[entry.job].slices}, entry


def test_a_drained_machine_that_fails_loses_its_jobs_all_the_same() -> None:
    case = Case("fifo", [job("a", 2, 100)], TREE, "ideal", (0, 0), None, 1.0)
    _, scheduler = begin(case, Journal())
    scheduler.run(lambda now: False)
    name = TREE.machine_names[scheduler.jobs["a"].placement.slices[0][0]]  # type: ignore[union-attr]
    scheduler.step(1.0, [ev.MachineDrained(name)])
    assert scheduler.jobs["a"].state in (State.STARTING, State.RUNNING)
    scheduler.step(2.0, [ev.MachineDown(name)])
    assert scheduler.jobs["a"].state is State.LOST and name not in scheduler.books.fleet.drained
