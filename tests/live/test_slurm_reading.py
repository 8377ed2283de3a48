"""What Slurm's commands print, read: written by hand after the forms of 22.05, with what people put into their fields."""

from __future__ import annotations

import pytest

from dally.live.engine import Exited, NotBegun, Standing, Vanished
from dally.live.local.folder import Look, Stage
from dally.live.slurm.batch import LOST
from dally.live.slurm.ordering import Mark, node_of, read_mark
from dally.live.slurm.reading import (
    Reservation,
    SlurmJob,
    SlurmNode,
    read_jobs,
    read_nodes,
    read_reservations,
    seconds,
    topology_conf,
)
from dally.live.slurm.standing import reserved, standings, state_of, used_by_others
from dally.live.slurm.verdict import Told, elsewhere, ended

RUNNING = (
    "JobId=7 JobName=bert large UserId=ann(1001) GroupId=ann(1001) MCS_label=N/A Priority=42 Nice=0 Account=(null) "
    "QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=0 Restarts=1 BatchFlag=1 ExitCode=0:0 "
    "RunTime=00:00:02 TimeLimit=1-02:03:04 SubmitTime=1700000000 StartTime=1700000060 EndTime=1700090000 "
    "Partition=gpu ReqNodeList=n[1-2] ExcNodeList=(null) NodeList=n[1-3] BatchHost=n1 NumNodes=3 NumCPUs=4 NumTasks=4 "
    "JOB_GRES=gpu:a100:5   Nodes=n1 CPU_IDs=12-14 Mem=0 GRES=gpu:a100:3(IDX:0-2)   Nodes=n[2-3] CPU_IDs=12 Mem=0 "
    "GRES=gpu:a100:1(IDX:0) MinCPUsNode=1 Command=/home/ann/x.sh WorkDir=/home/ann Comment=dally:ab12:9:2:ff  "
    "StdOut=/dev/null Power= TresPerNode=gres:gpu:a100:1"
)
PENDING = (
    "JobId=8 JobName=x JobState=RUNNING Comment=dally:ab12:1:1:ff UserId=eve(6) GroupId=eve(6) Priority=0 "
    "JobState=PENDING Reason=JobHeldUser Dependency=(null) Requeue=1 Restarts=0 TimeLimit=UNLIMITED "
    "SubmitTime=1700000000 StartTime=Unknown EndTime=Unknown Partition=gpu NodeList=(null) NumNodes=2-2 NumTasks=2 "
    "TresPerNode=gres:gpu:2"
)


def test_a_job_that_runs_has_its_gpus_node_by_node() -> None:
    (job,) = read_jobs(RUNNING)
    assert (job.id, job.name, job.user, job.uid, job.state, job.restarts) == (7, "bert large", "ann", 1001, "RUNNING", 1)
    assert job.nodes == ("n1", "n2", "n3") and job.gpus == {"n1": {"a100": 3}, "n2": {"a100": 1}, "n3": {"a100": 1}}
    assert job.wanted == 5 and job.active and not job.over and not job.waiting
    assert (job.submitted, job.started, job.time_limit) == (1700000000.0, 1700000060.0, 93784.0)
    assert read_mark(job.comment) == Mark("ab12", "9", 2, "ff")


def test_a_job_cannot_pass_for_another_by_its_name() -> None:
    (job,) = read_jobs(PENDING)
    assert (job.state, job.uid, job.comment, job.held, job.waiting, job.wanted) == ("PENDING", 6, "", True, True, 4)
    assert job.time_limit is None and job.started is None and not job.gpus


@pytest.mark.parametrize("text", ["No jobs in the system", "", "JobId=3", "JobId=x JobName=a UserId=b(1) JobState=RUNNING",
                                  "slurm_load_jobs error: something"])  # fmt: skip
def test_what_is_no_job_is_passed_over(text: str) -> None:
    assert read_jobs(text) == []
    assert len(read_jobs(f"{text}\n{RUNNING}")) == 1


@pytest.mark.parametrize(("asked", "wanted"), [
    ("TresPerJob=gres:gpu:6", 6), ("TresPerTask=gres:gpu:1", 3), ("TresPerNode=gres:gpu:a100:2", 4),
    ("TresPerNode=gres:nvme:2", 0), ("TresPerNode=gres/gpu:4", 8), ("", 0),
])  # fmt: skip
def test_a_job_that_waits_says_in_one_of_many_ways_how_many_gpus_it_wants(asked: str, wanted: int) -> None:
    (job,) = read_jobs(f"JobId=1 JobName=a UserId=b(1) JobState=PENDING Reason=None NumNodes=2 NumTasks=3 {asked}")
    assert job.wanted == wanted


def test_nodes_with_their_states_and_flags() -> None:
    text = ("NodeName=n1 Gres=gpu:a100:4(S:0-1) GresUsed=gpu:a100:2(IDX:0-1) NodeAddr=10.0.0.1 State=MIXED+DRAIN "
            "ThreadsPerCore=1 Reason=bad fan [root@2026-11-16T13:00:00]\n"
            "NodeName=n2 Gres=(null) NodeAddr=n2 State=DOWN* ThreadsPerCore=1\n"
            "NodeName=n3 Gres=gpu:2 NodeAddr=n3 State=IDLE*+CLOUD ThreadsPerCore=1\n")  # fmt: skip
    one, two, three = read_nodes(text)
    assert (one.state, one.flags, one.gpus, one.used, one.address) == ("MIXED", {"DRAIN"}, {"a100": 4}, {"a100": 2}, "10.0.0.1")
    assert one.reason.startswith("bad fan")
    assert (two.state, two.flags, two.gpus) == ("DOWN", {"NOT_RESPONDING"}, {})
    assert (three.state, three.flags) == ("IDLE", {"NOT_RESPONDING", "CLOUD"})


def test_the_topology_is_as_its_file_would_have_it() -> None:
    text = ("SwitchName=r1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=r2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
            "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=r[1-2]\n")  # fmt: skip
    assert topology_conf(text) == "SwitchName=r1 Nodes=n[1-2]\nSwitchName=r2 Nodes=n[3-4]\nSwitchName=top Switches=r[1-2]"
    assert topology_conf("No topology information available") == ""


def test_reservations_hold_nodes_now_and_soon() -> None:
    text = ("ReservationName=night StartTime=1000 EndTime=2000 Duration=00:16:40 Nodes=n[1-2] NodeCnt=2 "
            "Flags=MAINT,SPEC_NODES Users=root\nReservationName=ours StartTime=100 EndTime=9000 Nodes=n2 Flags=\n")  # fmt: skip
    found = read_reservations(text)
    assert found[0] == Reservation("night", ("n1", "n2"), 1000.0, 2000.0, frozenset({"MAINT", "SPEC_NODES"}))
    assert reserved(found, 500.0, 0.0, {"ours"}) == {"n2": True}
    assert reserved(found, 500.0, 600.0, {"ours"}) == {"n1": False, "n2": False}
    assert reserved(found, 9500.0, 600.0, ()) == {}
    assert read_reservations("No reservations in the system") == []


@pytest.mark.parametrize(("text", "found"), [("00:10:00", 600.0), ("2-00:00:01", 172801.0), ("UNLIMITED", None), (None, None)])
def test_time_limits(text: str | None, found: float | None) -> None:
    assert seconds(text) == found


@pytest.mark.parametrize(("state", "flags", "stands"), [
    ("IDLE", (), "up"), ("MIXED", (), "up"), ("ALLOCATED", ("PLANNED",), "up"), ("IDLE", ("DRAIN",), "drained"),
    ("ALLOCATED", ("MAINTENANCE",), "drained"), ("IDLE", ("NOT_RESPONDING",), "drained"), ("DOWN", (), "down"),
    ("DOWN", ("DRAIN",), "down"), ("IDLE", ("INVALID_REG",), "down"), ("UNKNOWN", (), "down"),
])  # fmt: skip
def test_how_a_node_stands(state: str, flags: tuple[str, ...], stands: str) -> None:
    node = SlurmNode("n1", "n1", state, frozenset(flags))
    assert state_of(node, ours=False) == stands
    assert state_of(node, ours=True) == ("drained" if stands == "down" else stands)


def test_a_node_that_slurm_does_not_know_is_down_and_others_have_what_they_have() -> None:
    from builders import cluster

    topology = cluster(1, 2, 4)
    first = node_of(topology.machine_names[0])[0]
    theirs = SlurmJob(1, "RUNNING", "", 5, nodes=(first,), gpus={first: {"a100": 3}})
    ours = SlurmJob(2, "COMPLETING", "", 0, nodes=(first,), gpus={first: {None: 1}})
    waits = SlurmJob(3, "PENDING", "", 5, wanted=4)
    assert used_by_others([theirs, ours, waits], {2}) == {first: {"a100": 3}}
    found = standings(topology, [SlurmNode(first, first, "MIXED", gpus={None: 4})], [theirs, ours, waits], {2}, {})
    assert found == [Standing(topology.machine_names[0], "up", 3), Standing(topology.machine_names[1], "down", 0)]


KEY = ("1", 2)


def _job(state: str) -> SlurmJob:
    return SlurmJob(12, state, "", 0, nodes=("n1",))


@pytest.mark.parametrize(("state", "seen", "told", "found"), [
    ("COMPLETED", Look(Stage.OVER, 0), Told(), Exited(*KEY, 0)),
    ("FAILED", Look(Stage.OVER, 3), Told(), Exited(*KEY, 3)),
    ("CANCELLED", Look(Stage.OVER, 143), Told(), Exited(*KEY, 143, "its Slurm job 12 was cancelled behind our back (scancel)")),
    ("CANCELLED", Look(Stage.OVER, 3, asked="term"), Told(), Exited(*KEY, 3, "its Slurm job 12 was cancelled behind our back (scancel)")),
    ("CANCELLED", Look(Stage.OVER, 3), Told(), Exited(*KEY, 3)),  # it had ended, and Slurm did not know
    ("TIMEOUT", Look(Stage.OVER, 3), Told(), Exited(*KEY, 3)),
    ("CANCELLED", Look(Stage.OVER, 143), Told(asked=True), Exited(*KEY, 143)),
    ("CANCELLED", Look(Stage.OVER, -9, asked="out"), Told(), Exited(*KEY, -9)),  # by an engine before this one
    ("CANCELLED", Look(Stage.OVER, 143, asked="out"), Told(cause="edited"), Vanished(*KEY, "edited")),  # by this one
    ("FAILED", Look(Stage.OVER, LOST, "n2 is silent"), Told(), Vanished(*KEY, "n2 is silent")),
    ("CANCELLED", Look(Stage.GONE, asked="leave"), Told(), Vanished(
        *KEY, "its Slurm job 12 ended as CANCELLED, and how the attempt ended is not on record")),
    ("CANCELLED", Look(Stage.VOID), Told(given_up=True), NotBegun(*KEY, "it never began", void=True)),
    ("CANCELLED", Look(Stage.OVER, 0), Told(), Exited(*KEY, 0)),
    ("CANCELLED", Look(Stage.GONE), Told(), Exited(*KEY, -9, "its Slurm job 12 was cancelled behind our back (scancel)")),
    ("CANCELLED", Look(Stage.OVER, 143), Told(requeued=True), Exited(*KEY, 143, asked=True)),
    ("COMPLETED", Look(Stage.OVER, 143, asked="leave"), Told(), Exited(*KEY, 143, asked=True)),
    ("TIMEOUT", Look(Stage.OVER, 143), Told(), Exited(*KEY, 143, "Slurm's time limit for it was over")),
    ("PREEMPTED", Look(Stage.OVER, 143), Told(), Exited(*KEY, 143, asked=True)),
    ("NODE_FAIL", Look(Stage.OVER, -15), Told(), Vanished(*KEY, "its Slurm job 12 ended as NODE_FAIL")),
    ("FAILED", Look(Stage.REFUSED, cause="no such program", pid=7), Told(), NotBegun(*KEY, "no such program")),
    ("NODE_FAIL", Look(Stage.REFUSED, cause="it died"), Told(), NotBegun(*KEY, "it died", void=True)),
    ("CANCELLED", Look(Stage.VOID), Told(asked=True), NotBegun(*KEY, "it never began", void=True)),
    ("CANCELLED", Look(Stage.VOID), Told(), NotBegun(*KEY, "its Slurm job 12 was cancelled behind our back (scancel) before it began")),
    ("CANCELLED", Look(Stage.VOID), Told(cause="too slow"), NotBegun(*KEY, "too slow", void=True)),
    ("FAILED", Look(Stage.VOID), Told(complaint="python: not found"),
     NotBegun(*KEY, "its Slurm job 12 could not start it: python: not found", void=True)),
])  # fmt: skip
def test_how_an_attempt_ended_by_two_witnesses(state: str, seen: Look, told: Told, found: object) -> None:
    assert ended(KEY, _job(state), seen, told) == found


def test_who_is_gone_without_a_word_has_vanished() -> None:
    for job in (_job("NODE_FAIL"), None):
        end = ended(KEY, job, Look(Stage.GONE), Told())
        assert isinstance(end, Vanished) and "not on record" in end.cause


def test_a_job_that_runs_elsewhere_than_decided_is_not_ours_any_more() -> None:
    assert elsewhere(_job("RUNNING"), ["n1"]) == "" and elsewhere(_job("PENDING"), ["n2"]) == ""
    assert "edited behind our back" in elsewhere(_job("RUNNING"), ["n2"])
