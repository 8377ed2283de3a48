"""Gavel with space sharing in every small world: pairs and nothing but pairs, whole gangs, no job and no work lost."""

from __future__ import annotations

import pytest
from every_policy import Case, Replay, cases, runnable, work_by_journal
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Flat, Pairwise, play, watched_steps
from dally.core.scheduler import Scheduler

EXAMPLES = settings().max_examples
OPTIONS = ["", ",round=7s,reallocate=15s", ",round=7s,reallocate=15s,placement_sensitive=true",
           ",round=20s,reallocate=40s,backfill=true", ",round=7s,reallocate=15s,objective=makespan,partners=1",
           ",round=30s,objective=cost", ",round=7s,objective=hierarchical", ",round=7s,objective=fifo"]  # fmt: skip


@given(case=cases("gavel"), options=st.sampled_from(OPTIONS), slowdown=st.sampled_from([1.0, 1.3, 1.9, 2.5]),
       most=st.sampled_from([1, 2, 2]))  # fmt: skip
@settings(max_examples=EXAMPLES)
def test_pairs_share_whole_gpus_and_nothing_is_lost(case: Case, options: str, slowdown: float, most: int) -> None:
    def check(scheduler: Scheduler, now: float) -> None:
        for group in scheduler.books.view.groups:
            assert len(group.turns) == 1 and len(group) <= 2, f"{group.turns} at {now}"
            assert {scheduler.books.jobs[member].gpus for member in group.members} == {group.placement.gpus}
        held = sum(group.placement.gpus for group in scheduler.books.view.groups)
        held += sum(job.leaving.gpus for job in scheduler.books.jobs.values() if job.leaving)
        down = sum(scheduler.books.view.topology.machines[machine].gpus for machine in scheduler.books.fleet.down)
        assert held + down + scheduler.books.view.free.total == scheduler.books.view.topology.gpus

    with watched_steps(check):
        played = play(case.jobs, case.topology, f"gavel[space_sharing=true{options}]", network=case.network,
                      cost=Flat(*case.cost), faults=case.faults(), instants=60_000,
                      interference=Pairwise(slowdown, most))  # fmt: skip
    for row in played.run.ledger.rows:
        assert row.outcome == ("finished" if row.job_id in runnable(case) else "rejected"), row.job_id
    assert not Replay(case.topology, case.jobs, played.entries).owner, "GPUs are held after everybody ended"
    if case.faulty is None:
        done = work_by_journal(played.entries)
        for job_id in runnable(case):
            assert done.get(job_id, 0.0) == pytest.approx(played.workload.work[job_id], rel=1e-6, abs=1e-6), job_id
