"""Jobs that are on their way out when the service dies: the grace they were given goes on, and what comes of it counts."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from test_restarts import CLUSTER, Scripted, go_on, leads, state, store, submit  # noqa: F401 - store is a fixture

from dally.core.events import MachinesChanged
from dally.core.placement import Placement
from dally.live.attending import LiveRules
from dally.live.driver import Driver, Hooks, Wanted
from dally.live.engine import Began, Exited, NotBegun, Vanished
from dally.live.local.engine import LocalEngine
from dally.policies.options import make_policy
from dally.store.database import Database

# Moves a job of one machine to the other one, once, or preempts whoever runs for a job of a higher priority.
POLICY = """
from dally.core.placement import Placement
from dally.core.plan import Migrate, Preempt, Start, WakeAt
from dally.core.states import State
from dally.policies.fifo import Fifo

class {name}(Fifo):
    title = {name!r}
    preempts = True

    def plan(self, view, memory, now):
        plan = super().plan(view, memory, now)
        busy = [job for job in view.jobs() if job.state is State.RUNNING and job.attempts == 1]
        if busy and now < busy[0].last_change + {after}:
            return [*plan, WakeAt(busy[0].last_change + {after})]
        if {moves} and busy and view.free.masks[1] == 15:
            return [*plan, Migrate(busy[0].id, Placement.of([(1, busy[0].placement.slices[0][1])]))]
        urgent = [job for job in view.waiting.ordered(now) if job.job.priority > 0]
        if busy and urgent:
            return [Preempt(busy[0].id), Start(urgent[0].id, busy[0].placement)]
        return plan
"""


def moving(folder: Path, *, moves: bool = True, after: float = 0.0) -> str:
    name = f"{'mover' if moves else 'chaser'}{after:.0f}"
    file = folder / f"{name}.py"
    file.write_text(POLICY.format(name=name, moves=moves, after=after))
    return make_policy(str(file)).name


class Watching(Scripted):
    """Runs what the test says it runs."""

    def __init__(self, runs: dict[str, int], *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.runs = runs
        self.adopted: list[tuple[str, int]] = []

    def running(self) -> dict[str, int]:
        return self.runs

    def adopt(self, job: str, attempt: int) -> None:
        self.adopted.append((job, attempt))
        super().adopt(job, attempt)


def moved(store: Database, policy: str) -> str:  # noqa: F811
    """A job that was asked to leave for other GPUs by a service that is no more."""
    leads(store, Scripted())
    job = submit(store, gpus=4, checkpoint={"grace": "20s"})
    engine = Scripted()
    driver = leads(store, engine, policy)
    go_on(driver)
    engine.reports.append(Began(job, 1))
    go_on(driver)
    assert (state(driver, job), engine.stopped, engine.started) == ("starting", [(job, 1, 20.0)], [(job, 1)])
    return job


@pytest.mark.parametrize(("code", "becomes", "starts"), [(143, "starting", 2), (0, "finished", None), (-9, "starting", 3)])
def test_a_move_that_was_cut_goes_on_where_it_was(store: Database, tmp_path: Path, code: int, becomes: str,  # noqa: F811
                                                  starts: int | None) -> None:  # fmt: skip
    policy = moving(tmp_path)
    job = moved(store, policy)
    engine = Watching({job: 1}, {(job, 1): [Began(job, 1)]})
    driver = leads(store, engine, policy)
    go_on(driver)
    assert all(grace > 0 for _, _, grace in engine.stopped) and engine.started == []  # not put out at once
    engine.reports.append(Exited(job, 1, code))
    go_on(driver)
    assert state(driver, job) == becomes
    assert engine.started == ([] if starts is None else [(job, starts)])


def test_a_job_that_ended_on_its_way_while_nobody_looked_has_ended(store: Database, tmp_path: Path) -> None:  # noqa: F811
    policy = moving(tmp_path)
    job = moved(store, policy)
    engine = Watching({}, {(job, 1): [Began(job, 1), Exited(job, 1, 0, asked=True)], (job, 2): [NotBegun(job, 2, "", void=True)]})
    driver = leads(store, engine, policy)
    go_on(driver)
    assert (state(driver, job), engine.started, engine.adopted) == ("finished", [], [(job, 1)])


@pytest.mark.parametrize("second", [[Began("1", 2), Exited("1", 2, 0)], [NotBegun("1", 2, "it never began", void=True)]])
def test_a_move_whose_first_half_is_forgotten_is_asked_about_by_its_second(store: Database, tmp_path: Path,  # noqa: F811
                                                                          second: list) -> None:  # fmt: skip
    policy = moving(tmp_path)
    job = moved(store, policy)
    engine = Watching({}, {(job, 1): [Began(job, 1), Vanished(job, 1, "its record is gone")], (job, 2): second})
    driver = leads(store, engine, policy)
    go_on(driver)
    assert engine.adopted == [(job, 1), (job, 2)]
    ended = isinstance(second[-1], Exited)
    assert (state(driver, job), engine.started) == (("finished", []) if ended else ("starting", [(job, 3)]))


def test_the_one_it_was_preempted_for_waits_until_it_has_left_also_after_a_restart(store: Database, tmp_path: Path) -> None:  # noqa: F811
    policy = moving(tmp_path, moves=False)
    leads(store, Scripted())
    job = submit(store, gpus=8, checkpoint={"grace": "20s"})
    engine = Scripted()
    driver = leads(store, engine, policy)
    go_on(driver)
    engine.reports.append(Began(job, 1))
    go_on(driver)
    urgent = submit(store, gpus=8, priority=9)
    driver.catch_up()
    go_on(driver)
    assert (state(driver, job), state(driver, urgent), engine.started) == ("yielding", "starting", [(job, 1)])
    found = {(job, 1): [Began(job, 1)], (urgent, 1): [NotBegun(urgent, 1, "it never began", void=True)]}
    second = Watching({job: 1}, found)
    driver = leads(store, second, policy)
    go_on(driver)
    assert second.started == []  # its GPUs are still held
    second.reports.append(Exited(job, 1, 143))
    go_on(driver)
    assert second.started == [(urgent, 2)]


@pytest.mark.parametrize("what", [["requeue"], ["hold", "requeue"]])
def test_a_start_that_waits_for_its_gpus_can_be_requeued(store: Database, tmp_path: Path, what: list[str]) -> None:  # noqa: F811
    policy = moving(tmp_path, moves=False)
    leads(store, Scripted())
    job = submit(store, gpus=8, checkpoint={"grace": "20s"})
    engine = Scripted()
    driver = leads(store, engine, policy)
    go_on(driver)
    engine.reports.append(Began(job, 1))
    go_on(driver)
    urgent = submit(store, gpus=8, priority=9)
    driver.catch_up()
    go_on(driver)
    for each in what:
        driver.feed(store.ask({"what": each, "job": urgent, "user": "ada"}))
    go_on(driver)
    history = driver.board.rows[urgent]["history"]
    assert [each["how"] for each in history][:1] == ["requeued by its owner"]
    assert state(driver, urgent) == ("held" if "hold" in what else "starting")
    engine.reports.append(Exited(job, 1, 143))
    go_on(driver)
    assert engine.started == [(job, 1), (job, 2) if "hold" in what else (urgent, 2)]


def test_a_move_can_be_requeued(store: Database, tmp_path: Path) -> None:  # noqa: F811
    policy = moving(tmp_path)
    leads(store, Scripted())
    job = submit(store, gpus=4, checkpoint={"grace": "20s"})
    engine = Scripted()
    driver = leads(store, engine, policy)
    go_on(driver)
    engine.reports.append(Began(job, 1))
    go_on(driver)
    driver.feed(store.ask({"what": "requeue", "job": job, "user": "ada"}))
    go_on(driver)
    engine.reports.append(Exited(job, 1, 143))
    go_on(driver)
    assert driver.board.rows[job]["history"][1]["how"] == "requeued by its owner"
    assert engine.started == [(job, 1), (job, 3)]


@pytest.mark.parametrize("code", [143, 0])
def test_a_move_to_a_machine_that_is_taken_out_does_not_go_on(store: Database, tmp_path: Path, code: int) -> None:  # noqa: F811
    policy = moving(tmp_path)
    leads(store, Scripted())
    job = submit(store, gpus=4, checkpoint={"grace": "20s"})
    engine = Scripted()
    driver = leads(store, engine, policy)
    go_on(driver)
    engine.reports.append(Began(job, 1))
    go_on(driver)
    assert state(driver, job) == "starting"
    driver.world.report(MachinesChanged((), (CLUSTER.machine_names[1],)))
    go_on(driver)
    engine.reports.append(Exited(job, 1, code))
    go_on(driver)
    assert (state(driver, job), engine.started) == (
        ("starting", [(job, 1), (job, 3)]) if code == 143 else ("finished", [(job, 1)]))  # fmt: skip


def test_a_start_that_waits_for_a_machine_which_is_taken_out_is_not_made_in_part(store: Database, tmp_path: Path) -> None:  # noqa: F811
    policy = moving(tmp_path, moves=False)
    leads(store, Scripted())
    job = submit(store, gpus=8, checkpoint={"grace": "20s"})
    engine = Scripted()
    driver = leads(store, engine, policy)
    go_on(driver)
    engine.reports.append(Began(job, 1))
    go_on(driver)
    urgent = submit(store, gpus=8, priority=9)
    driver.catch_up()
    go_on(driver)
    small = submit(store, gpus=2)
    for _, submission in store.submissions(2):
        driver.know(submission)
        driver.feed(submission)
    go_on(driver)
    assert (state(driver, job), state(driver, urgent)) == ("yielding", "starting")
    driver.world.report(MachinesChanged((), (CLUSTER.machine_names[1],)))
    go_on(driver)
    engine.reports.append(Exited(job, 1, 143))
    go_on(driver)
    assert engine.started == [(job, 1), (small, 1)]
    assert {name: state(driver, name) for name in (job, urgent, small)} == {job: "waiting", urgent: "waiting", small: "starting"}
    assert driver.scheduler.reason(urgent).sentence == "asks for 8 GPUs; the cluster has 4"  # type: ignore[union-attr]


STUBBORN = """
import os, signal, sys, time
if os.environ["DALLY_RESTARTS"] != "0":
    time.sleep(60)  # only the first attempt keeps a diary
def asked(number, frame):
    with open(sys.argv[1], "a") as file:
        file.write(f"asked {time.monotonic()}\\n")
signal.signal(signal.SIGTERM, asked)
open(sys.argv[1], "a").write("began\\n")
while True:
    time.sleep(0.05)
    part = f"{sys.argv[1]}.{os.getpid()}"
    with open(part, "w") as file:
        file.write(str(time.monotonic()))
    os.rename(part, sys.argv[1] + ".alive")  # it may be put out at any moment
"""


@pytest.mark.parametrize("moves", [True, False])
def test_a_grace_that_has_begun_ends_when_it_was_to_whoever_leads_by_then(store: Database, tmp_path: Path, moves: bool) -> None:  # noqa: F811
    policy = moving(tmp_path, moves=moves, after=2.0)  # a program takes its time to be ready for a signal
    leads(store, Scripted())
    diary = tmp_path / "diary"
    command = [sys.executable, "-I", "-S", "-c", STUBBORN, str(diary)]
    job = submit(store, gpus=4 if moves else 8, checkpoint={"grace": "3s"}, command=command)
    if not moves:
        submit(store, gpus=8, priority=9, command=["true"])
    engine = LocalEngine(tmp_path / "state")

    def serve(seconds: float) -> Driver:
        nonlocal engine
        engine.close()
        engine = LocalEngine(tmp_path / "state")
        assert store.take_the_lead(store.lead(), {"pid": 1})
        driver = Driver(store, engine, Wanted(policy, CLUSTER), LiveRules(), Hooks())
        driver.go_on_for(seconds)
        return driver

    try:
        until = time.monotonic() + 20
        while "asked" not in (diary.read_text() if diary.exists() else "") and time.monotonic() < until:
            serve(0.5)
        for _ in range(3):
            serve(0.3)
        while engine.running().get(job) == 1 and time.monotonic() < until:
            serve(0.5)
        words = diary.read_text().split()
        assert words.count("asked") == words.count("began")  # a process for each machine
        lasted = float(diary.with_name("diary.alive").read_text()) - float(words[words.index("asked") + 1])
        assert lasted > 2.5  # nobody put it out before its time; when exactly it died is the machine's business
    finally:
        engine.clear()
        engine.close()


def test_where_an_attempt_was_put_is_read_from_its_row(store: Database, tmp_path: Path) -> None:  # noqa: F811
    job = moved(store, moving(tmp_path))
    driver = leads(store, Scripted(), "fifo")
    assert driver.board.put(job, 1, CLUSTER) == (Placement.of([(0, 15)]), True)
    assert driver.board.put(job, 2, CLUSTER) == (Placement.of([(1, 15)]), False)
    assert driver.board.put(job, 3, CLUSTER) is None and driver.board.put("9", 1, CLUSTER) is None
