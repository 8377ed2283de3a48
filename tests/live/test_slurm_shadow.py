"""The dry run: what a policy would do with everybody's jobs, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

from dally.core.topology import Level, MachineSpec, build_topology
from dally.live.slurm.gain import SeenJob, gain
from dally.live.slurm.ordering import node_of
from dally.live.slurm.reading import SlurmJob, SlurmNode
from dally.live.slurm.shadow import Shadow

TREE = build_topology((Level("machine"), Level("rack"), Level("cluster")),
                      [MachineSpec((f"r{n // 2}", f"n{n}"), 4) for n in range(4)], name="four")  # fmt: skip
NODES = [node_of(name)[0] for name in TREE.machine_names]
UP = [SlurmNode(name, name, "IDLE", gpus={None: 4}) for name in NODES]


def waits(number: int, gpus: int, submitted: float, reason: str = "Priority") -> SlurmJob:
    return SlurmJob(number, "PENDING", reason, 5, "ann", wanted=gpus, submitted=submitted)


def runs(job: SlurmJob, started: float, *nodes: int) -> SlurmJob:
    each = job.wanted // len(nodes)
    return replace(job, state="RUNNING", started=started, nodes=tuple(NODES[n] for n in nodes),
                   gpus={NODES[n]: {None: each} for n in nodes})  # fmt: skip


def test_what_the_policy_would_start_is_said_at_once_and_when_slurm_has_done_it() -> None:
    said: list[str] = []
    shadow = Shadow(TREE, "fifo", 1000.0, said.append)
    first, second = waits(1, 16, 1000.0), waits(2, 4, 1001.0)
    shadow.see(1001.0, [first], UP)
    assert len(said) == 1 and said[0].startswith("job 1 (16 GPUs, ann): fifo would start it now on")
    shadow.see(1011.0, [runs(first, 1010.0, 0, 1, 2, 3), second], UP)
    assert said[1].startswith("job 1: Slurm has started it on") and "9 s after the policy would have" in said[1]
    assert len(said) == 2  # all GPUs are taken: nothing would be started
    shadow.see(1020.0, [replace(runs(first, 1010.0, 0, 1, 2, 3), state="COMPLETED", ended=1019.0), second], UP)
    assert said[2].startswith("job 2 (4 GPUs, ann): fifo would start it now")
    assert shadow.seen["1"].ended == 1019.0


def test_held_jobs_and_those_that_wait_for_others_are_not_the_policys() -> None:
    said: list[str] = []
    shadow = Shadow(TREE, "fifo", 0.0, said.append)
    shadow.see(1.0, [waits(1, 1, 0.0, "Dependency"), replace(waits(2, 1, 0.0), held=True), waits(3, 0, 0.0)], UP)
    assert said == []


def test_drained_nodes_are_not_used_in_the_shadow_either() -> None:
    said: list[str] = []
    shadow = Shadow(TREE, "fifo", 0.0, said.append)
    closed = [replace(node, flags=frozenset({"DRAIN"})) for node in UP]
    shadow.see(1.0, [waits(1, 4, 0.0)], closed)
    assert said == []
    shadow.see(2.0, [waits(1, 4, 0.0)], [*closed[:1], UP[1], *closed[2:]])
    assert NODES[1] in said[0]


def test_what_would_have_been_gained_is_simulated_from_what_was_seen() -> None:
    """Slurm let a small job wait behind a large one though GPUs were free; with backfill nobody would have."""
    big = SeenJob("1", "ann", 12, 0.0, 0.0, 100.0, None, tuple(NODES[:3]))
    whole = SeenJob("2", "ann", 16, 1.0, 100.0, 200.0, None, tuple(NODES))
    small = SeenJob("3", "bob", 4, 2.0, 200.0, 210.0, 10.0, (NODES[3],))
    found = gain([big, whole, small], TREE, "fifo[backfill=true]", 0.0, 300.0)
    assert (found.jobs, found.running, found.before) == (3, 0, 0)
    assert found.slurm.jct == (100.0 + 199.0 + 208.0) / 3 and found.slurm.apart == 2
    assert found.other.jct < found.slurm.jct and found.other.wait < found.slurm.wait
    assert "simulated" in found.lines()[-1]


def test_jobs_from_before_and_jobs_that_run_are_not_compared_but_are_in_the_way() -> None:
    old = SeenJob("1", "ann", 16, 0.0, 0.0, 150.0, None, tuple(NODES))
    new = SeenJob("2", "ann", 4, 110.0, 150.0, 160.0, None, (NODES[0],))
    still = SeenJob("3", "ann", 4, 120.0, 150.0, None, None, (NODES[1],))
    found = gain([old, new, still], TREE, "fifo", 100.0, 200.0)
    assert (found.jobs, found.running, found.before) == (1, 1, 1)
    assert abs(found.other.wait - 40.0) < 1e-6  # it waits for the old one there too
    assert gain([old], TREE, "fifo", 100.0, 200.0).lines()[0].startswith("no job has come and ended yet")
