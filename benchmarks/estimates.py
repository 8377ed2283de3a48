"""How good estimated starts are: a simulated service is asked when jobs that wait will start, and then shows it.

    python benchmarks/live.py estimates

Three of ten jobs are asked about, once, with what a service knows then: declarations that are off by a log-normal
factor, or none, and how long ended jobs took. `submit`: right after it was submitted, while others go on submitting.
`last`: after the last submission, when it is true that nobody submits any more. Eight of ten should be in the range.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dally.catalog.clusters.load import load_cluster
from dally.core.job import Job, Truth
from dally.core.journal import Journal
from dally.core.scheduler import Scheduler
from dally.core.snapshot import save
from dally.core.states import ENDED, State
from dally.live.durations import History, Past
from dally.live.forecast import Estimate, Known, Said, estimate_start
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.knowledge import tell
from dally.simulator.workload import Workload, prepare
from dally.simulator.world import SimulatedWorld
from dally.traces.trace import Trace

USERS = 8
ASKED = 0.3  # of those that wait
CASES = [(load, when, knowledge) for load, when in ((0.9, "submit"), (1.5, "submit"), (1.5, "last"))
         for knowledge in ("noisy=0.7", "none")]  # fmt: skip


class Asked(NamedTuple):
    at: float
    estimate: Estimate
    start: float  # when it did


def workload(seed: int, jobs: int, cluster: str, load: float, knowledge: str) -> Workload:
    """Jobs of a few users, each with durations of their own kind, as many as keep the cluster this busy."""
    chance = random.Random(seed)
    topology = load_cluster(cluster)
    usual = [chance.uniform(5.0, 8.5) for _ in range(USERS)]  # logarithm of seconds: 2.5 minutes to 80
    sizes = [chance.choice((1, 1, 1, 2, 2, 4, 4, 8, 16)) for _ in range(jobs)]
    users = [chance.randrange(USERS) for _ in range(jobs)]
    durations = [chance.lognormvariate(usual[user], 0.8) for user in users]
    span = sum(size * each for size, each in zip(sizes, durations, strict=True)) / topology.gpus / load
    times = sorted(chance.uniform(0.0, span) for _ in range(jobs))
    made = [Job(str(number), when, size, user=f"u{user}")
            for number, (when, size, user) in enumerate(zip(times, sizes, users, strict=True))]  # fmt: skip
    trace = Trace("benchmark", "made", made, [Truth(duration) for duration in durations])
    return tell(prepare(trace, topology, make_network("ideal", topology)), knowledge, seed)


def asked(policy: str, seed: int, jobs: int, cluster: str, load: float, knowledge: str,
          when: str) -> Iterator[Asked]:  # fmt: skip
    made, topology = workload(seed, jobs, cluster, load, knowledge), load_cluster(cluster)
    network = make_network("ideal", topology)
    world = SimulatedWorld(made, topology, network)
    scheduler = Scheduler(topology, make_policy(policy), world, Journal(), Said())
    said: dict[str, tuple[float, Estimate]] = {}
    seen: set[str] = set()
    chance = random.Random(seed)

    def between(now: float) -> bool:
        if when == "submit" or (len(scheduler.jobs) == jobs and not seen):
            known = Known(Said(), _history(scheduler))
            for job_id in [job_id for job_id in scheduler.jobs if job_id not in seen]:
                seen.add(job_id)
                job = scheduler.jobs[job_id]
                if chance.random() < ASKED and job.state is State.WAITING and job.first_start is None:
                    said[job_id] = now, estimate_start(save(scheduler), job_id, known=known, seed=seed, budget=60.0)
        return True

    scheduler.run(between)
    for job_id, (at, estimate) in said.items():
        start = scheduler.jobs[job_id].first_start
        if start is not None:
            yield Asked(at, estimate, start)


def _history(scheduler: Scheduler) -> History:
    ended = [job for job in scheduler.jobs.values() if job.state in ENDED and job.work_done > 0]
    return History([Past(job.job.user, None, job.gpus, job.job.work, job.work_done) for job in ended])


def show(policies: Sequence[str], *, seeds: int, jobs: int, cluster: str) -> None:
    print(f"starts of jobs that had to wait, {seeds} seeds of {jobs} jobs on {cluster}: where they fell, in percent")
    print(f"{'policy':10} {'load':>5} {'asked at':>8} {'told':>10} {'asked':>6} {'before':>7} {'within':>7} "
          f"{'after':>6} {'no range':>9}")  # fmt: skip
    for policy in policies:
        for load, when, knowledge in CASES:
            found = [each for seed in range(seeds)
                     for each in asked(policy, seed, jobs, cluster, load, knowledge, when)]  # fmt: skip
            known = [each for each in found if each.estimate.low is not None and each.estimate.samples]
            before = sum(each.start - each.at < (each.estimate.low or 0.0) - 1.0 for each in known)
            after = sum(each.estimate.high is not None and each.start - each.at > each.estimate.high + 1.0
                        for each in known)  # fmt: skip
            count = max(1, len(known))
            print(f"{policy:10} {load:5.1f} {when:>8} {knowledge:>10} {len(found):6} {100 * before / count:7.0f} "
                  f"{100 * (len(known) - before - after) / count:7.0f} {100 * after / count:6.0f} "
                  f"{len(found) - len(known):9}", flush=True)  # fmt: skip
