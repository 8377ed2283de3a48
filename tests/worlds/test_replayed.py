"""A live run done again in a simulated world with what was measured: the same decisions, or each difference explained."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engines import ManualClock, PretendEngine

from builders import cluster, job
from dally.cli.main import cli
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.estimates import Declared
from dally.core.job import Job
from dally.core.journal import Instant, Journal
from dally.core.scheduler import Scheduler
from dally.core.topology import Topology
from dally.live.attending import LiveRules
from dally.live.clock import ServiceClock
from dally.live.engine import Program
from dally.live.lived import Record, read
from dally.live.local.engine import LocalEngine
from dally.live.replayed import STEPS, UNEXPLAINED, Replayed, live_record, replay
from dally.live.world import LiveWorld
from dally.policies.options import make_policy
from dally.store.database import Database
from dally.store.journal_file import JournalFile

TREE = cluster(2, 2, 4)
ENGINES: dict[str, dict[str, float]] = {
    "prompt": {},
    "slow": {"latency": 3.0, "leaving": 2.0},
    "slow, refusing, repeating itself": {"latency": 3.0, "leaving": 2.0, "refusals": 0.2, "repeats": 0.3},
    "where attempts vanish": {"latency": 1.0, "vanishes": 0.2, "leaving": 1.0},
}

Between = Callable[[Scheduler, LiveWorld, float], None]


def lived(world: LiveWorld, topology: Topology, policy: str, between: Between | None = None) -> Record:
    """Run to the end, and keep the record."""
    seen: list[Instant] = []
    scheduler = Scheduler(topology, make_policy(policy), world, Journal(seen.append), strict=False)
    world.jobs = scheduler.jobs

    def after(now: float) -> bool:
        if between is not None:
            between(scheduler, world, now)
        return True

    scheduler.run(after)
    return Record(topology, make_policy(policy).name, tuple(seen), lambda _: Declared())


def pretended(policy: str, seed: int, between: Between | None = None, **engine: float) -> Record:
    clock, chance = ManualClock(), random.Random(seed)
    world = LiveWorld(TREE, PretendEngine(clock, seed=seed, **engine), clock, LiveRules(retries=1000))  # type: ignore[arg-type]
    for i in range(25):
        spec = job(f"j{i}", chance.choice((1, 1, 2, 4, 8)), chance.uniform(1, 200), chance.uniform(0, 80))
        said = replace(spec.job, declared_duration=spec.truth.duration)
        world.submit(said, Program(("run", str(spec.truth.duration))))
    world.close()
    return lived(world, TREE, policy, between)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", ["fifo", "srtf", "las[quantum=10s]", "dally", "tiresias", "gavel"])
def test_every_difference_is_explained_and_at_the_last_step_there_is_none(policy: str, engine: str) -> None:
    for seed in (4, 5):
        found = replay(pretended(policy, seed, **ENGINES[engine]))
        assert found.verified is None
        assert found.decisions >= 25
        assert not found.unexplained
        assert (found.steps[-1].same, found.steps[-1].other, found.steps[-1].latest) == (found.decisions, 0, 0.0)


def test_where_nothing_takes_time_the_simulator_decides_the_same_at_once() -> None:
    found = replay(pretended("srtf", 1))
    assert found.differences == []
    assert found.steps[0].same == found.decisions


def test_what_slow_starts_change_is_said_to_come_from_slow_starts() -> None:
    found = replay(pretended("dally", 1, latency=3.0))
    assert found.differences, "with this seed the simulator decides otherwise where starts take no time"
    assert {each.why for each in found.differences} == {"starts take as long as they did"}
    assert found.steps[1].other == 0


def test_what_slow_checkpoints_change_is_said_to_come_from_them() -> None:
    found = replay(pretended("las[quantum=10s]", 2, leaving=4.0))
    assert "leaving takes as long as it did" in {each.why for each in found.differences}
    assert found.steps[2].other == 0


def test_a_record_that_somebody_tampered_with_is_neither_verified_nor_explained() -> None:
    """A start on other GPUs than the policy chose: no world explains that."""
    record = pretended("fifo", 3)
    instants = list(record.instants)
    number, start = next((n, action) for n, instant in enumerate(instants) for action in instant.decided or ()
                         if isinstance(action, pl.Start) and action.placement.gpus == 1)  # fmt: skip
    free = TREE.machines[3].index
    moved = start._replace(placement=type(start.placement).of([(free, 8)]))
    decided = [moved if action is start else action for action in instants[number].decided or ()]
    instants[number] = instants[number]._replace(decided=tuple(decided))
    tampered = record._replace(instants=tuple(instants[: number + 1]))
    found = replay(tampered)
    assert found.verified is not None
    assert [(each.live.job if each.live else None, each.why) for each in found.differences] == [(start.job, UNEXPLAINED)]


def test_machines_that_fail_cancelled_jobs_and_another_policy_are_done_again() -> None:
    left = [(20.0, "cancel"), (30.0, "down"), (40.0, "policy"), (50.0, "up"), (60.0, "hold"), (90.0, "release")]
    held: list[str] = []

    def between(scheduler: Scheduler, world: LiveWorld, now: float) -> None:
        if not left or now <= left[0][0] or not len(scheduler.view.waiting):
            return
        what, some = left.pop(0)[1], next(iter(scheduler.view.waiting)).id
        if what == "cancel":
            world.cancel(some)
        elif what == "policy":
            scheduler.put_in_charge(make_policy("srtf"), now)
            world.nudge()
        elif what == "hold":
            held.append(some)
            world.report(ev.Held(some, "for a test"))
        elif what == "release":
            world.report(ev.Released(held[0]))
        else:
            world.report((ev.MachineDown if what == "down" else ev.MachineUp)("rack0/m0"))

    record = pretended("fifo", 6, between, latency=2.0, leaving=1.0)
    assert not left
    found = replay(record)
    assert found.verified is None
    assert not found.unexplained
    assert found.steps[-1].other == 0


def test_measured_speeds_are_those_of_each_attempt() -> None:
    """Started at 0, timed twice as slow at 10, done after 30: the job is 20 units of work, wherever it is simulated."""
    seen = [
        Instant(0.0, (ev.Arrived(Job("a", 0.0, 4)),), (pl.Start("a", _four(0)),)),
        Instant(0.0, (ev.Started("a"),), ()),
        Instant(10.0, (ev.Measured("a", 0.5, 2.0, 0.1),), ()),
        Instant(30.0, (ev.Finished("a"),), ()),
    ]
    record = Record(TREE, "fifo", tuple(seen), lambda _: Declared())
    found = read(record)
    assert found.attempts["a", 1].need == 20.0
    assert found.attempts["a", 1].measured == [(10.0, ev.Measured("a", 0.5, 2.0, 0.1))]
    assert replay(record).steps[0].same == 1


def _four(machine: int) -> Any:
    from dally.core.placement import Placement

    return Placement.of([(machine, 15)])


# --- real processes -------------------------------------------------------------------------------------------------

WORKER = """
import os, pathlib, signal, sys, time
rank = os.environ["RANK"]
state = pathlib.Path(f"{sys.argv[1]}.{rank}")
stop = False
def leave(*_):
    global stop
    stop = True
signal.signal(signal.SIGTERM, leave)
done = int(state.read_text()) if state.exists() else 0
while done < int(sys.argv[2]):
    if stop:
        sys.exit(143)
    time.sleep(0.02)
    done += 1
    state.write_text(str(done))
"""


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las[quantum=0.4s]"])
def test_a_run_of_real_processes_is_done_again(tmp_path: Path, policy: str) -> None:
    topology = cluster(1, 2, 2)
    engine = LocalEngine(tmp_path / "state")
    try:
        world = LiveWorld(topology, engine, ServiceClock(time.time(), 0.0), LiveRules(retries=2))
        for i, (gpus, ticks, at) in enumerate([(4, 40, 0.0), (2, 10, 0.1), (2, 15, 0.15), (4, 5, 0.3), (1, 20, 0.4)]):
            said = Job(f"j{i}", at, gpus, declared_duration=ticks * 0.02)
            world.submit(said, Program((sys.executable, "-c", WORKER, str(tmp_path / f"j{i}"), str(ticks))))
        world.close()
        record = lived(world, topology, policy)
    finally:
        engine.clear()
        engine.close()
    found = replay(record)
    assert found.verified is None
    assert found.decisions >= 5
    assert not found.unexplained, found.unexplained
    assert found.steps[-1].other == 0


# --- records on disk, and the command -------------------------------------------------------------------------------


def stored(record: Record, folder: Path) -> Path:
    """As a service keeps it."""
    folder.mkdir()
    database = Database(f"sqlite:///{folder / 'dally.db'}")
    database.prepare(record.topology, policy=record.policy)
    assert database.take_the_lead(database.lead(), {})
    database.begin_text(record.topology)
    for instant in record.instants:
        database.append(instant)
    database.close()
    return folder


def test_the_store_of_a_service_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    record = pretended("las[quantum=10s]", 7, latency=1.0, leaving=1.0)
    folder = stored(record, tmp_path / "state")
    before = (folder / "dally.db").read_bytes()
    found = live_record(str(folder))
    assert (found.policy, found.instants) == (record.policy, record.instants)
    done = CliRunner().invoke(cli, ["journal", "replay", str(folder), "--live", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["decides_the_same_on_the_recorded_events"] and said["unexplained"] == 0
    assert [step["text"] for step in said["steps"]] == [text for text, _ in STEPS]
    assert (folder / "dally.db").read_bytes() == before
    table = CliRunner().invoke(cli, ["journal", "replay", str(folder), "--live"])
    assert "decided as recorded" in table.output and "leaving takes as long as it did" in table.output


def test_a_journal_file_of_a_live_run_is_read_too(tmp_path: Path) -> None:
    record = pretended("fifo", 8)
    with JournalFile(tmp_path / "journal.jsonl", TREE, policy="fifo") as journal:
        for instant in record.instants:
            journal(instant)
    found: Replayed = replay(live_record(str(tmp_path / "journal.jsonl")))
    assert found.verified is None and not found.differences


@pytest.mark.parametrize(("arguments", "sentence"), [
    (("nowhere", "--live"), "nowhere"),
    (("FILE", "--live", "--at", "1h"), "--at does not go with --live"),
    (("FILE", "--live", "--policy", "las"), "--policy does not go with --live"),
    (("SIMULATED", "--live"), "is the journal of a simulation"),
])  # fmt: skip
def test_what_cannot_be_done_again_is_refused_in_a_sentence(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    for name, about in (("FILE", {"policy": "fifo"}), ("SIMULATED", {"policy": "fifo", "network": "ideal"})):
        with JournalFile(tmp_path / f"{name}.jsonl", TREE, **about):
            pass
    given = [str(tmp_path / f"{each}.jsonl") if each.isupper() else each for each in arguments]
    done = CliRunner().invoke(cli, ["journal", "replay", *given])
    assert isinstance(done.exception, UserError)
    assert sentence in str(done.exception)
