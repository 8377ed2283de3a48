"""The gate in front of the policy: shares by weight, lending, limits of queues and users, and why somebody is kept back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Played, SilentWorld, Spec, calls, cluster, job, mixed_cluster, play
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.journal import Instant, Journal, LetIn, Odd
from dally.core.queues import Queue
from dally.core.reasons import Token
from dally.core.scheduler import Scheduler
from dally.core.shares import Gate
from dally.core.snapshot import load, load_memory, save
from dally.core.states import State
from dally.policies.options import make_policy

EIGHT = cluster(2, 4)


def of(spec: Spec, queue: str | None, user: str | None = None) -> Spec:
    return replace(spec, job=replace(spec.job, tenant=queue, user=user))


def one(name: str, gpus: int, queue: str | None, user: str | None = None) -> ev.Arrived:
    return ev.Arrived(Job(name, 0.0, gpus, tenant=queue, user=user, work=100.0))


def service(*queues: Queue, policy: str = "fifo[backfill=true]", topology: object = EIGHT,
            seen: list[Instant] | None = None) -> Scheduler:  # fmt: skip
    made = Scheduler(topology, make_policy(policy), SilentWorld(), Journal(*([] if seen is None else [seen.append])))  # type: ignore[arg-type]
    made.step(0.0, [ev.QueuesSet(queues)])
    return made


def running(scheduler: Scheduler) -> list[str]:
    return [job.id for job in scheduler.jobs.values() if job.state is State.RUNNING]


def kept(scheduler: Scheduler) -> list[str]:
    return [job.id for job in scheduler.jobs.values() if job.state is State.HELD]


def held_at(played: Played, time: float) -> dict[str, int]:
    """GPUs by queue."""
    found: dict[str, int] = {}
    for segment in played.run.ledger.segments:
        if segment.start <= time < segment.end:
            queue = played.run.ledger.rows[segment.row].tenant or "default"
            found[queue] = found.get(queue, 0) + segment.placement.gpus
    return found


def test_two_queues_with_much_to_do_have_gpus_by_their_weights() -> None:
    specs = [of(job(f"{queue}{i}", 1, 100.0), queue) for queue in ("a", "b") for i in range(40)]
    played = play(specs, EIGHT, "fifo", queues=(Queue("a", 3.0), Queue("b", 1.0)))
    assert [held_at(played, time) for time in (50.0, 250.0, 550.0)] == [{"a": 6, "b": 2}] * 3


def test_what_one_queue_does_not_use_is_lent_and_comes_back_as_jobs_end() -> None:
    specs = [of(job(f"a{i}", 1, 100.0), "a") for i in range(40)] + [of(job(f"b{i}", 1, 100.0, 150.0), "b") for i in range(40)]
    played = play(specs, EIGHT, "fifo", queues=(Queue("a"), Queue("b")))
    assert held_at(played, 50.0) == {"a": 8} and held_at(played, 160.0) == {"a": 8}
    assert held_at(played, 250.0) == {"a": 4, "b": 4}


def test_inside_a_queue_the_policy_decides_who_is_next() -> None:
    specs = [of(job(f"a{i}", 8, duration), "a") for i, duration in enumerate((50.0, 40.0, 30.0, 20.0))]
    played = play(specs, EIGHT, "srtf", queues=(Queue("a"),))
    assert sorted(("a0", "a1", "a2", "a3"), key=lambda name: played.end(name) or 0) == ["a3", "a2", "a1", "a0"]


def test_limits_of_queues_and_users_are_never_exceeded() -> None:
    scheduler = service(Queue("v", max_gpus=6, max_gpus_per_user=4), Queue("n", max_jobs_per_user=1))
    scheduler.step(1.0, [one("v1", 3, "v", "ann"), one("v2", 2, "v", "ann"), one("v3", 2, "v", "bob"), one("v4", 2, "v", "cem"),
                         one("n1", 1, "n", "ann"), one("n2", 1, "n", "ann"), one("n3", 1, "n", "bob")])  # fmt: skip
    assert running(scheduler) == ["v1", "v3", "n1", "n3"] and kept(scheduler) == ["v2", "v4", "n2"]
    reasons = [scheduler.reason(name) for name in ("v2", "v4", "n2")]
    assert [reason.sentence for reason in reasons if reason is not None] == [
        "user ann uses 3 of at most 4 GPUs in queue v",
        "queue v uses 5 of at most 6 GPUs (ann 3, bob 2)",
        "user ann has 1 of at most 1 jobs in queue n",
    ]
    assert {reason.token for reason in reasons if reason is not None} == {Token.WAITING_FOR_QUOTA}
    scheduler.step(2.0, [ev.Finished("v1"), ev.Finished("n1")])
    assert kept(scheduler) == []


def test_a_queue_that_has_had_its_share_says_who_uses_it() -> None:
    scheduler = service(Queue("vision"), Queue("speech"))
    scheduler.step(1.0, [*(one(f"v{i}", 1, "vision", "alice" if i % 3 else "bob") for i in range(9)),
                         *(one(f"s{i}", 1, "speech") for i in range(9))])  # fmt: skip
    reason = scheduler.reason("v8")
    assert reason is not None and reason.sentence == "queue vision uses 4 of its 4 GPUs (alice 2, bob 2)"
    assert reason.evidence == ("vision", 4, 4.0)


def test_a_job_that_its_queue_can_never_let_in_is_turned_away() -> None:
    scheduler = service(Queue("v", max_gpus=6, max_gpus_per_user=2))
    scheduler.step(1.0, [one("a", 7, "v"), one("b", 3, "v"), one("c", 99, "v"), one("d", 7, None)])
    assert [scheduler.jobs[name].state for name in "abcd"] == [State.REJECTED] * 3 + [State.RUNNING]
    reason = scheduler.reason("b")
    assert reason is not None and reason.sentence == "asks for 3 GPUs; queue v lets a user have 2 at most"


def test_gpus_nobody_who_was_shown_can_use_are_lent_beyond_the_share() -> None:
    mixed = mixed_cluster(v100=(4,), a100=(4,))
    scheduler = service(Queue("a"), Queue("b"), topology=mixed)
    asks = [ev.Arrived(Job(f"{queue}{i}", 0.0, 2, "v100" if i < 4 else "a100", tenant=queue, work=10.0 + i))
            for queue in "ab" for i in range(6)]  # fmt: skip
    scheduler.step(1.0, asks)
    assert sum(scheduler.free.pools[kind].total for kind in ("v100", "a100")) == 4  # both showed v100 jobs alone
    scheduler.step(2.0, [ev.TimerDue()])
    assert scheduler.free.total == 0 and set(running(scheduler)) >= {"a4", "b4"}


def test_who_is_held_by_its_owner_gives_its_place_to_others() -> None:
    scheduler = service(Queue("a", max_jobs_per_user=1))
    scheduler.step(1.0, [one("a1", 8, "a", "u"), one("a2", 8, "a", "u")])
    scheduler.step(2.0, [ev.Interrupted("a1", 0.0, "requeued"), ev.Held("a1")])
    assert running(scheduler) == ["a2"]
    scheduler.step(3.0, [ev.Released("a1")])
    assert kept(scheduler) == ["a1"] and scheduler.jobs["a1"].hold is None
    scheduler.step(4.0, [ev.Held("a1", "mine")])
    reason = scheduler.reason("a1")
    assert reason is not None and reason.token is Token.HELD
    scheduler.step(5.0, [ev.Finished("a2"), ev.Released("a1")])
    assert running(scheduler) == ["a1"]


def test_queues_can_be_changed_and_taken_away_on_a_live_cluster() -> None:
    seen: list[Instant] = []
    scheduler = service(Queue("a", max_gpus=1), seen=seen)
    scheduler.step(1.0, [one(f"a{i}", 1, "a") for i in range(4)])
    assert len(kept(scheduler)) == 3
    scheduler.step(2.0, [ev.QueuesSet((Queue("a", max_gpus=2),))])
    assert len(kept(scheduler)) == 2
    (entry,) = (entry for instant in seen for entry in instant.decided or () if isinstance(entry, LetIn))
    assert entry == LetIn("a1")
    scheduler.step(3.0, [ev.QueuesSet()])
    assert kept(scheduler) == [] and scheduler.books.door.gate is None and len(running(scheduler)) == 4
    scheduler.step(4.0, [ev.QueuesSet((Queue("a"), Queue("a")))])
    assert isinstance(seen[-1].happened[0], Odd)


def test_a_new_queue_counts_what_already_runs() -> None:
    scheduler = service()
    scheduler.step(1.0, [one(f"a{i}", 2, "a") for i in range(3)])
    scheduler.step(2.0, [ev.QueuesSet((Queue("a", max_gpus=6),))])
    scheduler.step(3.0, [one("a9", 1, "a")])
    assert kept(scheduler) == ["a9"]


def test_machines_that_are_down_are_nobodys_share() -> None:
    specs = [of(job(f"{queue}{i}", 1, 10.0), queue) for queue in "ab" for i in range(20)]
    scheduler = service(Queue("a"), Queue("b"))
    scheduler.step(1.0, [ev.MachineDown(EIGHT.machine_names[0])])
    scheduler.step(2.0, [ev.Arrived(spec.job) for spec in specs])
    assert sorted(name[0] for name in running(scheduler)) == ["a", "a", "b", "b"]
    scheduler.step(3.0, [ev.MachineUp(EIGHT.machine_names[0])])
    assert sorted(name[0] for name in running(scheduler)) == ["a"] * 4 + ["b"] * 4


def test_a_snapshot_of_queues_goes_on_as_if_nothing_had_been() -> None:
    scheduler = service(Queue("a", 2.0, max_gpus_per_user=3), Queue("b"), policy="srtf")
    scheduler.step(1.0, [one(f"{queue}{i}", 1 + i % 2, queue, f"u{i % 2}") for queue in "ab" for i in range(9)])
    state = json.loads(json.dumps(save(scheduler), allow_nan=False))
    again = Scheduler(EIGHT, make_policy("srtf"), SilentWorld(), Journal())
    load(again, state)
    memory = load_memory(again.policy, state, again)
    assert memory is not None
    again.resume_with(memory)
    ends = [ev.Finished(name) for name in running(scheduler)[:3]]
    for made in (scheduler, again):
        made.step(2.0, ends)
    assert save(again) == save(scheduler)


@given(st.lists(st.tuples(st.floats(0.1, 9.0), st.integers(0, 60), st.none() | st.integers(1, 30)), min_size=1, max_size=6))
def test_shares_are_weighted_max_min(rows: list[tuple[float, int, int | None]]) -> None:
    gate = Gate(tuple(Queue(f"q{i}", weight, most) for i, (weight, _, most) in enumerate(rows)), service().view)
    for i, (_, asked, _) in enumerate(rows):
        gate._standings[f"q{i}"].asked = asked
    shares = gate.shares()
    asks = {f"q{i}": min(asked, asked if most is None else most) for i, (_, asked, most) in enumerate(rows)}
    assert sum(shares.values()) == pytest.approx(min(8, sum(asks.values())))
    level = max((shares[f"q{i}"] / weight for i, (weight, _, _) in enumerate(rows)), default=0.0)
    for i, (weight, _, _) in enumerate(rows):  # who has less than the level, by weight, has all it asks for
        name = f"q{i}"
        assert shares[name] <= asks[name] + 1e-9
        assert shares[name] / weight >= level - 1e-9 or shares[name] == pytest.approx(asks[name])


def test_the_cost_of_an_event_does_not_grow_with_who_is_kept_back() -> None:
    def work(jobs: int) -> int:
        scheduler = service(Queue("a"), Queue("b"))
        scheduler.step(1.0, [one(f"{queue}{i}", 1 + i % 4, queue) for queue in "ab" for i in range(jobs)])
        ends: Sequence[str] = running(scheduler)[:1]
        return calls(lambda: scheduler.step(2.0, [ev.Finished(ends[0]), one("new", 1, "a")]))

    assert work(2000) <= 1.3 * work(100)


def test_without_queues_nothing_is_different() -> None:
    specs = [of(job(f"j{i}", 1 + i % 3, 10.0 + i, i), "ab"[i % 2]) for i in range(20)]
    plain = play(specs, EIGHT, "srtf")
    assert not any(isinstance(entry, (ev.QueuesSet, LetIn)) for _, entry in plain.entries)
    assert not [entry for _, entry in plain.of(pl.Wait) if isinstance(entry, pl.Wait)
                and entry.reason.token is Token.WAITING_FOR_QUOTA]  # fmt: skip
