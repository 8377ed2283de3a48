"""A level that a gang must be inside of: at the door, in the rules, in the journal; and the level it would rather have."""

from __future__ import annotations

import json
import math

import pytest

from builders import at, cluster, desk, mixed_cluster
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import PlanError
from dally.core.job import Job
from dally.core.journal import Instant, Rejected
from dally.core.journal_text import encode_all, read
from dally.core.placement import Placement
from dally.core.reasons import Token
from dally.core.snapshot import load, save
from dally.core.states import State

RACKS = cluster(2, 2, 4)  # two racks of two machines of four


@pytest.mark.parametrize(("job", "sentence"), [
    (Job("a", 0.0, 5, within="machine"), "asks for 5 GPUs inside one machine; no machine has more than 4"),
    (Job("a", 0.0, 9, within="rack"), "asks for 9 GPUs inside one rack; no rack has more than 8"),
    (Job("a", 0.0, 17, within="rack"), "asks for 17 GPUs inside one rack; the cluster has 16"),
    (Job("a", 0.0, 1, within="block"),
     "asks for 1 GPUs inside one block; it names a level block, and the cluster has machine, rack, cluster"),
    (Job("a", 0.0, 1, prefers="block"),
     "asks for 1 GPUs; it names a level block, and the cluster has machine, rack, cluster"),
])  # fmt: skip
def test_a_job_that_no_domain_of_its_level_can_hold_is_turned_away_with_a_reason(job: Job, sentence: str) -> None:
    seen: list[Instant] = []
    scheduler = desk(RACKS, sinks=[seen.append])
    scheduler.step(0.0, [ev.Arrived(job)])
    assert scheduler.jobs["a"].state is State.REJECTED
    (entry,) = (entry for entry in seen[0].decided or () if isinstance(entry, Rejected))
    assert (entry.reason.token, entry.reason.sentence) == (Token.EXCEEDS_CAPACITY, sentence)


def test_the_most_of_one_type_in_one_domain_is_what_counts() -> None:
    mixed = mixed_cluster(v100=(4, 2), a100=(4, 4))
    assert mixed.capacity("v100", "machine") == 4 and mixed.capacity("v100", "rack") == 6
    assert mixed.capacity(None, "rack") == 8 and mixed.capacity(None, "cluster") == mixed.capacity(None) == 8
    assert cluster(1, 2, 4, islands=(2, 2)).capacity(None, "island") == 2


@pytest.mark.parametrize(("within", "placement", "fits"), [
    ("machine", at((0, 0b11)), True), ("machine", at((0, 1), (1, 1)), False),
    ("rack", at((0, 1), (1, 1)), True), ("rack", at((1, 1), (2, 1)), False), ("cluster", at((1, 1), (2, 1)), True),
])  # fmt: skip
def test_a_plan_that_gives_it_gpus_of_more_than_one_domain_is_refused(within: str, placement: Placement, fits: bool) -> None:
    scheduler = desk(RACKS, [pl.Start("a", placement)])
    if fits:
        scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2, within=within))])
        assert scheduler.jobs["a"].state is State.RUNNING
        return
    with pytest.raises(PlanError, match=f"must be inside one {within}, and is given GPUs of more than one"):
        scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2, within=within))])


def test_inside_one_island_means_one_island() -> None:
    islands = cluster(1, 2, 4, islands=(2, 2))
    scheduler = desk(islands, [pl.Start("a", at((0, 0b0110)))])
    with pytest.raises(PlanError, match="must be inside one island"):
        scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 2, within="island"))])


@pytest.mark.parametrize("wait", [None, 0.0, 600.0, math.inf])
def test_levels_and_waits_survive_journal_and_snapshot(wait: float | None) -> None:
    seen: list[Instant] = []
    scheduler = desk(RACKS, sinks=[seen.append])
    job = Job("a", 0.0, 2, within="rack", prefers="machine", wait=wait)
    scheduler.step(0.0, [ev.Arrived(job), ev.Arrived(Job("b", 0.0, 2))])
    text = encode_all(RACKS, seen)
    assert "Infinity" not in text and list(read(text.splitlines(keepends=True))) == seen
    again = desk(RACKS)
    load(again, json.loads(json.dumps(save(scheduler), allow_nan=False)))
    assert save(again) == save(scheduler) and again.jobs["a"].job == job
    assert set(again.view.waiting.buckets) == {pl.Demand(2, None), pl.demand_of(2, None, "rack", "machine", wait)}


def test_a_demand_without_wishes_is_written_as_ever() -> None:
    assert pl.Demand(2, None).short == (2, None) and pl.demand_of(2, "a", "rack").short == (2, "a", "rack")
