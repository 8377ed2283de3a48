"""Others take GPUs and give them back at any time: nobody is put on what they have, and everybody ends."""

from __future__ import annotations

import json
import random

import pytest
from every_policy import NAMES, Case
from test_property_holds import begin

from builders import cluster, job
from dally.core import events as ev
from dally.core.journal import Instant, Journal
from dally.core.journal_text import JournalText
from dally.core.scheduler import Scheduler
from dally.core.snapshot import load, save
from dally.core.states import State
from dally.policies.options import make_policy
from dally.store.recovery import execute

TREE = cluster(2, 2, 4)


def _nobody_has_what_others_have(scheduler: Scheduler) -> None:
    fleet, view = scheduler.books.fleet, scheduler.books.view
    for name, mask in fleet.masks.items():
        machine = view.topology.machine_by_name[name]
        assert mask.bit_count() <= fleet.withheld[name] and not view.free.masks[machine] & mask
        for active in scheduler.books.holding.values():
            for held in (active.placement, active.leaving):
                assert held is None or not dict(held.slices).get(machine, 0) & mask, active.id
    for name, count in fleet.withheld.items():  # what is missing is in somebody's hands, and not free
        machine = view.topology.machine_by_name[name]
        assert fleet.masks.get(name, 0).bit_count() == count or not view.free.masks[machine]


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_gpus_that_others_have_are_given_to_nobody(policy: str, seed: int) -> None:
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
        if chance.random() < 0.4:
            name = chance.choice(TREE.machine_names)
            what = chance.random()
            event: ev.Event = ev.GpusWithheld(name, chance.choice((0, 0, 1, 2, 4)))
            if what < 0.2:
                event = ev.MachineDrained(name) if what < 0.1 else ev.MachineUp(name)
            scheduler.step(now, [event])
            _nobody_has_what_others_have(scheduler)
        return instants < 20_000

    while True:
        scheduler.run(between)
        assert instants < 20_000, "it goes on for ever"
        if all(active.state is State.FINISHED for active in scheduler.jobs.values()):
            break
        fleet = scheduler.books.fleet
        assert fleet.drained or fleet.withheld, "jobs wait though all GPUs are there"
        scheduler.step(scheduler.time, [*(ev.MachineUp(name) for name in sorted(fleet.drained)),
                                        *(ev.GpusWithheld(name, 0) for name in sorted(fleet.withheld))])  # fmt: skip
    text = JournalText(TREE)
    assert [text.decode(text.encode(instant)) for instant in seen] == seen
    _, again = begin(case, Journal())
    assert execute(again, seen, make_policy) == len(seen)
    assert json.dumps(save(again)) == json.dumps(save(scheduler))


def test_a_snapshot_knows_what_others_have() -> None:
    case = Case("fifo", [job("a", 2, 100)], TREE, "ideal", (0, 0), None, 1.0)
    _, scheduler = begin(case, Journal())
    scheduler.run(lambda now: False)
    name = TREE.machine_names[scheduler.jobs["a"].placement.slices[0][0]]  # type: ignore[union-attr]
    scheduler.step(1.0, [ev.GpusWithheld(name, 3)])  # one more than are free there
    assert scheduler.books.fleet.masks[name].bit_count() == 2
    state = json.loads(json.dumps(save(scheduler)))
    _, again = begin(Case("fifo", [], TREE, "ideal", (0, 0), None, 1.0), Journal())
    load(again, state)
    assert json.dumps(save(again)["withheld"]) == json.dumps(state["withheld"])
    assert again.books.view.free.masks == scheduler.books.view.free.masks
    scheduler.step(2.0, [ev.Finished("a")])  # what it leaves, the others have had for long
    assert scheduler.books.fleet.masks[name].bit_count() == 3
    scheduler.step(3.0, [ev.GpusWithheld(name, 0)])
    assert scheduler.books.view.free.total == TREE.gpus


def test_more_than_a_machine_has_cannot_be_withheld() -> None:
    _, scheduler = begin(Case("fifo", [], TREE, "ideal", (0, 0), None, 1.0), Journal())
    found = scheduler.books.happened(1.0, [ev.GpusWithheld(TREE.machine_names[0], 5), ev.GpusWithheld("nowhere", 1),
                                           ev.GpusWithheld(TREE.machine_names[0], 0)])  # fmt: skip
    assert [entry.why for entry in found] == [  # type: ignore[union-attr]
        "the machine has not so many GPUs", "the cluster has no such machine", "so many are withheld already"]
