"""Why a job waits, who is ahead of it, what is free and why that does not do: as data, and as somebody would say it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from builders import cluster, mixed_cluster
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.queues import Queue
from dally.core.scheduler import Scheduler
from dally.core.snapshot import save
from dally.core.topology import Topology
from dally.live.durations import Exact, History
from dally.live.explaining import explain
from dally.live.forecast import Known
from dally.live.telling import estimate_text, explain_text
from dally.policies.options import make_policy

TREE = cluster(2, 2, 4)


class Obliging:
    def next_events(self) -> None:
        return None

    def carry_out(self, now: float, decided: Any) -> list[ev.Event]:
        return [ev.Started(action.job) for action in decided if isinstance(action, pl.Start)]


def queue(jobs: list[Job], topology: Topology = TREE, policy: str = "fifo", now: float = 60.0) -> dict[str, Any]:
    scheduler = Scheduler(topology, make_policy(policy), Obliging(), Journal())
    scheduler.step(0.0, [ev.Arrived(each) for each in jobs])
    scheduler.step(now, [ev.TimerDue()])
    found: dict[str, Any] = json.loads(json.dumps(save(scheduler)))
    return found


BUSY = [Job("1", 0.0, 12, user="ann", declared_duration=1000.0), Job("2", 0.0, 8, user="bob", declared_duration=300.0),
        Job("3", 0.0, 4, user="bob", declared_duration=300.0), Job("4", 0.0, 2, user="cy", declared_duration=300.0)]  # fmt: skip


def test_a_waiting_job_is_told_why_who_is_ahead_what_is_free_and_when() -> None:
    found = explain(queue(BUSY), "4", durations=Exact({"1": 1000.0, "2": 300.0, "3": 300.0}))
    assert (found["state"], found["gpus"], found["lasts"]) == ("waiting", 2, 60.0)
    assert found["reason"] == "Priority"
    assert found["ahead"]["jobs"] == 2 and found["ahead"]["gpus"] == 12 and found["ahead"]["of"] == 3
    assert [each["id"] for each in found["ahead"]["first"]] == ["2", "3"]
    assert found["free"]["gpus"] == found["free"]["usable"] == 4
    assert "kept for 2 jobs that come before it" in found["free"]["why"]
    assert found["estimate"]["median"] == pytest.approx(940.0)
    json.dumps(found, allow_nan=False)


def test_it_reads_like_a_person_wrote_it() -> None:
    text = explain_text(explain(queue(BUSY), "2", durations=Exact({"1": 1000.0}), known=Known(history=History((), {"2": "bert"}))))
    assert text.splitlines() == [
        "Job 2 (bert, bob) waits for 8 GPUs, for 60.0 s so far.",
        "  Why     fewer than 8 GPUs are free for it [WaitingForGpus]",
        "  Ahead   nobody: it is the first in the queue of 3",
        "  Free    4 GPUs are free, it asks for 8",
        "  Start   in about 15.7 min",
        "          (durations are known exactly)",
        "  Sooner  nothing that was tried would start it sooner: submitted anew it begins at the end again",
    ]


def test_a_running_job_is_told_where_it_runs() -> None:
    found = explain(queue(BUSY), "1")
    assert found["state"] == "running"
    assert {name: len(gpus) for name, gpus in found["machines"].items()} == {"rack0/m0": 4, "rack0/m1": 4, "rack1/m0": 4}
    assert found["level"] == "cluster"
    assert "Where   rack0/m0 (4 GPUs), rack0/m1 (4 GPUs), rack1/m0 (4 GPUs), within one cluster" in explain_text(found)


def test_who_was_turned_away_is_told_so() -> None:
    found = explain(queue([Job("1", 0.0, 99)]), "1")
    assert (found["state"], found["reason"], found["estimate"]) == ("rejected", "ExceedsCapacity", None)
    assert explain_text(found).splitlines()[0] == "Job 1 is rejected."


def test_free_gpus_of_another_type_are_named() -> None:
    topology = mixed_cluster(v100=(4, 4), a100=(4,))
    found = explain(queue([Job("1", 0.0, 4, "a100"), Job("2", 0.0, 4, "a100")], topology), "2")
    assert found["free"]["why"] == "no GPU is free of type a100, it asks for 4; 8 of other types are"
    assert found["free"]["by_type"] == {"v100": 8, "a100": 0}


def test_machines_that_are_down_are_named() -> None:
    scheduler = Scheduler(TREE, make_policy("fifo"), Obliging(), Journal())
    scheduler.step(0.0, [ev.MachineDown("rack0/m0"), ev.Arrived(Job("1", 0.0, 16))])
    found = explain(save(scheduler), "1")
    assert found["free"]["why"] == "12 GPUs are free, it asks for 16; 1 machine is down or drained"


def test_a_timer_of_the_policy_is_said_with_the_time_left() -> None:
    """Two GPUs are free, each on a machine of its own; Dally waits two hours for two in one rack."""
    scheduler = Scheduler(cluster(2, 1, 4), make_policy("dally[timers=manual]"), Obliging(), Journal())
    scheduler.step(0.0, [ev.Arrived(Job(name, 0.0, 3, declared_duration=50_000.0)) for name in ("1", "2")])
    scheduler.step(1.0, [ev.Arrived(Job("3", 1.0, 2, declared_duration=100.0))])
    found = explain(save(scheduler), "3", now=601.0)
    assert found["reason"] == "WaitingForLocality"
    assert found["until_in"] == pytest.approx(6600.0)
    assert found["estimate"]["high"] <= 6600.0
    assert "  Until   this reason ends by itself in 110 min" in explain_text(found)


def test_a_job_that_its_queue_keeps_back_is_told_when_it_will_start() -> None:
    scheduler = Scheduler(TREE, make_policy("fifo"), Obliging(), Journal())
    scheduler.step(0.0, [ev.QueuesSet((Queue("vision", max_gpus=4),))])
    jobs = [Job(str(i), 0.0, 4, user="ann", tenant="vision", declared_duration=600.0) for i in range(3)]
    scheduler.step(0.0, [ev.Arrived(each) for each in jobs])
    scheduler.step(60.0, [ev.TimerDue()])
    found = explain(save(scheduler), "2", durations=Exact({"0": 600.0, "1": 600.0}))
    assert (found["state"], found["reason"]) == ("held", "WaitingForQuota")
    assert [each["id"] for each in found["ahead"]["first"]] == ["1"]
    assert found["estimate"]["median"] == pytest.approx(1140.0)
    assert explain_text(found).startswith("Job 2 (ann) waits until its queue may have 4 GPUs more")


def test_a_job_that_its_owner_holds_is_told_no_time() -> None:
    scheduler = Scheduler(TREE, make_policy("fifo"), Obliging(), Journal())
    scheduler.step(0.0, [ev.Arrived(Job("1", 0.0, 16)), ev.Arrived(Job("2", 0.0, 4)), ev.Held("2", "over the weekend")])
    found = explain(save(scheduler), "2")
    assert (found["state"], found["reason"], found["estimate"]) == ("held", "Held", None)
    assert explain_text(found).startswith("Job 2 is held and wants 4 GPUs")


def test_a_job_nobody_knows_is_refused() -> None:
    with pytest.raises(UserError, match="nobody knows a job '9'"):
        explain(queue(BUSY), "9")


def test_ranges_are_said_as_they_are() -> None:
    estimate = {"low": 60.0, "median": 120.0, "high": None, "samples": 5}
    assert estimate_text(estimate) == "in 60.0 s to much later, about 2 min"
    assert estimate_text({**estimate, "low": 0.0, "high": 240.0}) == "at once to 4 min, about 2 min"
    assert estimate_text({"low": 0.0, "median": 0.0, "high": 0.0, "samples": 5}) == "at once"
    assert estimate_text({"low": 5.0, "median": None, "high": None, "samples": 0}).startswith("not in the next 5.0 s")
    assert estimate_text({"low": None, "median": None, "high": None, "samples": 5}) == "nobody can say"
