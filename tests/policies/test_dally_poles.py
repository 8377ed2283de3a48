"""Long poles: who needs longer than all that is known would keep the cluster busy goes first, within bounds."""

from __future__ import annotations

from builders import cluster
from dally.core.active import ActiveJob
from dally.core.job import Job
from dally.policies.dally.ends import Ends
from dally.policies.dally.poles import LongPoles
from dally.policies.dally.queue import Queue
from dally.policies.dally.remembered import EndsMemory, ValueMemory


def active(name: str, gpus: int, number: int = 0) -> ActiveJob:
    return ActiveJob(Job(name, 0.0, gpus), number, 0.0)


class Jobs:
    """Who waits for how long, and who runs until when."""

    def __init__(self) -> None:
        self.memory = ValueMemory()
        self.queue, self.ends = Queue(self.memory), Ends(self.memory)

    def waiting(self, name: str, gpus: int, need: float, number: int = 0) -> None:
        self.queue.enqueue(active(name, gpus, number), need, need)

    def poles(self, now: float = 0.0, gpus: int = 16, declares: bool = True, nobody_comes: bool = True) -> LongPoles:
        return LongPoles(self.queue, self.ends, now, gpus, lambda _id: declares, nobody_comes=nobody_comes)


def test_a_job_is_a_pole_once_the_rest_would_be_done_before_it() -> None:
    jobs = Jobs()
    jobs.waiting("long", 1, 1000.0)
    jobs.waiting("rest", 16, 900.0)  # all would take 900 + 1000/16
    assert list(jobs.poles().waiting()) == []
    jobs.queue.forget("rest")
    assert list(jobs.poles().waiting()) == ["long"]


def test_as_long_as_jobs_come_nobody_ends_last() -> None:
    jobs = Jobs()
    jobs.waiting("long", 1, 1000.0)
    assert list(jobs.poles(nobody_comes=False).waiting()) == []
    pole, brief = active("pole", 1, 1), active("brief", 1, 2)
    jobs.ends.expect(pole, 1, 1000.0)
    assert jobs.poles(nobody_comes=False).may_lose_gpus(pole, brief, 900.0)
    assert not jobs.poles().may_lose_gpus(pole, brief, 900.0)


def test_running_jobs_count_for_what_they_have_left() -> None:
    jobs = Jobs()
    jobs.waiting("long", 1, 1000.0)
    jobs.ends.expect(active("wide", 16), 16, 2000.0)
    assert list(jobs.poles(now=0.0).waiting()) == []
    assert list(jobs.poles(now=1500.0).waiting()) == ["long"]


def test_poles_get_an_eighth_of_the_gpus_the_longest_first() -> None:
    jobs = Jobs()
    for number, time in enumerate((1000.0, 3000.0, 2000.0)):
        jobs.waiting(f"p{number}", 1, time, number)
    jobs.waiting("wide", 4, 5000.0, 9)  # more than an eighth of 16
    poles = jobs.poles()
    taken = []
    for job_id in poles.waiting():
        taken.append(job_id)
        poles.started(active(job_id, 1))
    assert taken == ["p1", "p2"]


def test_only_a_wider_and_brief_job_may_take_a_poles_gpus() -> None:
    jobs = Jobs()
    pole, other = active("pole", 1, 1), active("other", 1, 2)
    jobs.ends.expect(pole, 1, 1000.0)
    jobs.ends.expect(other, 1, 20.0)
    poles = jobs.poles()
    wide, narrow = active("wide", 16, 3), active("narrow", 1, 4)
    assert poles.may_lose_gpus(pole, wide, 50.0) and not poles.may_lose_gpus(pole, wide, 150.0)
    assert not poles.may_lose_gpus(pole, narrow, 50.0)
    assert poles.may_lose_gpus(other, narrow, 1e9)
    # who does not say how long it takes is no pole
    assert jobs.poles(declares=False).may_lose_gpus(pole, narrow, 150.0)


def test_ends_are_kept_in_order_and_their_gpu_time_is_summed() -> None:
    ends = Ends(EndsMemory())
    late, soon = active("late", 4, 1), active("soon", 2, 2)
    ends.expect(late, 4, 500.0)
    ends.expect(soon, 2, 100.0)
    ends.expect(soon, 2, 200.0)  # a better guess replaces the first
    assert list(ends.soonest()) == [(200.0, "soon"), (500.0, "late")]
    assert [job_id for _, job_id in ends.latest()] == ["late", "soon"]
    assert ends.gpu_time_left(100.0) == 4 * 400 + 2 * 100
    assert ends.overdue(300.0) == ["soon"]
    ends.forget("soon")
    ends.forget("soon")
    assert ends.gpu_time_left(100.0) == 4 * 400 and "soon" not in ends.of


def test_who_is_given_gpus_by_a_plan_that_is_thrown_away_waits_as_before() -> None:
    jobs = Jobs()
    jobs.waiting("long", 1, 1000.0)
    jobs.waiting("rest", 2, 100.0)
    before = jobs.memory.save(cluster(1))
    jobs.memory.begin()
    assert jobs.queue.dequeue("long") is not None and jobs.queue.backlog == 200.0
    assert jobs.queue.dequeue("long") is None  # it is not taken from the sum twice
    jobs.memory.drop()
    assert jobs.memory.save(cluster(1)) == before
    jobs.queue.dequeue("long")
    jobs.waiting("long", 1, 1000.0)  # its start failed: it waits again
    assert jobs.memory.save(cluster(1))["longest"] == before["longest"] and jobs.queue.backlog == 1200.0
