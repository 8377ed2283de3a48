"""A real slurm.conf as settings: what is read, what is said not to be done, what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from test_slurm_policy import job, told

from builders import cluster, play
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.policy import Policy
from dally.policies.options import make_policy
from dally.policies.slurm.conf import read_settings, slurm_time

CONF = """
# a cluster of the tests' own
ClusterName=lab
SlurmctldPort=6817
SchedulerType=sched/backfill
SchedulerParameters=bf_window=2880,bf_resolution=300,bf_interval=15,bf_max_job_test=1000,bf_continue,\\
 bf_busy_nodes,max_switch_wait=600,default_queue_depth=50
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightTRES=CPU=1000
PriorityMaxAge=14-0
PriorityDecayHalfLife=3-12
PriorityCalcPeriod=2
PriorityFlags=NO_FAIR_TREE,MAX_TRES
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory,CR_LLN
TopologyPlugin=topology/tree
Licenses=matlab:2
NodeName=DEFAULT CPUs=64
NodeName=m[0-1] Gres=gpu:2 Weight=5
NodeName=m[2-3] Gres=gpu:2
PartitionName=DEFAULT MaxTime=2-0
PartitionName=paid Nodes=ALL PriorityTier=10 AllowAccounts=rich
PartitionName=free Nodes=m[0-1] Default=YES DefaultTime=30 PreemptMode=OFF
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "slurm.conf"
    file.write_text(CONF)
    return file


def test_what_scheduling_depends_on_is_read(conf: Path) -> None:
    found, _ = read_settings(conf)
    assert (found.bf_window, found.bf_resolution, found.bf_interval) == (2880 * 60.0, 300.0, 15.0)
    assert (found.bf_max_job_test, found.default_queue_depth, found.max_switch_wait) == (1000, 50, 600.0)
    assert found.multifactor and not found.fair_tree and found.topology == "tree" and found.preempt == "partition"
    assert (found.weight_age, found.weight_fairshare) == (1000.0, 10000.0)
    assert (found.max_age, found.decay_half_life, found.calc_period) == (14 * 86400.0, 84 * 3600.0, 120.0)
    paid, free = found.partitions["paid"], found.partitions["free"]
    assert (paid.tier, paid.nodes, paid.max_time, paid.preemptable) == (10, None, 172800.0, True)
    assert (free.tier, free.nodes, free.default_time, free.preemptable) == (1, ("m0", "m1"), 1800.0, False)
    assert found.default_partition == "free" and found.weights == {"m0": 5, "m1": 5}


def test_what_changes_scheduling_and_is_not_done_is_said_once_each_and_the_rest_is_not_mentioned(conf: Path) -> None:
    _, notes = read_settings(conf)
    said = "\n".join(notes)
    for what in ("bf_busy_nodes", "priorityweighttres=CPU=1000", "PriorityFlags=MAX_TRES", "SelectTypeParameters=CR_LLN",
                 "licenses=matlab:2", "allowaccounts of partitions turn nobody away"):  # fmt: skip
        assert said.count(what) == 1, what
    assert len(notes) == 6 and "SlurmctldPort" not in said and "bf_continue" not in said


def test_the_policy_says_it_in_its_notes_and_options_win_over_the_file(conf: Path) -> None:
    policy: Policy = make_policy(f"slurm[conf={conf},bf_interval=7,weight_age=0.5]")
    assert any("bf_busy_nodes" in note for note in policy.notes(policy.new_memory()))
    assert policy.rules.settings.bf_interval == 7.0 and policy.rules.settings.weight_age == 0.5  # type: ignore[attr-defined]
    assert policy.rules.settings.bf_window == 2880 * 60.0  # type: ignore[attr-defined]


def test_partitions_of_the_file_hold_their_jobs_on_their_nodes_and_to_their_limits(conf: Path) -> None:
    jobs = [told(job("a", 2, 100), 120, tenant="free"), told(job("b", 2, 100), 120, tenant="free"),
            told(job("c", 2, 100), 120, tenant="free"), told(job("d", 2, 100), 120, tenant="paid"),
            told(job("e", 2, 100), 120)]  # fmt: skip
    played = play(jobs, cluster(4, 2), f"slurm[conf={conf}]")
    where = {entry.job: entry.placement.slices[0][0] for _, entry in played.of(pl.Start)}  # type: ignore[union-attr]
    assert where["d"] == 2  # the lightest nodes
    assert {where[name] for name in "abce"} <= {0, 1}  # e names no partition: the default one
    assert played.end("c") and played.end("c") > 150  # type: ignore[operator]


def test_without_topology_in_the_file_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "slurm.conf"
    file.write_text("SchedulerType=sched/builtin\n")
    found, notes = read_settings(file)
    assert (found.topology, found.backfill, notes) == ("flat", False, [])


@pytest.mark.parametrize(("text", "seconds"), [("5", 300.0), ("5:30", 330.0), ("2:00:00", 7200.0), ("7-0", 604800.0),
                                               ("1-12:30:15", 131415.0), ("UNLIMITED", math.inf)])  # fmt: skip
def test_times_are_slurms(text: str, seconds: float) -> None:
    assert slurm_time(text, "here", "MaxTime") == seconds


@pytest.mark.parametrize(("text", "why"), [
    ("SchedulerParameters=bf_interval=soon", "line 1: bf_interval=soon is no number"),
    ("PriorityMaxAge=long", "line 1: prioritymaxage=long is no time of Slurm's"),
    ("PreemptType=preempt/luck", "line 1: PreemptType=preempt/luck is not known"),
    ("SchedulerType=sched/wishful", "line 1: SchedulerType=sched/wishful is not known"),
    ("PartitionName=a Nodes=n[1-", "line 1: "),
    ("PartitionName=a PriorityTier=high", "line 1: prioritytier=high is no number"),
    ("# nothing", "has no line of a slurm.conf"),
])  # fmt: skip
def test_a_file_that_makes_no_sense_is_refused_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "slurm.conf"
    file.write_text(text)
    with pytest.raises(UserError, match=why):
        make_policy(f"slurm[conf={file}]")
