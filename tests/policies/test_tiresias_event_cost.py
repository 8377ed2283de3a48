"""An event under Tiresias costs the same however many jobs wait: calls are counted, not seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import SilentWorld, calls, cluster
from dally.core import events as ev
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.plan import Start
from dally.core.scheduler import Scheduler
from dally.policies.options import make_policy

POLICIES = [
    "tiresias",
    "tiresias[placement=strict]",
    "tiresias[index=gittins,distribution=D]",
    "tiresias[promote=4]",
    "tiresias[continuous=true]",
    "tiresias[queues=1,index=gittins,distribution=D]",
    "tiresias[variant=released]",
    "tiresias[variant=released,promote=8]",
    "tiresias[variant=dally-paper]",
]


def one_end(policy: str, queue: int) -> int:
    """64 GPUs, all busy, a queue of skewed and other gangs; one job ends and another starts."""
    world = SilentWorld()
    scheduler = Scheduler(cluster(1, 8, 8), make_policy(policy), world, Journal())
    running = [Job(f"r{i}", 0.0, 1, model="resnet50") for i in range(64)]
    waiting = [Job(f"w{i}", 1.0, (1, 2, 4, 8)[i % 4], model=("vgg16", "resnet50")[i // 4 % 2]) for i in range(queue)]
    scheduler.step(0.0, [ev.Arrived(job) for job in running])
    scheduler.step(0.0, [ev.Measured(job.id, 1.0, 1.0, 0.0) for job in running])
    scheduler.step(1.0, [ev.Arrived(job) for job in waiting])
    before = len(world.done)
    counted = calls(lambda: scheduler.step(2.0, [ev.Finished("r0")]))
    assert any(isinstance(action, Start) for action in world.done[before:]), "the freed GPU found nobody"
    return counted


@pytest.mark.parametrize("policy", POLICIES)
def test_an_end_costs_as_many_calls_with_thousands_waiting_as_with_a_hundred(policy: str, tmp_path: Path) -> None:
    # a learned distribution moves the whole queue each time it has grown by a tenth; a given one never does
    known = tmp_path / "known.csv"
    known.write_text("duration\n" + "\n".join(str(10 * i) for i in range(1, 1000)))
    policy = policy.replace("D]", f"{known}]")
    counted = [one_end(policy, queue) for queue in (100, 1_000, 5_000)]
    assert max(counted) < 1.5 * min(counted), counted
