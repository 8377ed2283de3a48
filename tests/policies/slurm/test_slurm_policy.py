"""When Slurm starts a job: passes, reservations, limits, priorities, switches, preemption."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from builders import RACKS as LEVELS
from builders import Flat, Played, Spec, cluster, job, outages, play
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.reasons import Token
from dally.core.topology import MachineSpec, Topology, build_topology
from dally.policies.options import make_policy

NODE = cluster(4)  # one machine of four
PAIR = cluster(2, 4)
RACKS = cluster(2, 2, 2)
AT_ONCE = "batch_sched_delay=0,bf_interval=1,bf_resolution=1"


def told(spec: Spec, limit: float | None = None, **more: object) -> Spec:
    """The same job with a time limit, a user, a tenant, a wish."""
    return Spec(replace(spec.job, declared_duration=limit, **more), spec.truth)  # type: ignore[arg-type]


def starts(jobs: Iterable[Spec], topology: Topology, options: str = AT_ONCE) -> dict[str, float]:
    return began(run(jobs, topology, options))


def run(jobs: Iterable[Spec], topology: Topology, options: str = AT_ONCE) -> Played:
    return play(list(jobs), topology, f"slurm[{options}]" if options else "slurm")


def began(played: Played) -> dict[str, float]:
    first: dict[str, float] = {}
    for time, entry in played.of(pl.Start):
        first.setdefault(entry.job, time)  # type: ignore[union-attr]
    return first


def test_a_short_job_fills_the_gap_before_a_reservation_and_a_long_one_does_not() -> None:
    jobs = [told(job("runs", 2, 600), 600), told(job("first", 4, 60, 1), 60), told(job("long", 2, 650, 2), 660),
            told(job("short", 2, 300, 3), 300)]  # fmt: skip
    found = starts(jobs, NODE)
    assert found["short"] < 10 and found["first"] == 600 and found["long"] >= 660


def test_the_limit_counts_and_not_how_long_a_job_really_takes() -> None:
    jobs = [told(job("runs", 2, 600), 600), told(job("first", 4, 60, 1), 60), told(job("liar", 2, 10, 2), 3600)]
    assert starts(jobs, NODE)["liar"] >= 660


def test_limits_are_whole_minutes_as_slurm_keeps_them() -> None:
    jobs = [told(job("runs", 2, 119), 119), told(job("first", 4, 60, 1), 60), told(job("fits", 2, 110, 2), 110)]
    assert starts(jobs, NODE)["fits"] >= 179  # both limits are two minutes, and it came two seconds later
    jobs[2] = told(job("fits", 2, 50, 2), 50)
    assert starts(jobs, NODE)["fits"] < 10


def test_a_job_without_a_limit_has_the_default_or_a_year() -> None:
    jobs = [told(job("runs", 2, 600), 600), told(job("first", 4, 60, 1), 60), job("silent", 2, 10, 2)]
    silent = play(jobs, NODE, f"slurm[{AT_ONCE}]", estimates=Silence())
    assert began(silent)["silent"] >= 660
    assert began(play(jobs, NODE, f"slurm[{AT_ONCE},default_time=5m]", estimates=Silence()))["silent"] < 10


class Silence:
    """Estimates of somebody who is told nothing."""

    def work(self, job: object) -> None: ...
    def speed(self, job: object, placement: object) -> None: ...
    def throughput(self, job: object, gpu_type: str, consolidated: bool = True) -> None: ...
    def together(self, job: object, other: object, gpu_type: str) -> None: ...


def test_a_reservation_takes_whole_nodes_so_that_idle_gpus_beside_it_stay_idle() -> None:
    # `first` will need one GPU of m0 only, once `runs` has ended; its two others are kept from `small` all the same
    jobs = [told(job("runs", 2, 600), 600), told(job("other", 4, 1200), 1200), told(job("first", 3, 600, 1), 600),
            told(job("small", 1, 900, 2), 900)]  # fmt: skip
    assert starts(jobs, PAIR)["small"] >= 600


def test_without_backfill_nobody_passes_the_first() -> None:
    jobs = [told(job("runs", 2, 600), 600), told(job("first", 4, 60, 1), 60), told(job("short", 2, 60, 3), 60)]
    found = starts(jobs, NODE, "batch_sched_delay=0,backfill=false")
    assert found["first"] == 600 and found["short"] == 660


def test_backfill_looks_at_so_many_jobs_and_no_more() -> None:
    jobs = [told(job("runs", 3, 600), 600), *(told(job(f"big{n}", 4, 60, 1), 60) for n in range(3)),
            told(job("short", 1, 60, 3), 60)]  # fmt: skip
    assert starts(jobs, NODE, AT_ONCE + ",bf_max_job_test=3")["short"] >= 600
    assert starts(jobs, NODE, AT_ONCE + ",bf_max_job_test=4")["short"] < 10


def test_only_so_many_jobs_of_a_partition_hold_nodes_for_themselves() -> None:
    # `first` is for one node from 600 s on, `second` for both from 1200 s on, and `small` would take until 1503 s
    jobs = [told(job("a", 4, 600), 600), told(job("b", 2, 1200), 1200), told(job("first", 4, 60, 1), 60),
            told(job("second", 8, 60, 2), 60), told(job("small", 1, 1500, 3), 1500)]  # fmt: skip
    assert starts(jobs, PAIR)["small"] >= 1200
    found = starts(jobs, PAIR, AT_ONCE + ",bf_job_part_count_reserve=1")
    assert found["small"] < 10 and found["first"] == 600 and found["second"] > 1500


def test_passes_are_so_far_apart() -> None:
    jobs = [told(job("runs", 2, 600), 600), told(job("first", 4, 60, 1), 60), told(job("short", 2, 60, 2), 60)]
    assert starts(jobs, NODE, "")["short"] == 30  # the first pass of backfill was at 0, the next is 30 s later
    assert starts([job("a", 1, 60), job("b", 1, 60, 1)], NODE, "")["b"] == 3  # batch_sched_delay


def test_a_plan_beyond_the_window_reserves_nothing() -> None:
    jobs = [told(job("runs", 2, 4000), 4000), told(job("first", 4, 60, 1), 60), told(job("long", 2, 5000, 2), 5000)]
    assert starts(jobs, NODE, AT_ONCE + ",bf_window=1h")["long"] < 10
    assert starts(jobs, NODE, AT_ONCE + ",bf_window=2h")["long"] >= 4000


def test_a_job_waits_for_one_switch_as_long_as_it_says_and_no_longer_than_allowed() -> None:
    full = [told(job("a", 2, 500), 540), told(job("b", 2, 500), 540), told(job("c", 2, 500), 540),
            told(job("d", 2, 100), 120)]  # fmt: skip
    one_each = [told(job("a", 2, 900), 900), told(job("gap", 2, 10), 60), told(job("b", 2, 900), 900)]
    wish = told(job("near", 4, 60, 5), 60, prefers="rack", wait=200.0)
    # m0 and m2 are taken, m1 and m3 are free: one node in each rack
    found = run([*one_each, wish], RACKS)
    assert began(found)["near"] == 205
    reasons = [entry.reason for _, entry in found.of(pl.Wait) if entry.who == "near"]  # type: ignore[union-attr]
    assert reasons[-1].token is Token.WAITING_FOR_LOCALITY and reasons[-1].until == 205
    assert starts([*one_each, wish], RACKS, AT_ONCE + ",max_switch_wait=100")["near"] == 105
    assert starts([*one_each, replace(wish, job=replace(wish.job, wait=None))], RACKS)["near"] == 305
    assert starts([*one_each, replace(wish, job=replace(wish.job, wait=0.0))], RACKS)["near"] == 10
    assert starts([*full, wish], RACKS)["near"] >= 205


def test_who_has_used_less_goes_first_and_usage_is_forgotten_by_half_lives() -> None:
    options = AT_ONCE + ",priority=multifactor,weight_fairshare=1000,calc_period=10"
    jobs = [told(job("before", 4, 1000), 1020, user="greedy"), told(job("again", 4, 60, 100), 60, user="greedy"),
            told(job("modest", 4, 60, 200), 60, user="modest")]  # fmt: skip
    assert starts(jobs, NODE, options)["modest"] < starts(jobs, NODE, options)["again"]
    assert starts(jobs, NODE)["again"] < starts(jobs, NODE)["modest"]


def test_age_weighs_until_its_most() -> None:
    options = AT_ONCE + ",priority=multifactor,weight_age=1000,weight_jobsize=100,calc_period=10,max_age=1000"
    jobs = [told(job("runs", 4, 2000), 2040), told(job("old", 1, 60, 1), 60), told(job("large", 4, 60, 1500), 60)]
    found = starts(jobs, NODE, options)
    assert found["old"] < found["large"]
    young = [jobs[0], told(job("old", 1, 60, 1475), 60), jobs[2]]  # 25 s older are worth 25, three GPUs more 37
    found = starts(young, NODE, options)
    assert found["large"] < found["old"]


def test_small_jobs_go_first_where_they_are_favoured() -> None:
    jobs = [told(job("runs", 4, 600), 600), told(job("large", 4, 60, 1), 60), told(job("small", 1, 60, 2), 60)]
    options = AT_ONCE + ",priority=multifactor,weight_jobsize=1000"
    assert starts(jobs, NODE, options)["large"] == 600
    assert starts(jobs, NODE, options + ",favor_small=true")["small"] == 600


def test_a_jobs_own_priority_goes_before_submission_unless_it_is_ignored() -> None:
    jobs = [told(job("runs", 4, 600), 600), told(job("first", 4, 60, 1), 60), told(job("dear", 4, 60, 2), 60, priority=5)]
    assert starts(jobs, NODE)["dear"] == 600
    assert starts(jobs, NODE, AT_ONCE + ",own_priority=ignore")["first"] == 600


def test_a_higher_tier_goes_first_and_preempts_where_that_is_on() -> None:
    jobs = [told(job("low", 4, 600), 600, tenant="free"), told(job("next", 4, 60, 1), 60, tenant="free"),
            told(job("high", 2, 60, 2), 60, tenant="paid")]  # fmt: skip
    tiers = AT_ONCE + ",tiers=paid:10/free:1"
    assert starts(jobs, NODE, tiers)["high"] == 600
    played = run(jobs, NODE, tiers + ",preempt=partition")
    assert began(played)["high"] == 2 and played.times(pl.Preempt, "low") == [2.0]
    assert played.outcome("low") == "finished"


def test_a_job_of_several_partitions_starts_in_whichever_has_room_first() -> None:
    two = build_topology(LEVELS, [MachineSpec(("r0", name), 4, sets=(name[0],)) for name in ("a0", "b0", "b1")])
    jobs = [told(job("a", 4, 900), 900, partition="a", among="a"), told(job("b", 4, 300), 300, partition="b", among="b"),
            told(job("b2", 4, 900), 900, partition="b", among="b"),
            told(job("either", 4, 60, 10), 60, partition="a,b", among="a|b"),
            told(job("after", 4, 60, 20), 60, partition="b", among="b")]  # fmt: skip
    for options in (AT_ONCE, "textbook=easy", "textbook=conservative"):
        found = starts(jobs, two, options)
        assert 300 <= found["either"] < 310 and found["after"] < 380, options
    # nodes of two partitions are no place for one gang
    jobs[3] = told(job("either", 8, 60, 10), 60, partition="a,b", among="a|b", nodes=2)
    played = run(jobs[:1] + jobs[2:4], two, AT_ONCE)
    assert began(played)["either"] >= 900 and {m for m, _ in held(played, "either")} == {1, 2}


def held(played: Played, name: str) -> tuple[tuple[int, int], ...]:
    return next(entry.placement.slices for _, entry in played.of(pl.Start)  # type: ignore[union-attr]
                if entry.job == name)  # type: ignore[union-attr]  # fmt: skip


def test_of_several_partitions_the_configured_ones_count_and_the_highest_tier_orders(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("PartitionName=low Nodes=m0 PriorityTier=1 Default=YES\nPartitionName=high Nodes=m1 PriorityTier=9\n")
    two = build_topology(LEVELS, [MachineSpec(("r0", name), 4) for name in ("m0", "m1")])
    jobs = [told(job("l", 4, 300), 300, partition="low"), told(job("h", 4, 900), 900, partition="high"),
            told(job("first", 4, 60, 5), 60, partition="low"),
            told(job("both", 4, 60, 10), 60, partition="low,high,gone")]  # fmt: skip
    found = starts(jobs, two, f"{AT_ONCE},conf={conf}")
    assert 300 <= found["both"] < 310 and found["first"] >= 360, "its tier is that of the partition `high`"
    lost = starts([*jobs[:2], told(job("lost", 4, 60, 10), 60, partition="gone,away")], two, f"{AT_ONCE},conf={conf}")
    assert 300 <= lost["lost"] < 310, "in the default partition"


def test_no_more_is_preempted_than_it_takes_and_the_last_started_goes_first() -> None:
    jobs = [*(told(job(f"low{n}", 1, 600, n), 600, tenant="free") for n in range(4)),
            told(job("high", 2, 60, 100), 60, tenant="paid")]  # fmt: skip
    played = run(jobs, NODE, AT_ONCE + ",tiers=paid:10/free:1,preempt=partition")
    assert sorted(entry.job for _, entry in played.of(pl.Preempt)) == ["low2", "low3"]  # type: ignore[union-attr]


def test_a_qos_of_higher_priority_preempts_one_of_lower() -> None:
    jobs = [told(job("low", 4, 600), 600, tenant="idle"), told(job("high", 2, 60, 2), 60, tenant="urgent")]
    options = AT_ONCE + ",tenant=qos,tiers=urgent:10/idle:1"
    assert starts(jobs, NODE, options + ",preempt=qos")["high"] == 2
    assert starts(jobs, NODE, options)["high"] == 600


def test_a_job_that_must_not_be_preempted_is_not() -> None:
    jobs = [told(job("low", 4, 600), 600, tenant="free", preemptible=False), told(job("high", 2, 60, 2), 60, tenant="paid")]
    assert starts(jobs, NODE, AT_ONCE + ",tiers=paid:10/free:1,preempt=partition")["high"] == 600


def test_a_machine_that_is_down_is_not_planned_with() -> None:
    jobs = [told(job("a", 4, 100, 5), 120), told(job("b", 4, 100, 5), 120)]
    played = play(jobs, PAIR, f"slurm[{AT_ONCE}]", faults=outages(PAIR, {1: [(1, 1000)]}), cost=Flat(0, 0))
    assert began(played) == {"a": 5.0, "b": 105.0}


def test_the_first_job_is_told_when_it_is_planned_to_start() -> None:
    played = run([told(job("runs", 2, 600), 600), told(job("first", 4, 60, 1), 60)], NODE)
    reasons = [entry.reason for _, entry in played.of(pl.Wait) if entry.who == "first"]  # type: ignore[union-attr]
    assert [(reason.token, reason.until) for reason in reasons] == [(Token.WAITING_FOR_GPUS, 600.0)]
    assert reasons[0].sentence == "backfill plans its start on cluster, as limits have it"


@pytest.mark.parametrize(("options", "why"), [
    ("weight_age=5", "weight_age would do nothing here: priorities have no factors"),
    ("priority=multifactor,max_age=5", "max_age would do nothing here: age has no weight"),
    ("priority=multifactor,weight_age=5,fair_tree=false", "fair_tree would do nothing here: fair-share has no weight"),
    ("backfill=false,bf_interval=5", "bf_interval would do nothing here: there is no backfill"),
    ("preempt=partition", "preempt would do nothing here: there are no partitions"),
    ("preempt=qos,tiers=a:1", "preempt would do nothing here: tenants are no QOS"),
    ("tenant=account,tiers=a:1", "tiers would do nothing here: accounts have no tiers"),
    ("tiers=a", "write names and whole numbers, as high:10/low:1"),
    ("conf=/nowhere/slurm.conf", "/nowhere/slurm.conf cannot be read"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused_in_a_sentence(options: str, why: str) -> None:
    with pytest.raises(UserError, match=why.replace("(", r"\(")):
        make_policy(f"slurm[{options}]")
