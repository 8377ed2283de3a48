"""Jobs as their history has them: nodes × GPUs, partitions, exclusive nodes and time limits, under every policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builders import RACKS, Played, Spec, cluster, job, play
from dally.catalog.clusters import load_cluster
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job, Truth
from dally.core.placement import Placement
from dally.core.plan import Demand, demand_of_job
from dally.core.shape import broken, fits_empty
from dally.core.topology import MachineSpec, Topology, build_topology
from dally.core.topology_text import topology_from_plain, topology_to_plain
from dally.experiments.checks.checking import check_policy
from dally.policies.options import all_policies
from dally.simulator.shaping import NO_SHAPE, shaped_for
from dally.traces import load_trace
from dally.traces.trace import Trace

NAMES = [name for name, _ in all_policies()]
TWO = build_topology(RACKS, [MachineSpec((f"r{i // 2}", f"n{i}"), 4, sets=("a" if i < 2 else "b", "feature:ib"))
                             for i in range(4)], name="two partitions")  # fmt: skip


def asks(spec: Spec, **wishes: object) -> Spec:
    return replace(spec, job=replace(spec.job, **wishes))  # type: ignore[arg-type]


def places(played: Played, job_id: str) -> list[Placement]:
    return [entry.placement for _, entry in played.entries
            if isinstance(entry, (pl.Start, pl.Migrate)) and entry.job == job_id]  # fmt: skip


@pytest.mark.parametrize("policy", NAMES)
def test_no_policy_splits_a_one_node_job_or_leaves_the_partition(policy: str) -> None:
    (found,) = check_policy(policy, worlds=12, first=7000, only=["shapes"])
    assert found.holds, found.what


@pytest.mark.parametrize("policy", NAMES)
def test_nodes_times_gpus_are_kept_exactly(policy: str) -> None:
    blockers = [job(f"b{i}", 3, 100.0 + i) for i in range(4)]  # one GPU of every machine is left
    played = play([*blockers, asks(job("two", 4, 10.0, 1.0), nodes=2)], cluster(2, 2, 4), policy)
    assert played.outcome("two") == "finished"
    for placement in places(played, "two"):
        assert [mask.bit_count() for _, mask in placement.slices] == [2, 2]


@pytest.mark.parametrize("policy", NAMES)
def test_jobs_of_a_full_partition_wait_beside_one_that_is_empty(policy: str) -> None:
    jobs = [asks(job(f"j{i}", 4, 50.0 + i, float(i)), among="a", nodes=1) for i in range(4)]
    played = play(jobs, TWO, policy)
    used = {machine for i in range(4) for placement in places(played, f"j{i}") for machine, _ in placement.slices}
    assert used == {0, 1} and all(played.outcome(f"j{i}") == "finished" for i in range(4))


def test_a_plan_that_breaks_a_shape_is_refused_in_a_sentence() -> None:
    one = demand_of_job(Job("a", 0.0, 4, nodes=1))
    assert broken(TWO, one, Placement.of([(0, 0b11), (1, 0b11)])) == (
        "must be on one machine and is given GPUs of 2 (2, 2)")
    uneven = broken(TWO, demand_of_job(Job("a", 0.0, 4, nodes=2)), Placement.of([(0, 0b111), (1, 0b1)]))
    assert uneven == "must be on 2 machines, 2 GPUs on each, and is given GPUs of 2 (3, 1)"
    other = broken(TWO, demand_of_job(Job("a", 0.0, 4, among="b")), Placement.of([(0, 0b1111)]))
    assert other == "must be among b, and machine r0/n0 is not of them"


@pytest.mark.parametrize(("wishes", "fits"), [
    ({"gpus": 8, "nodes": 1}, False), ({"gpus": 8, "nodes": 2}, True), ({"gpus": 8, "nodes": 2, "among": "a"}, True),
    ({"gpus": 12, "nodes": 3, "among": "a"}, False), ({"gpus": 12, "nodes": 3, "among": "a|b"}, True),
    ({"gpus": 4, "among": "a&b"}, False), ({"gpus": 8, "nodes": 4, "within": "rack"}, False),
    ({"gpus": 4, "among": "n3"}, True), ({"gpus": 4, "among": "nowhere"}, False),
])  # fmt: skip
def test_who_fits_nowhere_is_turned_away(wishes: dict[str, object], fits: bool) -> None:
    assert fits_empty(TWO, demand_of_job(Job("a", 0.0, **wishes))) == fits  # type: ignore[arg-type]
    spec = asks(job("a", 1, 10.0), **wishes)
    assert play([spec], TWO, "fifo").outcome("a") == ("finished" if fits else "rejected")


def test_sets_of_machines_are_part_of_the_journal_and_outlive_a_change_of_the_cluster() -> None:
    again = topology_from_plain(topology_to_plain(TWO))
    assert again.sets == TWO.sets and again.among("a&feature:ib|b") == 0b1111
    assert Demand(4, None).short == (4, None)
    assert pl.demand_of(*demand_of_job(Job("a", 0.0, 4, nodes=2, among="a")).short) == demand_of_job(  # type: ignore[arg-type]
        Job("a", 0.0, 4, nodes=2, among="a"))  # fmt: skip


def test_a_job_over_its_limit_is_ended_and_says_so() -> None:
    far = [job("wide", 3, 900.0), job("too", 3, 900.0), asks(job("slow", 2, 120.0, 1.0), limit=121.0)]
    played = play(far, cluster(2, 4), "fifo", network="level-penalty")
    ((when, end),) = played.of(ev.Failed, "slow")
    assert isinstance(end, ev.Failed) and end.cause.startswith("it reached its time limit of ")
    assert (when, played.outcome("slow"), played.outcome("wide")) == (122.0, "failed", "finished")


def test_a_job_whose_history_ended_at_its_limit_ends_there_as_well() -> None:
    played = play([asks(job("a", 1, 100.0), limit=100.0)], cluster(1, 4), "fifo")
    assert (played.outcome("a"), played.end("a")) == ("finished", 100.0)


CONF = """
NodeName=g[0-1] Gres=gpu:a100:4 Feature=ib,big
NodeName=h[0-1] Gres=gpu:h100:4
NodeSet=fast Feature=ib
PartitionName=DEFAULT MaxTime=1-0
PartitionName=gpu Nodes=fast Default=YES
PartitionName=hopper Nodes=h[0-1]
PartitionName=all Nodes=ALL
"""
DUMP = """JobID|Submit|Eligible|Start|End|State|AllocTRES|TimelimitRaw|User|Account|Partition|QOS|JobName|NNodes|NodeList|Constraints
1|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:01:00|COMPLETED|gres/gpu=8|120|u|acc|gpu|high|train|2|g[0-1]|ib&big
2|2026-01-01T00:00:10|2026-01-01T00:10:00|2026-01-01T00:20:00|2026-01-01T00:30:05|TIMEOUT|gres/gpu=4|10|u|acc|hopper,gpu|low|test|1|h0|
"""


@pytest.fixture
def history(tmp_path: Path) -> tuple[Trace, Topology]:
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "dump.txt").write_text(DUMP)
    return load_trace(str(tmp_path / "dump.txt")), load_cluster(str(tmp_path / "slurm.conf"))


def test_a_history_says_where_when_and_for_how_long(history: tuple[Trace, Topology]) -> None:
    trace, _ = history
    first, second = sorted(trace.jobs, key=lambda job: job.id)
    truths = {job.id: truth for job, truth in zip(trace.jobs, trace.truths, strict=True)}
    assert (first.nodes, first.partition, first.qos, first.name, first.limit) == (2, "gpu", "high", "train", 7200.0)
    assert first.among == "feature:ib&feature:big" and truths["1"].start == 60.0
    assert (second.submit_time, truths["2"].submitted, truths["2"].start) == (600.0, 10.0, 1200.0)


def test_partitions_and_features_of_the_cluster_bind_the_jobs(history: tuple[Trace, Topology]) -> None:
    trace, topology = history
    assert topology.sets == {"feature:ib": 0b0011, "feature:big": 0b0011, "gpu": 0b0011, "hopper": 0b1100, "all": 0b1111}
    shaped = shaped_for(trace, topology)
    first, second = sorted(shaped.jobs, key=lambda job: job.id)
    assert topology.among(first.among or "") == 0b0011 and second.among == "hopper|gpu"
    assert {truth.duration for truth in shaped.truths} == {3600.0, 600.0}  # five seconds of grace are not run time


def test_what_the_cluster_does_not_know_is_dropped_and_counted() -> None:
    topology = cluster(2, 2, 2)
    jobs = [Job("a", 0.0, 8, nodes=2, partition="gpu"), Job("b", 0.0, 4, nodes=2, exclusive=True)]
    shaped = shaped_for(Trace("t", "made", jobs, [Truth(10.0), Truth(10.0)]), topology)
    assert shaped.jobs[0].nodes is None and shaped.jobs[0].among is None
    assert any(NO_SHAPE in note for note in shaped.notes) and any("names none" in note for note in shaped.notes)


def test_a_job_that_has_its_nodes_to_itself_holds_all_of_their_gpus() -> None:
    jobs = [Job("a", 0.0, 2, nodes=2, exclusive=True)]
    (made,) = shaped_for(Trace("t", "made", jobs, [Truth(10.0)]), cluster(2, 2, 4)).jobs
    assert (made.gpus, made.nodes) == (8, 2)
