"""The engine against a Slurm that loses answers, refuses, forgets and is away: nothing is lost and nothing begins twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

from dally.core.placement import Placement
from dally.core.topology import Level, MachineSpec, build_topology
from dally.live.engine import Began, Exited, NotBegun, Order, Program, Report, Standing, Vanished
from dally.live.local.folder import Stage
from dally.live.slurm.client import SlurmRefused
from dally.live.slurm.engine import SlurmEngine
from dally.live.slurm.folder import SlurmFolder
from dally.live.slurm.reading import Reservation, SlurmJob
from dally.live.slurm.watched import SlurmRules

TOPOLOGY = build_topology((Level("machine"), Level("rack"), Level("cluster")),
                          [MachineSpec(("r1", "n1"), 4), MachineSpec(("r1", "n2"), 4)], name="two")  # fmt: skip
RULES = SlurmRules(poll=0.02, nodes_every=0.02, start_timeout=0.5, settle=0.1, linger=0.3, stubborn=0.2)


class Case:
    def __init__(self, state: Path) -> None:
        self.state, self.slurm = state, FakeSlurm()
        self.reports: list[Report] = []
        self.engine = self.new()

    def new(self, **rules: object) -> SlurmEngine:
        self.engine = SlurmEngine(self.state, TOPOLOGY, replace(RULES, **rules), self.slurm)  # type: ignore[arg-type]
        return self.engine

    def start(self, job: str = "1", attempt: int = 1) -> SlurmFolder:
        placement = Placement.of([(0, 0b1)])
        self.engine.start(Order(job, attempt, placement, ("r1/n1",), Program(("true",))))
        return SlurmFolder(self.state / "attempts", job, attempt)

    def until(self, met: Callable[[], object]) -> None:
        end = time.monotonic() + 20
        while not met():
            assert time.monotonic() < end, (self.reports, self.slurm.table, self.slurm.said)
            self.reports += [each for each in self.engine.observe(0.02) if not isinstance(each, Standing)]

    def a_while(self) -> None:
        """Long enough for several looks, where there are any."""
        seen, end = self.slurm.calls, time.monotonic() + 20
        while self.slurm.calls < seen + 6 and time.monotonic() < end:
            self.reports += [each for each in self.engine.observe(0.02) if not isinstance(each, Standing)]

    def ended(self) -> Report:
        self.until(lambda: any(isinstance(each, (Exited, NotBegun, Vanished)) for each in self.reports))
        return self.reports[-1]


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    found = Case(tmp_path / "state")
    yield found
    found.engine.close()


def test_a_job_is_submitted_held_with_its_mark_and_place_and_then_released(case: Case) -> None:
    folder = case.start()
    case.until(lambda: case.slurm.said)
    assert case.slurm.said == [("release", (1,))] and folder.read_id() == 1
    handed = case.slurm.handed[0]
    assert {"--no-requeue", "--nodelist=n1", "--gpus-per-node=1", "--nodes=1"} <= set(handed)
    case.slurm.runs(1, folder.path, "n1")
    case.until(lambda: case.reports)
    case.slurm.ends(1, folder.path, 3, "FAILED")
    case.ended()
    assert case.reports == [Began("1", 1), Exited("1", 1, 3)]


def test_an_answer_of_sbatch_that_was_lost_does_not_make_two_jobs(case: Case) -> None:
    case.slurm.deaf = True
    case.start()
    case.until(lambda: case.slurm.handed)
    case.slurm.deaf = False
    case.until(lambda: case.slurm.said)
    case.a_while()
    assert len(case.slurm.handed) == 1 and case.slurm.said == [("release", (1,))]


def test_an_sbatch_that_never_arrived_is_done_again_and_one_that_arrives_late_is_cancelled(case: Case) -> None:
    case.slurm.away = True
    case.start()
    case.a_while()
    case.slurm.away = False
    case.until(lambda: case.slurm.said)
    assert len(case.slurm.handed) == 1
    late = replace(case.slurm.table[1], id=7, held=True)  # the first one, stuck in the controller until now
    case.slurm.table[7] = late
    case.until(lambda: ("cancel", (7,)) in case.slurm.said)
    assert case.slurm.table[1].state == "PENDING"


def test_an_id_that_a_controller_gave_out_twice_is_not_taken_for_the_attempt_that_had_it_first(case: Case) -> None:
    folder = case.start("1")
    case.until(lambda: case.slurm.said)
    case.slurm.runs(1, folder.path, "n1")
    case.until(lambda: case.reports == [Began("1", 1)])
    case.slurm.table.clear()  # it died, and its latest jobs with it: the next one gets the same id
    case.slurm.handed.clear()
    second = case.start("2")
    case.until(lambda: second.read_id() == 1)
    case.a_while()
    assert not any(said == "cancel" for said, _ in case.slurm.said)
    case.slurm.runs(1, second.path, "n1")
    case.until(lambda: Began("2", 1) in case.reports)
    case.until(lambda: any(isinstance(each, (Exited, Vanished)) and each.job == "1" for each in case.reports))
    assert case.slurm.table[1].state == "RUNNING"


def test_nothing_is_concluded_while_the_controller_is_away(case: Case) -> None:
    folder = case.start()
    case.until(lambda: case.slurm.said)
    case.slurm.runs(1, folder.path, "n1")
    case.until(lambda: case.reports == [Began("1", 1)])
    case.slurm.away = True
    case.slurm.ends(1, folder.path, 0)
    case.a_while()
    assert case.reports == [Began("1", 1)]
    case.slurm.away = False
    assert case.ended() == Exited("1", 1, 0)


def test_what_slurm_does_not_take_is_given_back_with_its_words(case: Case) -> None:
    case.slurm.refuses = "Invalid account"
    folder = case.start()
    end = case.ended()
    assert isinstance(end, NotBegun) and end.void and "Invalid account" in end.cause
    assert folder.look().stage is Stage.VOID
    case.reports.clear()
    case.slurm.refuses = "Requested time limit is invalid (missing or exceeds some limit)"
    case.start("2")
    end = case.ended()
    assert isinstance(end, NotBegun) and not end.void  # tomorrow it would be the same


def test_a_job_that_slurm_does_not_start_is_taken_back_and_costs_nothing(case: Case) -> None:
    folder = case.start()
    case.until(lambda: case.slurm.said)
    case.slurm.change(1, reason="Resources")
    end = case.ended()
    assert isinstance(end, NotBegun) and end.void and "Resources" in end.cause
    assert folder.look().stage is Stage.VOID and case.slurm.table[1].state == "CANCELLED"


def test_a_release_that_fails_is_done_again_and_one_that_is_refused_for_ever_is_given_up(case: Case) -> None:
    released = case.slurm.release

    def refuse(ids: Sequence[int]) -> None:
        raise SlurmRefused("Access/permission denied")

    case.slurm.release = refuse  # type: ignore[method-assign]
    case.start()
    case.until(lambda: case.slurm.handed)
    case.slurm.release = released  # type: ignore[method-assign]
    case.until(lambda: case.slurm.said == [("release", (1,))])
    case.slurm.release = refuse  # type: ignore[method-assign]
    case.start("2")
    case.until(lambda: any(isinstance(each, NotBegun) and each.job == "2" for each in case.reports))


def test_time_that_the_controller_was_away_is_not_held_against_a_job(case: Case) -> None:
    case.start()
    case.until(lambda: case.slurm.said)
    case.slurm.away = True
    end = time.monotonic() + 2 * RULES.start_timeout
    case.until(lambda: time.monotonic() > end)
    case.slurm.away = False
    seen = case.slurm.listings
    case.until(lambda: case.slurm.listings >= seen + 2)
    assert case.reports == [] and case.slurm.table[1].state == "PENDING"


def test_who_stops_an_attempt_that_waits_makes_sure_that_it_never_begins(case: Case) -> None:
    folder = case.start()
    case.until(lambda: case.slurm.said)
    case.engine.stop("1", 1, 10.0)
    assert folder.look().stage is Stage.VOID  # at once, before anybody is told
    end = case.ended()
    assert isinstance(end, NotBegun) and end.void


def test_who_is_asked_to_leave_is_told_by_file_and_signal_and_cancelled_if_he_stays(case: Case) -> None:
    folder = case.start()
    case.until(lambda: case.slurm.said)
    case.slurm.runs(1, folder.path, "n1")
    case.until(lambda: case.reports)
    case.slurm.away = True
    case.engine.stop("1", 1, 0.1)
    assert (folder.path / "wish").read_text().split() == ["leave", "0.1"]  # heard without any controller
    case.slurm.away = False
    case.until(lambda: ("nudge", (1,)) in case.slurm.said)
    case.until(lambda: ("cancel", (1,)) in case.slurm.said)
    assert isinstance(case.ended(), Vanished)  # nobody wrote down how it ended


def test_what_slurm_has_forgotten_is_told_to_go_before_it_counts_as_gone(case: Case) -> None:
    folder = case.start()
    case.until(lambda: case.slurm.said)
    case.slurm.runs(1, folder.path, "n1")
    case.until(lambda: case.reports)
    del case.slurm.table[1]
    end = case.ended()
    assert isinstance(end, Vanished) and "not known there any more" in end.cause
    assert (folder.path / "wish").read_text().split() == ["out"]


def test_a_job_that_comes_back_from_the_dead_is_cancelled(case: Case) -> None:
    """A controller that was killed may remember as running what ended just before."""
    folder = case.start()
    case.until(lambda: case.slurm.said)
    case.slurm.runs(1, folder.path, "n1")
    case.slurm.ends(1, folder.path, 0)
    case.ended()
    case.slurm.change(1, state="RUNNING")
    case.until(lambda: ("cancel", (1,)) in case.slurm.said)


def test_who_ended_while_nobody_could_tell_slurm_has_ended_as_he_says(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut link: the batch process is gone, the controller does not know. We end the job there; that is no fault of
    anybody's."""
    monkeypatch.setattr("dally.live.slurm.comparing._STUCK", 0.1)
    folder = case.start()
    case.until(lambda: case.slurm.said)
    case.slurm.runs(1, folder.path, "n1")
    case.slurm.ends(1, folder.path, 3, "RUNNING")
    assert case.ended() == Exited("1", 1, 3)
    assert ("cancel", (1,)) in case.slurm.said


def test_looks_ask_once_for_all_however_many_there_are(case: Case) -> None:
    for number in range(20):
        folder = case.start(str(number))
        case.until(lambda number=number: len(case.slurm.table) > number)
        case.slurm.runs(number + 1, folder.path, "n1")
    case.until(lambda: len(case.reports) == 20)
    calls, listings = case.slurm.calls, case.slurm.listings
    case.a_while()
    looks = case.slurm.listings - listings
    assert looks and case.slurm.calls - calls <= 3 * looks  # jobs, and now and then nodes


def test_jobs_of_another_service_and_of_another_user_are_not_ours(case: Case) -> None:
    mark = f"dally:{case.engine.service}:1:1:abc"
    case.slurm.table[50] = SlurmJob(50, "RUNNING", "None", 4242, "eve", "x", mark, nodes=("n2",), gpus={"n2": {None: 3}})
    case.slurm.table[51] = SlurmJob(51, "RUNNING", "None", 0, "me", "x", "dally:abcdef:1:1:abc", nodes=("n1",),
                                    gpus={"n1": {None: 2}})  # fmt: skip
    stood: dict[str, Standing] = {}
    end = time.monotonic() + 20
    while len(stood) < 2 or any(each.withheld == 0 for each in stood.values()):
        assert time.monotonic() < end, stood
        stood |= {each.machine: each for each in case.engine.observe(0.02) if isinstance(each, Standing)}
    assert (stood["r1/n1"].withheld, stood["r1/n2"].withheld) == (2, 3)
    assert case.engine.running() == {} and not case.slurm.said


def test_a_stranger_is_found_when_an_engine_comes_up_be_it_after_a_controller_that_was_away(case: Case) -> None:
    folder = case.start()
    case.until(lambda: case.slurm.said)
    case.slurm.runs(1, folder.path, "n1")
    case.until(lambda: case.reports)
    case.engine.close()
    case.reports.clear()
    case.slurm.away = True
    case.new()
    assert case.engine.running() == {}
    case.a_while()
    case.slurm.away = False
    case.until(lambda: case.reports == [Began("1", 1)])
    case.engine.stop("1", 1, 0.0)
    case.until(lambda: ("cancel", (1,)) in case.slurm.said)


def test_nodes_of_reservations_get_nothing_new_unless_it_is_ours(case: Case) -> None:
    now = time.time()
    case.slurm.reserved = [Reservation("maintenance", ("n1",), now + 60, now + 9999), Reservation("ours", ("n2",), now, now + 9999)]
    case.engine.close()
    case.new(options=("--reservation=ours",))
    stood: dict[str, str] = {}
    end = time.monotonic() + 20
    while len(stood) < 2:
        assert time.monotonic() < end
        stood |= {each.machine: each.state for each in case.engine.observe(0.02) if isinstance(each, Standing)}
    assert stood == {"r1/n1": "drained", "r1/n2": "up"}
