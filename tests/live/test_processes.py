"""The same scheduler and policies, on a wall clock, with jobs that are real processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.ledger import Ledger
from dally.core.scheduler import Scheduler
from dally.core.topology import Level, Topology, regular
from dally.live.clock import WallClock
from dally.live.processes import ProcessWorld
from dally.policies.options import make_policy

# A job that works `argv[2]` tenths of a second, keeps its progress in the file `argv[1]`, and on SIGTERM saves and
# yields with 143, as training scripts should.
WORKER = """
import os, pathlib, signal, sys, time
state = pathlib.Path(sys.argv[1])
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


def run(topology: Topology, policy: str, submissions: list[tuple[Job, list[str]]], retries: int = 0) -> Ledger:
    clock = WallClock()
    world = ProcessWorld(topology, submissions, clock, retries=retries)
    ledger = Ledger(topology)
    try:
        Scheduler(topology, make_policy(policy), world, Journal(ledger)).run()
    finally:
        world.close()
    return ledger


def test_real_processes_run_to_their_end_under_fifo(tmp_path: Path, four_gpus: Topology) -> None:
    ledger = run(four_gpus, "fifo", [job_of(tmp_path, f"job{i}", 2, 5) for i in range(4)])
    assert [row.outcome for row in ledger.rows] == ["finished"] * 4
    assert max(ledger.busy) == 4
    assert (tmp_path / "job3").read_text().startswith("5 ")


def test_a_shorter_job_takes_the_gpus_of_a_longer_one_which_resumes_where_it_stopped(tmp_path: Path, four_gpus: Topology) -> None:
    long = job_of(tmp_path, "long", 4, 60, declared=20.0)
    short = job_of(tmp_path, "short", 4, 3, at=0.4, declared=0.1)
    ledger = run(four_gpus, "srtf", [long, short])
    assert ledger.row("long").preemptions == 1
    assert ledger.row("long").outcome == ledger.row("short").outcome == "finished"
    end_of_short, end_of_long = ledger.row("short").end, ledger.row("long").end
    assert end_of_short is not None and end_of_long is not None and end_of_short < end_of_long
    assert (tmp_path / "long").read_text() == "60 0,1,2,3"


def test_a_job_that_crashes_is_retried_and_then_given_up(tmp_path: Path, four_gpus: Topology) -> None:
    crash = (Job("crash", 0.0, 1), [sys.executable, "-c", "import sys; sys.exit(7)"])
    ledger = run(four_gpus, "fifo", [crash, job_of(tmp_path, "good", 1, 2)], retries=2)
    assert ledger.row("crash").outcome == "failed"
    assert ledger.row("good").outcome == "finished"
    assert sum(segment.row == 0 for segment in ledger.segments) == 3


def test_a_job_larger_than_the_machine_is_turned_away_and_the_world_still_ends(tmp_path: Path, four_gpus: Topology) -> None:
    ledger = run(four_gpus, "las", [job_of(tmp_path, "big", 5, 1), job_of(tmp_path, "small", 1, 1)])
    assert ledger.row("big").outcome == "rejected"
    assert ledger.row("small").outcome == "finished"


def test_a_process_is_moved_by_leaving_and_starting_again_elsewhere(tmp_path: Path, four_gpus: Topology) -> None:
    from dally.core import plan as pl
    from dally.core.placement import Placement

    submission = job_of(tmp_path, "mover", 2, 20)
    world = ProcessWorld(four_gpus, [submission], WallClock())
    happened = world.next_events()
    assert happened is not None
    world.carry_out(0.0, [pl.Start("mover", Placement.of([(0, 3)]))])
    while not (tmp_path / "mover").exists():
        pass
    world.carry_out(0.0, [pl.Migrate("mover", Placement.of([(1, 3)]))])
    happened = world.next_events()
    assert happened is not None and [type(event).__name__ for event in happened[1]] == ["Finished"]
    assert (tmp_path / "mover").read_text() == "20 2,3"


def test_shares_and_resizes_are_refused_before_anything_starts(four_gpus: Topology) -> None:
    from dally.core import plan as pl
    from dally.core.errors import UserError
    from dally.core.placement import Placement
    from dally.core.sharing import Share

    world = ProcessWorld(four_gpus, [], WallClock())
    here = Placement.of([(0, 1)])
    for action, what in ((pl.Start("a", here, None, Share()), "given a share"), (pl.Reshare("a", Share()), "given a share"),
                         (pl.Resize("a", here), "resized")):  # fmt: skip
        with pytest.raises(UserError, match=f"job 'a' was to be {what}"):
            world.carry_out(0.0, [action])
    assert not world._processes
