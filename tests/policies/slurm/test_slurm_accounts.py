"""What the accounting says and Slurm heeds: shares over a tree, limits of QOS, accounts and users, reservations."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_slurm_policy import AT_ONCE, NODE, PAIR, began, starts, told

from builders import job, play
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.reasons import Token
from dally.policies.options import make_policy
from dally.policies.slurm.accounts import Accounts, Association
from dally.policies.slurm.conf import read_settings
from dally.policies.slurm.dumps import read_accounts
from dally.policies.slurm.priority import fair_shares
from dally.policies.slurm.sharetree import tree_shares

ASSOC = """Cluster|Account|User|Partition|Share|GrpJobs|GrpTRES|GrpTRESRunMins|MaxJobs|MaxTRES|MaxWall|QOS
lab|root|||1|||||||normal
lab| vision|||3||gres/gpu=4|||||normal
lab|  faces|||1|||||gres/gpu=8||normal
lab|  faces|ann||parent|||||||normal
lab| vision|bob||2||||1|||normal
lab| speech|||1||cpu=99|gres/gpu=60||||normal
lab| speech|eve||1|||||||normal
"""
QOS = """Name|Priority|Preempt|Flags|UsageFactor|GrpTRES|MaxTRESPU|MaxJobsPU|MaxTRESPA|MaxSubmitPU|PreemptExemptTime
normal|10|scavenge||1.000000||gres/gpu=3|||100|
scavenge|0||NoReserve|0.500000|||1||| 00:05:00
typed|0||||gres/gpu:gpu=2||||||
"""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    folder = tmp_path / "accounting"
    folder.mkdir()
    (folder / "assoc.txt").write_text(ASSOC)
    (folder / "qos.txt").write_text(QOS)
    (folder / "noise.bin").write_bytes(b"\xff\xfe\x00")
    return folder


def of(spec: object, account: str, user: str, qos: str = "none", **more: object) -> object:
    """A job of that user, as a sacct dump has it: its tenant is the account."""
    return told(spec, more.pop("limit", 60), tenant=account, user=user, qos=qos, partition="gpu", **more)  # type: ignore[arg-type]


# --- what is read -------------------------------------------------------------------------------------------------


def test_accounts_users_qos_and_their_limits_are_read_and_what_is_not_done_is_said(dump: Path) -> None:
    found, notes = read_accounts(dump)
    known = found.associations
    assert known["faces", None].parent == "vision" and known["vision", None].parent == "root"
    assert known["vision", "bob"].shares == 2 and known["vision", "bob"].each.jobs == 1
    assert known["vision", None].group.gpus == 4 and known["speech", None].group.gpu_seconds == 3600
    assert found.qos["normal"].per_user.gpus == 3 and found.qos["normal"].preempt == {"scavenge"}
    assert not found.qos["scavenge"].reserves and found.qos["scavenge"].exempt_time == 300
    assert found.qos["typed"].group.typed == (("gpu", 2),)
    said = "\n".join(notes)
    assert "4 accounts, 3 users in them, 3 QOS and 0 reservations are read; 6 of" in said
    assert "maxsubmitpu" in said and "limits of cpu" in said and "limits of single jobs" in said and "`parent`" in said


def test_a_dump_of_sacctmgr_says_the_same_as_its_tables(tmp_path: Path) -> None:
    file = tmp_path / "lab.cfg"
    file.write_text("""# sacctmgr dump lab
Cluster - 'lab':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'vision':Description='who: sees':Organization='lab':Fairshare=3:GrpTRES=gres/gpu:a100=8,gres/gpu=16
Parent - 'vision'
User - 'bob':DefaultAccount='vision':Fairshare=2:MaxJobs=1
""")
    known = read_accounts(file)[0].associations
    assert known["vision", None].shares == 3 and known["vision", None].group.typed == (("a100", 8),)
    assert known["vision", None].group.gpus == 16 and known["vision", "bob"].each.jobs == 1


def test_what_is_no_dump_of_accounts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello\n")
    with pytest.raises(UserError, match="has nothing that sacctmgr"):
        make_policy(f"slurm[accounts={tmp_path / 'x.txt'}]")
    with pytest.raises(UserError, match="cannot be read"):
        make_policy(f"slurm[accounts={tmp_path / 'nowhere'}]")
    with pytest.raises(UserError, match="limits would do nothing"):
        make_policy("slurm[limits=0.5]")


def test_limits_count_where_the_configuration_enforces_them(dump: Path, tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("SchedulerType=sched/backfill\n")
    jobs = [of(job("a", 1, 100), "vision", "bob"), of(job("b", 1, 100, 1), "vision", "bob")]
    with_dump = f"{AT_ONCE},conf={conf},accounts={dump}"
    assert starts(jobs, NODE, with_dump)["b"] < 10  # type: ignore[arg-type]
    policy = make_policy(f"slurm[{with_dump}]")
    assert any("not enforced" in note for note in policy.notes(policy.new_memory()))
    conf.write_text("SchedulerType=sched/backfill\nAccountingStorageEnforce=associations,limits,qos\n")
    assert starts(jobs, NODE, with_dump)["b"] == 100  # type: ignore[arg-type]


def test_node_sets_and_the_qos_of_a_partition_are_read(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=m[0-1] Feature=ib,big\nNodeName=m2 Feature=ib\nNodeSet=fast Feature=big\n"
                    "NodeSet=last Nodes=m2\nPartitionName=gpu Nodes=fast,last QOS=normal\n"
                    "PartitionName=big Nodes=fast\n"
                    "SchedulerParameters=bf_max_job_user=2,bf_max_job_part=9,assoc_limit_stop,partition_job_depth=5\n"
                    "FairShareDampeningFactor=3\nPreemptExemptTime=00:10:00\n")  # fmt: skip
    found, notes = read_settings(conf)
    assert found.partitions["gpu"].nodes == ("m0", "m1", "m2") and found.partitions["big"].nodes == ("m0", "m1")
    assert found.partitions["gpu"].qos == "normal" and not notes
    assert (found.bf_max_job_user, found.bf_max_job_part, found.partition_job_depth) == (2, 9, 5)
    assert found.limits_stop and found.dampening == 3.0 and found.exempt_time == 600.0


# --- limits -------------------------------------------------------------------------------------------------------


def test_a_user_runs_no_more_jobs_than_its_limit_and_others_pass(dump: Path) -> None:
    jobs = [of(job("a", 1, 100), "vision", "bob"), of(job("b", 1, 100, 1), "vision", "bob"),
            of(job("c", 1, 100, 2), "vision", "ann")]  # fmt: skip
    played = play(jobs, NODE, f"slurm[{AT_ONCE},accounts={dump}]")  # type: ignore[arg-type]
    found = began(played)
    assert found["b"] == 100 and found["c"] < 10
    told_why = [entry.reason for _, entry in played.of(pl.Wait) if getattr(entry, "what", None) == "b"
                or entry[0] == "b"]  # type: ignore[index]  # fmt: skip
    assert told_why and told_why[0].token is Token.WAITING_FOR_QUOTA and "1 of 1 jobs run" in told_why[0].sentence


def test_an_account_is_limited_together_with_those_below_it(dump: Path) -> None:
    # vision may have 4 GPUs: its own and those of faces
    jobs = [of(job("a", 3, 100), "faces", "ann"), of(job("b", 2, 100, 1), "vision", "zoe"),
            of(job("c", 2, 100, 2), "speech", "eve")]  # fmt: skip
    found = starts(jobs, PAIR, f"{AT_ONCE},accounts={dump}")  # type: ignore[arg-type]
    assert found["b"] == 100 and found["c"] < 10


def test_limits_of_a_qos_per_user_go_before_those_of_the_association(dump: Path) -> None:
    # bob's own limit is one job; scavenge's per user is one job, normal's is three GPUs and no number of jobs
    jobs = [of(job("a", 2, 100), "speech", "bob", "normal"), of(job("b", 2, 100, 1), "speech", "bob", "normal"),
            of(job("c", 2, 100, 2), "root", "eve", "normal")]  # fmt: skip
    found = starts(jobs, PAIR, f"{AT_ONCE},accounts={dump}")  # type: ignore[arg-type]
    assert found["b"] == 100 and found["c"] < 10


def test_limits_on_gpus_of_a_type_and_on_what_limits_leave_to_run(dump: Path) -> None:
    jobs = [of(job("a", 2, 100), "root", "x", "typed"), of(job("b", 1, 100, 1), "root", "y", "typed")]
    assert starts(jobs, PAIR, f"{AT_ONCE},accounts={dump}")["b"] == 100  # type: ignore[arg-type]
    # speech: limits of running jobs may leave 60 GPU minutes; `a` has 50 of them at first, and 44 when `c` comes
    jobs = [of(job("a", 1, 3000), "speech", "eve", limit=3000), of(job("b", 1, 60, 1), "speech", "eve", limit=900),
            of(job("c", 1, 60, 360), "root", "x")]  # fmt: skip
    assert starts(jobs, PAIR, f"{AT_ONCE},accounts={dump}")["b"] == 360  # type: ignore[arg-type]


def test_a_job_larger_than_a_limit_starts_alone(dump: Path) -> None:
    jobs = [of(job("a", 1, 100), "faces", "ann"), of(job("b", 6, 100, 1), "faces", "ann")]
    assert starts(jobs, PAIR, f"{AT_ONCE},accounts={dump}")["b"] == 100  # type: ignore[arg-type]


def test_limits_can_be_other_than_they_were(dump: Path) -> None:
    jobs = [of(job("a", 3, 100), "vision", "x"), of(job("b", 3, 100, 1), "vision", "y")]
    assert starts(jobs, PAIR, f"{AT_ONCE},accounts={dump}")["b"] == 100  # type: ignore[arg-type]
    for factor in ("2", "0"):
        assert starts(jobs, PAIR, f"{AT_ONCE},accounts={dump},limits={factor}")["b"] < 10  # type: ignore[arg-type]


def test_so_many_jobs_of_an_array_run_at_a_time() -> None:
    jobs = [told(job(f"7_{n}", 1, 100, n), 60, throttle=2) for n in range(4)]
    found = starts(jobs, NODE)
    assert found["7_1"] < 10 and found["7_2"] == 100


def test_backfill_tests_so_many_jobs_of_one_user() -> None:
    jobs = [told(job("runs", 3, 600), 600, user="x"),
            *(told(job(f"big{n}", 4, 60, 1), 60, user="a") for n in range(2)),
            told(job("short", 1, 60, 3), 60, user="a"), told(job("other", 1, 60, 4), 60, user="b")]  # fmt: skip
    found = starts(jobs, NODE, AT_ONCE + ",bf_max_job_user=2")
    assert found["short"] >= 600 and found["other"] < 100


# --- preemption by QOS --------------------------------------------------------------------------------------------


def test_a_qos_preempts_those_it_lists_and_nobody_before_its_time_is_up(dump: Path) -> None:
    jobs = [of(job("a", 4, 2000), "root", "x", "scavenge", limit=2000),
            of(job("b", 2, 60, 10), "root", "y", "normal")]  # fmt: skip
    options = f"{AT_ONCE},accounts={dump},preempt=qos"
    assert 300 <= starts(jobs, NODE, options)["b"] < 2000  # type: ignore[arg-type]  # five minutes are exempt
    jobs[0] = of(job("a", 4, 2000), "root", "x", "typed", limit=2000)
    assert starts(jobs, NODE, options)["b"] >= 2000  # type: ignore[arg-type]


def test_nothing_is_reserved_for_a_qos_that_does_not_reserve(dump: Path) -> None:
    jobs = [told(job("runs", 2, 600), 600), of(job("first", 4, 60, 1), "root", "x", "scavenge"),
            told(job("long", 2, 1200, 2), 1200)]  # fmt: skip
    assert starts(jobs, NODE, f"{AT_ONCE},accounts={dump}")["long"] < 10  # type: ignore[arg-type]


# --- reservations -------------------------------------------------------------------------------------------------

RESERVATION = """ReservationName=maint StartTime=2026-03-02T00:10:00 EndTime=2026-03-02T00:20:00 Duration=00:10:00
   Nodes=m0 NodeCnt=1 Features=(null) Flags=MAINT,SPEC_NODES
   Users=root Accounts=(null) State=INACTIVE
"""


def test_a_reservation_keeps_its_nodes_from_jobs_that_would_not_have_ended(tmp_path: Path) -> None:
    file = tmp_path / "reservations.txt"
    file.write_text(RESERVATION)
    options = f"{AT_ONCE},accounts={file},origin=2026-03-02T00:00:00"
    jobs = [told(job("long", 4, 900), 900), told(job("second", 4, 900, 1), 900), told(job("short", 4, 300, 2), 300)]
    played = play(jobs, PAIR, f"slurm[{options}]")
    where = {entry.job: entry.placement.slices[0][0] for _, entry in played.of(pl.Start)}  # type: ignore[union-attr]
    assert where["long"] == 1 and where["short"] == 0 and began(played)["short"] < 10
    assert began(played)["second"] >= 900
    mine = [told(job("inside", 4, 100), 100, reservation="maint")]
    assert 600 <= starts(mine, PAIR, options)["inside"] < 700
    assert starts(jobs, PAIR, f"{AT_ONCE},accounts={file}")["second"] < 10  # nobody says what time it is


# --- fair-share over a tree ---------------------------------------------------------------------------------------


def tree(*entries: Association) -> Accounts:
    return Accounts({(each.account, each.user): each for each in entries})


def test_fair_tree_ranks_accounts_first_and_users_inside_them() -> None:
    known = tree(Association("a", shares=1), Association("b", shares=1))
    # b has used less than a: all of b's users come before all of a's, whatever these have used themselves
    used = {"a/1": 0.0, "a/2": 90.0, "b/3": 40.0, "b/4": 30.0}
    assert tree_shares(used, known, True) == {"b/4": 1.0, "b/3": 0.75, "a/1": 0.5, "a/2": 0.25}
    tripled = tree(Association("a", shares=3), Association("b", shares=1))
    assert tree_shares(used, tripled, True)["a/1"] == 1.0
    level = {"a/1": 10.0, "a/2": 30.0, "b/3": 20.0, "b/4": 20.0}  # accounts that are level are ranked as one
    assert tree_shares(level, known, True) == {"a/1": 1.0, "b/3": 0.75, "b/4": 0.75, "a/2": 0.25}


def test_the_classic_formula_blends_in_what_the_account_has_used() -> None:
    known = tree(Association("a", shares=1), Association("b", shares=3))
    found = tree_shares({"a/1": 60.0, "a/2": 0.0, "b/3": 40.0}, known, False)
    # a: S = 1/4, U = 0.6; its users have half of it each: U_E = U_A + (0.6 − U_A) / 2
    assert found["a/1"] == pytest.approx(2 ** -((0.6 + 0.0) / 0.125))
    assert found["a/2"] == pytest.approx(2 ** -(0.3 / 0.125)) and found["b/3"] == pytest.approx(2 ** -(0.4 / 0.75))
    calm = tree_shares({"a/1": 60.0, "a/2": 0.0, "b/3": 40.0}, known, False, dampening=5)
    assert calm["a/2"] == pytest.approx(2 ** -(0.3 / 0.125 / 5))


def test_a_tree_of_one_level_is_what_users_without_accounts_get() -> None:
    used = {"root/a": 5.0, "root/b": 0.0, "root/c": 5.0}
    for fair_tree in (True, False):
        flat = fair_shares({name[5:]: amount for name, amount in used.items()}, {}, fair_tree)
        assert tree_shares(used, Accounts(), fair_tree) == {f"root/{name}": flat[name] for name in flat}


def test_users_of_a_busy_account_wait_behind_those_of_an_idle_one() -> None:
    options = f"{AT_ONCE},priority=multifactor,weight_fairshare=1000,calc_period=1"
    jobs = [of(job("first", 4, 100), "busy", "x"), of(job("same", 4, 100, 10), "busy", "y"),
            of(job("other", 4, 100, 20), "idle", "z")]  # fmt: skip
    assert starts(jobs, NODE, options)["same"] < starts(jobs, NODE, options)["other"]  # type: ignore[arg-type]
    found = starts(jobs, NODE, options + ",associations=accounts")  # type: ignore[arg-type]
    assert found["other"] < found["same"]


def test_a_reservation_of_gpus_leaves_the_rest_of_its_nodes_to_others() -> None:
    # `first` will need three GPUs of m0 or m1; `small` fits beside it for as long as it likes
    jobs = [told(job("runs", 2, 600), 600), told(job("other", 4, 1200), 1200), told(job("first", 3, 600, 1), 600),
            told(job("small", 1, 900, 2), 900)]  # fmt: skip
    easy = AT_ONCE + ",bf_job_part_count_reserve=1"
    assert starts(jobs, PAIR, easy)["small"] >= 600
    found = starts(jobs, PAIR, easy + ",whole_nodes=false")
    assert found["small"] < 10 and found["first"] == 600
    jobs[3] = told(job("wide", 2, 900, 2), 900)
    found = starts(jobs, PAIR, easy + ",whole_nodes=false")
    assert found["wide"] >= 600 and found["first"] == 600
    with pytest.raises(UserError, match="bf_job_part_count_reserve=1"):
        make_policy("slurm[whole_nodes=false]")


