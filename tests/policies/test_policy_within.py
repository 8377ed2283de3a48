"""Gangs that must be inside one domain, or would rather be: what policies make of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from builders import Played, Spec, cluster, job, play
from dally.core import plan as pl
from dally.core.placement import Placement
from dally.policies.options import all_policies, make_policy

RACKS = cluster(2, 2, 4)
NAMES = [name for name, _ in all_policies()]


def asks(spec: Spec, **wishes: object) -> Spec:
    return replace(spec, job=replace(spec.job, **wishes))  # type: ignore[arg-type]


def placed(played: Played, job_id: str) -> Placement:
    (entry,) = (entry for _, entry in played.of(pl.Start, job_id))
    assert isinstance(entry, pl.Start)
    return entry.placement


@pytest.mark.parametrize("policy", NAMES)
def test_a_gang_that_must_be_inside_a_machine_waits_for_one(policy: str) -> None:
    blockers = [job(f"b{i}", 3, 100.0 + i) for i in range(4)]  # one GPU of every machine is left
    pair = asks(job("pair", 2, 10.0, 1.0), within="machine")
    played = play([*blockers, pair], RACKS, policy)
    assert played.outcome("pair") == "finished"
    for _, entry in played.of(pl.Start, "pair"):
        assert isinstance(entry, pl.Start) and len(entry.placement.slices) == 1


@pytest.mark.parametrize("policy", ["smallest", "srtf", "las[quantum=0]", "tiresias", "dally"])
def test_one_who_goes_first_opens_one_domain_and_no_more(policy: str) -> None:
    long = [job(f"l{i}", 4, 100_000.0, model="resnet50") for i in range(4)]
    pair = asks(job("pair", 2, 10.0, 5000.0), within="machine")
    played = play([*long, pair], RACKS, policy)
    assert len({entry.job for t, entry in played.of(pl.Preempt) if t <= 5010.0}) == 1
    assert played.end("pair") == 5010.0


@pytest.mark.parametrize("rule", ["any", "spread", "consolidated", "best-fit"])
@pytest.mark.parametrize("within", ["machine", "rack", "cluster"])
def test_every_placement_rule_keeps_the_gang_inside(rule: str, within: str) -> None:
    played = play([job("b", 3, 50.0), asks(job("a", 4, 10.0, 1.0), within=within)], RACKS, f"fifo[placement={rule}]")
    assert placed(played, "a").level(RACKS) <= RACKS.level_index(within)
    assert played.end("a") == 11.0


@pytest.mark.parametrize("timers", ["value", "auto", "manual", "none", "infinite"])
@pytest.mark.parametrize(("wishes", "start"), [
    ({"wait": 0.0}, 1.0),  # takes what there is
    ({"wait": 20.0}, 21.0),  # then what there is
    ({"prefers": "rack", "wait": 20.0}, 1.0),  # one rack has them
    ({"prefers": "cluster"}, 1.0),
    ({"prefers": "machine", "wait": math.inf}, 100.0),  # until the first machine is empty
])  # fmt: skip
def test_dally_waits_as_long_as_the_owner_says(timers: str, wishes: dict[str, object], start: float) -> None:
    blockers = [job(f"b{i}", 3, 100.0 + 10 * i) for i in range(4)]
    pair = asks(job("pair", 2, 10.0, 1.0), **wishes)
    played = play([*blockers, pair], RACKS, f"dally[timers={timers}]", network="level-penalty")
    assert played.times(pl.Start, "pair")[0] == start


def test_only_dally_and_slurm_heed_a_jobs_own_wish_to_be_near() -> None:
    assert [name for name in NAMES if make_policy(name).heeds_wishes] == ["dally", "slurm"]
