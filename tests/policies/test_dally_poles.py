"""Long poles: who needs longer than all that is known would keep the cluster busy goes first, within bounds."""

from __future__ import annotations

from builders import at
from dally.core.active import ActiveJob
from dally.core.job import Job
from dally.policies.dally.ends import Ends
from dally.policies.dally.poles import LongPoles


def active(name: str, gpus: int, number: int = 0) -> ActiveJob:
    return ActiveJob(Job(name, 0.0, gpus), number, 0.0)


def begun(poles: LongPoles, ends: Ends, now: float = 0.0, gpus: int = 16, declares: bool = True) -> list[str]:
    poles.begin(ends, now, gpus, lambda _job: declares)
    return list(poles.waiting())


def test_a_job_is_a_pole_once_the_rest_would_be_done_before_it() -> None:
    poles = LongPoles()
    poles.queued(active("long", 1), 1000.0)
    poles.queued(active("rest", 16), 900.0)  # all would take 900 + 1000/16
    assert begun(poles, Ends()) == []
    poles.left_queue("rest")
    assert begun(poles, Ends()) == ["long"]


def test_running_jobs_count_for_what_they_have_left() -> None:
    poles, ends = LongPoles(), Ends()
    poles.queued(active("long", 1), 1000.0)
    ends.expect(active("wide", 16), at((0, 0xFFFF)), 2000.0)
    assert begun(poles, ends, now=0.0) == []
    assert begun(poles, ends, now=1500.0) == ["long"]


def test_poles_get_an_eighth_of_the_gpus_the_longest_first() -> None:
    poles = LongPoles()
    for number, time in enumerate((1000.0, 3000.0, 2000.0)):
        poles.queued(active(f"p{number}", 1, number), time)
    poles.queued(active("wide", 4, 9), 5000.0)  # more than an eighth of 16
    poles.begin(Ends(), 0.0, 16, lambda _job: True)
    taken = []
    for job_id in poles.waiting():
        taken.append(job_id)
        poles.started(active(job_id, 1))
    assert taken == ["p1", "p2"]


def test_only_a_wider_and_brief_job_may_take_a_poles_gpus() -> None:
    poles, ends = LongPoles(), Ends()
    pole, other = active("pole", 1, 1), active("other", 1, 2)
    ends.expect(pole, at((0, 0b1)), 1000.0)
    ends.expect(other, at((0, 0b10)), 20.0)
    poles.begin(ends, 0.0, 16, lambda _job: True)
    wide, narrow = active("wide", 16, 3), active("narrow", 1, 4)
    assert poles.may_lose_gpus(pole, wide, 50.0) and not poles.may_lose_gpus(pole, wide, 150.0)
    assert not poles.may_lose_gpus(pole, narrow, 50.0)
    assert poles.may_lose_gpus(other, narrow, 1e9)
    poles.begin(ends, 0.0, 16, lambda _job: False)  # who does not say how long it takes is no pole
    assert poles.may_lose_gpus(pole, narrow, 150.0)


def test_ends_are_kept_in_order_and_their_gpu_time_is_summed() -> None:
    ends = Ends()
    late, soon = active("late", 4, 1), active("soon", 2, 2)
    ends.expect(late, at((0, 0xF)), 500.0)
    ends.expect(soon, at((0, 0x30)), 100.0)
    ends.expect(soon, at((0, 0x30)), 200.0)  # a better guess replaces the first
    assert [end for end, _ in ends.soonest()] == [200.0, 500.0] and [job.id for _, job in ends.latest()] == ["late", "soon"]
    assert ends.gpu_time_left(100.0) == 4 * 400 + 2 * 100
    assert [job.id for job, _ in ends.overdue(300.0)] == ["soon"]
    ends.forget(soon)
    ends.forget(soon)
    assert ends.gpu_time_left(100.0) == 4 * 400 and "soon" not in ends
