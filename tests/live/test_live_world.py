"""The same scheduler and policies, on a wall clock, with jobs that are real processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Instant, Journal
from dally.core.ledger import Ledger
from dally.core.placement import Placement
from dally.core.policy import PolicyBase, View
from dally.core.scheduler import Scheduler
from dally.core.states import State
from dally.core.topology import Level, Topology, regular
from dally.live.attending import LiveRules
from dally.live.clock import ServiceClock
from dally.live.engine import Program
from dally.live.local.engine import LocalEngine
from dally.live.world import LiveWorld
from dally.policies.options import make_policy

# A job that works `argv[2]` tenths of a second, keeps its progress in the file `argv[1]`, and on SIGTERM saves and
# yields with 143, as training scripts should.
WORKER = """
import os, pathlib, signal, sys, time
rank = os.environ["RANK"]  # a process for every machine
state = pathlib.Path(sys.argv[1] if rank == "0" else f"{sys.argv[1]}.{rank}")
stop = False
def leave(*_):
    global stop
    stop = True
signal.signal(signal.SIGTERM, leave)
done = int(state.read_text().split()[0]) if state.exists() else 0
while done < int(sys.argv[2]):
    if stop:
        sys.exit(143)
    time.sleep(0.02)
    done += 1
    state.write_text(f"{done} {os.environ['DALLY_GPUS']}")
"""


@pytest.fixture
def four_gpus() -> Topology:
    return regular((1, 2, 2), (Level("machine"), Level("rack"), Level("cluster")))


def job_of(folder: Path, name: str, gpus: int, ticks: int, at: float = 0.0, declared: float | None = None) -> tuple[Job, list[str]]:
    job = Job(name, at, gpus, declared_duration=declared)
    return job, [sys.executable, "-c", WORKER, str(folder / name), str(ticks)]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    made = LocalEngine(tmp_path / "state")
    yield made
    made.clear()
    made.close()


def run(engine: LocalEngine, topology: Topology, policy: str, submissions: list[tuple[Job, list[str]]], retries: int = 0) -> Ledger:
    world = LiveWorld(topology, engine, ServiceClock(time.time(), 0.0), LiveRules(retries=retries))
    ledger = Ledger(topology)
    for job, command in submissions:
        world.submit(job, Program(tuple(command)))
    world.close()
    scheduler = Scheduler(topology, make_policy(policy), world, Journal(ledger))
    world.jobs = scheduler.jobs
    scheduler.run()
    assert not engine.running()
    return ledger


def test_real_processes_run_to_their_end_under_fifo(tmp_path: Path, four_gpus: Topology, engine: LocalEngine) -> None:
    ledger = run(engine, four_gpus, "fifo", [job_of(tmp_path, f"job{i}", 2, 5) for i in range(4)])
    assert [row.outcome for row in ledger.rows] == ["finished"] * 4
    assert max(ledger.busy) == 4
    assert (tmp_path / "job3").read_text().startswith("5 ")


def test_a_shorter_job_takes_the_gpus_of_a_longer_one_which_resumes_where_it_stopped(tmp_path: Path, four_gpus: Topology, engine: LocalEngine) -> None:
    long = job_of(tmp_path, "long", 4, 110, declared=20.0)
    short = job_of(tmp_path, "short", 4, 3, at=1.0, declared=0.1)  # by then it can be asked to leave, on a busy host too
    ledger = run(engine, four_gpus, "srtf", [long, short])
    assert ledger.row("long").preemptions == 1
    assert ledger.row("long").outcome == ledger.row("short").outcome == "finished"
    end_of_short, end_of_long = ledger.row("short").end, ledger.row("long").end
    assert end_of_short is not None and end_of_long is not None and end_of_short < end_of_long
    assert (tmp_path / "long").read_text() == "110 rack0/m0:0,1;rack0/m1:0,1"


def test_a_job_that_crashes_is_retried_and_then_given_up(tmp_path: Path, four_gpus: Topology, engine: LocalEngine) -> None:
    crash = (Job("crash", 0.0, 1), [sys.executable, "-c", "import sys; sys.exit(7)"])
    ledger = run(engine, four_gpus, "fifo", [crash, job_of(tmp_path, "good", 1, 2)], retries=2)
    assert ledger.row("crash").outcome == "failed"
    assert ledger.row("good").outcome == "finished"
    assert sum(segment.row == 0 for segment in ledger.segments) == 3


def test_a_job_larger_than_the_machine_is_turned_away_and_the_world_still_ends(tmp_path: Path, four_gpus: Topology, engine: LocalEngine) -> None:
    ledger = run(engine, four_gpus, "las", [job_of(tmp_path, "big", 5, 1), job_of(tmp_path, "small", 1, 1)])
    assert ledger.row("big").outcome == "rejected"
    assert ledger.row("small").outcome == "finished"


def test_a_process_is_moved_by_leaving_and_starting_again_elsewhere_with_its_lease(tmp_path: Path, four_gpus: Topology, engine: LocalEngine) -> None:
    job, command = job_of(tmp_path, "mover", 2, 60)
    plans = {"start": [pl.Start("mover", Placement.of([(0, 3)]))], "begun": [pl.WakeAt(0.3)],
             "woken": [pl.Migrate("mover", Placement.of([(1, 3)]), 0.2)]}  # fmt: skip
    world = LiveWorld(four_gpus, engine, ServiceClock(time.time(), 0.0))
    world.submit(job, Program(tuple(command)))
    world.close()
    seen: list[Instant] = []

    class Mover(PolicyBase):
        name = "mover"

        def plan(self, view: View, memory: object, now: float) -> pl.Plan:
            kinds = {type(event) for event in view.news}
            found = plans.pop("start" if ev.Arrived in kinds else "begun" if ev.Started in kinds else "woken", [])
            return [pl.WakeAt(now + 0.3) if isinstance(action, pl.WakeAt) else action for action in found]

    scheduler = Scheduler(four_gpus, Mover(), world, Journal(seen.append))
    world.jobs = scheduler.jobs
    scheduler.run()
    happened = [type(entry).__name__ for instant in seen for entry in instant.happened]
    assert happened.count("LeaseEnded") == 1  # before or after it has started elsewhere: that depends on the machine
    happened.remove("LeaseEnded")
    assert happened == ["Arrived", "Started", "TimerDue", "Started", "Finished"]
    assert (tmp_path / "mover").read_text() == "60 rack0/m1:0,1"


def test_a_program_that_is_missing_fails_its_job_and_nobody_else(tmp_path: Path, four_gpus: Topology, engine: LocalEngine) -> None:
    ledger = run(engine, four_gpus, "fifo", [(Job("typo", 0.0, 1), ["no-such-program-here"]), job_of(tmp_path, "good", 1, 2)])
    assert (ledger.row("typo").outcome, ledger.row("good").outcome) == ("failed", "finished")


STUBBORN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
state = pathlib.Path(sys.argv[1] + "." + os.environ["RANK"])  # a process for every machine
runs = int(state.read_text()) + 1 if state.exists() else 1
state.write_text(str(runs))
time.sleep(30 if runs == 1 else 0.1)
"""


def test_who_does_not_leave_in_its_grace_is_put_out_and_its_work_is_not_counted_as_saved(tmp_path: Path, four_gpus: Topology, engine: LocalEngine) -> None:
    world = LiveWorld(four_gpus, engine, ServiceClock(time.time(), 0.0))
    world.submit(Job("stubborn", 0.0, 4, declared_duration=20.0),
                 Program((sys.executable, "-c", STUBBORN, str(tmp_path / "s")), grace=0.3))
    short, command = job_of(tmp_path, "short", 4, 2, at=0.7, declared=0.1)
    world.submit(short, Program(tuple(command)))
    world.close()
    seen: list[Instant] = []
    scheduler = Scheduler(four_gpus, make_policy("srtf"), world, Journal(seen.append))
    world.jobs = scheduler.jobs
    scheduler.run()
    interrupted = [entry for instant in seen for entry in instant.happened if isinstance(entry, ev.Interrupted)]
    assert [(entry.job, entry.work_done) for entry in interrupted] == [("stubborn", 0.0)]
    assert "killed after its grace" in interrupted[0].cause
    assert not any(isinstance(entry, ev.Yielded) for instant in seen for entry in instant.happened)
    assert all(job.state is State.FINISHED for job in scheduler.jobs.values())


def test_what_the_engine_cannot_do_is_refused_at_submission_or_choice_of_policy(four_gpus: Topology, engine: LocalEngine) -> None:
    world = LiveWorld(four_gpus, engine, ServiceClock(time.time(), 0.0))
    with pytest.raises(UserError, match="cannot change a job's number of GPUs"):
        world.submit(Job("e", 0.0, 2, max_gpus=4), Program(("true",)))
    with pytest.raises(UserError, match="several jobs on the same GPUs"):
        world.check(make_policy("gandiva"))
    world.check(make_policy("fifo"))
