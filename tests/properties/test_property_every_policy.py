"""What holds for every registered policy, whatever its options, in every small world."""

from __future__ import annotations

import pytest
from every_policy import NAMES, Case, Replay, cases, runnable, variants, work_by_journal
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import cluster, job, play, watched_steps
from dally.core.job import DurationMeans
from dally.core.journal_text import encode_all, read
from dally.core.ledger import Ledger
from dally.core.reasons import Reason
from dally.core.row import FIELDS
from dally.core.scheduler import Scheduler
from dally.core.states import ENDED, State
from dally.network.registry import NAMES as NETWORKS
from dally.report.bound import bound_of

each_policy = pytest.mark.parametrize("policy", NAMES)
EXAMPLES = settings().max_examples // 2  # of the profile: 12 on every day


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_no_gpu_is_ever_given_twice_and_gangs_are_whole(policy: str, data: st.DataObject) -> None:
    case = data.draw(cases(policy))
    replay = Replay(case.topology, case.jobs, case.play().entries)
    assert not replay.owner, "GPUs are held after everybody ended"


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_no_job_is_forgotten(policy: str, data: st.DataObject) -> None:
    case = data.draw(cases(policy))
    played = case.play()
    assert len(played.run.ledger.rows) == len(case.jobs)
    for row in played.run.ledger.rows:
        assert row.outcome == ("finished" if row.job_id in runnable(case) else "rejected"), row.job_id


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_work_is_conserved_across_preemption(policy: str, data: st.DataObject) -> None:
    case = data.draw(cases(policy, faults=False))
    played = case.play()
    done = work_by_journal(played.entries)
    for job_id in runnable(case):
        work = played.workload.work[job_id]
        assert done.get(job_id, 0.0) == pytest.approx(work, rel=1e-6, abs=1e-6), job_id


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_at_every_instant_every_waiting_job_has_a_reason_and_no_other_job_has(
    policy: str, data: st.DataObject
) -> None:
    case = data.draw(cases(policy))
    instants = 0

    def check(scheduler: Scheduler, now: float) -> None:
        nonlocal instants
        instants += 1
        for active in scheduler.jobs.values():
            reason = scheduler.reason(active.id)
            if active.state in (State.WAITING, State.STARTING, State.YIELDING, State.REJECTED):
                assert isinstance(reason, Reason) and reason.sentence, (
                    f"{active.id} waits at {now} and nobody knows why"
                )
            else:
                assert reason is None

    with watched_steps(check):
        case.play()
    assert instants


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_the_schedulers_books_balance_at_every_instant(policy: str, data: st.DataObject) -> None:
    case = data.draw(cases(policy))

    def check(scheduler: Scheduler, now: float) -> None:
        held = sum(placement.gpus for placement in {j.placement for j in scheduler.jobs.values()} if placement)
        held += sum(j.leaving.gpus for j in scheduler.jobs.values() if j.leaving)
        assert scheduler.books.residents.shares or sum(j.placement is not None for j in scheduler.jobs.values()) == len(
            {j.placement for j in scheduler.jobs.values()} - {None})  # fmt: skip
        topology = scheduler.view.topology
        down = sum(topology.machines[m].gpus for m in scheduler.books.fleet.down)
        assert held + down + scheduler.free.total == topology.gpus
        waiting = {j.id for j in scheduler.jobs.values() if j.state is State.WAITING}
        assert {j.id for j in scheduler.view.waiting} == waiting
        for j in scheduler.view.preemptible:
            assert j.state is State.RUNNING and j.lease_until is None and j.job.preemptible
        assert all(j.placement is None for j in scheduler.jobs.values() if j.state in ENDED)

    with watched_steps(check):
        case.play()


def text_of(case: Case) -> str:
    return encode_all(case.topology, case.play().instants, policy=case.policy)


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES // 2)
def test_the_same_seed_gives_the_same_journal(policy: str, data: st.DataObject) -> None:
    case = data.draw(cases(policy))
    assert text_of(case) == text_of(case)


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES // 2)
def test_the_journal_read_back_gives_the_ledger_of_the_run(policy: str, data: st.DataObject) -> None:
    case = data.draw(cases(policy))
    played = case.play()
    again = Ledger(case.topology)
    for instant in read(encode_all(case.topology, played.instants).splitlines(keepends=True)):
        again(instant)
    live = played.run.ledger
    assert [[getattr(r, n) for n in FIELDS] for r in again.rows] == [
        [getattr(r, n) for n in FIELDS] for r in live.rows]  # fmt: skip
    assert (again.segments, again.time, again.busy, again.queue) == (
        live.segments,
        live.time,
        live.busy,
        live.queue,
    )


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_no_policy_beats_the_lower_bounds(policy: str, data: st.DataObject) -> None:
    case = data.draw(cases(policy))
    played = case.play()
    jobs = [spec.job for spec in case.jobs if spec.job.id in runnable(case)]
    if not jobs:
        return
    bound = bound_of(played.run, case.topology)
    assert bound.avg_jct is not None and bound.makespan is not None
    rows = [played.run.ledger.row(j.id) for j in jobs]
    jct = sum(row.jct or 0.0 for row in rows) / len(rows)
    makespan = max(row.end or 0.0 for row in rows) - min(spec.job.submit_time for spec in case.jobs)
    assert jct >= bound.avg_jct * (1 - 1e-9) - 1e-9
    assert makespan >= bound.makespan * (1 - 1e-9) - 1e-9


@each_policy
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_a_faster_link_never_makes_a_lone_job_slower(policy: str, data: st.DataObject) -> None:
    tree = cluster(2, 2, 4)
    text = data.draw(st.sampled_from(variants(policy)))
    gpus = data.draw(st.integers(1, 16))
    slow = [1 + f for f in sorted(data.draw(st.tuples(*[st.floats(0, 4)] * 2)))]
    fast = [1 + (f - 1) * data.draw(st.floats(0, 1)) for f in slow]
    fast = sorted(fast)
    lone = [job("lone", gpus, 100.0, means=DurationMeans.ONE_GPU)]
    ends = [play(lone, tree, text, network=f"level-penalty[rack={rack!r},cluster={top!r}]").end("lone")
            for rack, top in (slow, fast)]  # fmt: skip
    if all(f <= s for f, s in zip(fast, slow, strict=True)):
        assert (ends[1] or 0) <= (ends[0] or 0) * (1 + 1e-12)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("gpus", [2, 4, 6, 16])
def test_twice_the_bandwidth_never_makes_a_lone_job_slower_in_any_network_model(network: str, gpus: int) -> None:
    from dataclasses import replace

    from builders import RACKS
    from dally.core.errors import UserError
    from dally.core.topology import regular
    from dally.network.registry import make_network

    try:
        make_network(network, cluster(2, 2, 4))
    except UserError as error:
        if "not installed" in str(error):
            pytest.skip(str(error))
        raise
    ends = []
    for factor in (1, 2):
        levels = [replace(level, bandwidth=level.bandwidth * factor) for level in RACKS]
        lone = [job("lone", gpus, 100.0, model="resnet50", means=DurationMeans.ONE_GPU)]
        ends.append(play(lone, regular((2, 2, 4), levels), "fifo", network=network).end("lone") or 0.0)
    assert ends[1] <= ends[0] * (1 + 1e-9)
