"""A cluster that has shrunk: a job that what is left could never hold waits, and is in nobody's way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from every_policy import NAMES, Case
from test_property_holds import begin

from builders import SilentWorld, Spec, cluster, job
from dally.core import events as ev
from dally.core.journal import Journal
from dally.core.queues import Queue
from dally.core.reasons import Token
from dally.core.scheduler import Scheduler
from dally.core.states import ENDED, State
from dally.policies.options import make_policy

TREE = cluster(1, 2, 4)
GONE = TREE.machine_names[1]
EVERY = [*NAMES, "fifo[backfill=true]"]


def shrunk(policy: str, jobs: list[Spec], how: ev.Event) -> Scheduler:
    """All machines are idle; one is lost, then the jobs come in, until everybody but one has ended."""
    _, scheduler = begin(Case(policy, jobs, TREE, "ideal", (0, 0), None, 1.0), Journal())
    scheduler.step(0.0, [how])
    scheduler.run(lambda now: sum(each.state in ENDED for each in scheduler.jobs.values()) < len(jobs) - 1)
    return scheduler


@pytest.mark.parametrize("policy", EVERY)
@pytest.mark.parametrize("how", [ev.MachineDown(GONE), ev.MachineDrained(GONE)])
def test_a_job_larger_than_what_is_up_lets_others_pass_and_says_why_it_waits(policy: str, how: ev.Event) -> None:
    jobs = [job("large", 8, 10, 1, model="resnet50"), *(job(f"s{i}", 2, 10, 2 + i, model="resnet50") for i in range(5))]
    scheduler = shrunk(policy, jobs, how)
    assert {name: each.state for name, each in scheduler.jobs.items()} == {
        "large": State.WAITING, **{f"s{i}": State.FINISHED for i in range(5)}}  # fmt: skip
    reason = scheduler.reason("large")
    assert reason is not None and (reason.token, reason.sentence) == (
        Token.EXCEEDS_CAPACITY, "asks for 8 GPUs; 4 are on machines that are up")  # fmt: skip
    scheduler.step(scheduler.time, [ev.MachineUp(GONE)])
    scheduler.run()
    assert scheduler.jobs["large"].state is State.FINISHED


@pytest.mark.parametrize("policy", EVERY)
def test_a_gang_whose_domain_has_shrunk_is_passed_as_well(policy: str) -> None:
    large = job("large", 8, 10, 1, model="resnet50")
    large = replace(large, job=replace(large.job, within="rack"))
    scheduler = shrunk(policy, [large, job("small", 1, 10, 2, model="resnet50")], ev.MachineDrained(GONE))
    assert (scheduler.jobs["large"].state, scheduler.jobs["small"].state) == (State.WAITING, State.FINISHED)
    reason = scheduler.reason("large")
    assert reason is not None and reason.sentence == "asks for 8 GPUs inside one rack; no rack has more than 4 on machines that are up"


def test_a_job_that_fits_what_is_up_is_not_passed() -> None:
    jobs = [job("long", 2, 100), job("first", 4, 10, 1), job("second", 1, 10, 2)]
    scheduler = shrunk("fifo", jobs, ev.MachineDown(GONE))
    scheduler.run()
    ends = {name: each.first_start for name, each in scheduler.jobs.items()}
    assert ends == {"long": 0.0, "first": 100.0, "second": 110.0}


def test_a_machine_that_was_taken_out_is_no_different() -> None:
    scheduler = Scheduler(TREE, make_policy("fifo"), SilentWorld(), Journal())
    scheduler.step(0.0, [ev.Arrived(job("first", 8, 10).job), ev.Arrived(job("second", 8, 10).job)])
    scheduler.step(6.0, [ev.MachinesChanged((), (GONE,)), ev.Arrived(job("tiny", 1, 10).job)])
    scheduler.step(7.0, [ev.Cancelled("first")])
    reason = scheduler.reason("second")
    assert reason is not None and reason.sentence == "asks for 8 GPUs; the cluster has 4"
    assert scheduler.jobs["tiny"].state in (State.STARTING, State.RUNNING)


def test_in_its_queue_it_takes_no_share_from_the_others_of_the_queue() -> None:
    def of(spec: Spec, queue: str) -> Spec:
        return replace(spec, job=replace(spec.job, tenant=queue))

    jobs = [of(job("large", 8, 10, 1), "a"), *(of(job(f"a{i}", 1, 10, 2), "a") for i in range(8)),
            *(of(job(f"b{i}", 1, 10, 2), "b") for i in range(8))]  # fmt: skip
    _, scheduler = begin(Case("fifo", jobs, TREE, "ideal", (0, 0), None, 1.0), Journal())
    scheduler.step(0.0, [ev.QueuesSet((Queue("a"), Queue("b"))), ev.MachineDown(GONE)])
    scheduler.run(lambda now: now < 2.0)
    running = [name for name, each in scheduler.jobs.items() if each.placement is not None]
    assert running == ["a0", "a1", "b0", "b1"]
