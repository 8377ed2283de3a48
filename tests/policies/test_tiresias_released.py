"""The released simulator's rules: against its results, and against a plain reading of its rules with lists."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders import Spec, cluster, job, play
from dally.core.job import Job, Truth
from dally.policies.tiresias.gittins import ReleasedIndex
from dally.traces.trace import Trace

LIMITS = (60, 150)


@dataclass(eq=False)
class Plain:
    """A job in the plain reading."""

    spec: Spec
    queue: int = 0
    total: int = 0
    executed: int = 0
    waited: int = 0
    checked: int = 0
    running: bool = False
    preempted: int = 0

    @property
    def gpus(self) -> int:
        return self.spec.job.gpus


@dataclass
class PlainSimulator:
    """Lists, and everybody looked at in every event."""

    capacity: int
    promote: float
    index: ReleasedIndex | None
    queues: list[list[Plain]] = field(default_factory=lambda: [[], [], []])

    def run(self, specs: list[Spec]) -> dict[str, tuple[float, int]]:
        coming = sorted((Plain(spec) for spec in specs), key=lambda p: p.spec.job.submit_time)
        active: list[Plain] = []
        done: dict[str, tuple[float, int]] = {}
        jump: int | None = None
        while coming or active:
            times = [int(p.spec.job.submit_time) for p in coming[:1]]
            times += [p.checked + int(p.spec.truth.duration or 0) - p.total for p in active if p.running]
            now = min(times + ([] if jump is None else [jump]))
            for p in [p for p in active if p.running]:
                if p.checked + int(p.spec.truth.duration or 0) - p.total == now:
                    done[p.spec.job.id] = (now - p.spec.job.submit_time, p.preempted)
                    active.remove(p)
                    self.queues[p.queue].remove(p)
            while coming and coming[0].spec.job.submit_time == now:
                p = coming.pop(0)
                p.checked = now
                active.append(p)
                self.queues[0].append(p)
            for p in active:
                self.account(p, now)
            self.place()
            jump = min(self.jumps(active, now), default=None)
        return done

    def account(self, p: Plain, now: int) -> None:
        passed, p.checked = now - p.checked, now
        if p.running:
            p.total += passed
            p.executed += passed
            if p.queue < 2 and p.executed * p.gpus >= LIMITS[p.queue]:
                self.move(p, p.queue + 1)
        elif p.executed > 0:
            p.waited += passed
            if self.promote and p.queue > 0 and p.waited >= int(p.executed * self.promote):
                p.executed = p.waited = 0
                self.move(p, 0)

    def move(self, p: Plain, queue: int) -> None:
        self.queues[p.queue].remove(p)
        p.queue = queue
        self.queues[queue].append(p)

    def place(self) -> None:
        free = self.capacity
        for queue in self.queues:
            if self.index is not None:
                index = self.index
                queue.sort(key=lambda p: (-index(p.executed * p.gpus), p.spec.job.submit_time))
            for p in queue:
                fits = free >= p.gpus
                free -= p.gpus if fits else 0
                p.preempted += p.running and not fits
                p.running = fits
            queue.sort(key=lambda p: not p.running)

    def jumps(self, active: list[Plain], now: int) -> list[int]:
        found = []
        for p in active:
            if p.running and p.queue < 2:
                found.append(now + max(1, (LIMITS[p.queue] - p.executed) // p.gpus))
            elif not p.running and self.promote and p.queue > 0 and p.executed > 0:
                left = int(p.executed * self.promote - p.waited)
                found += [now + left] if left > 0 else []
        return found


jobs_drawn = st.lists(
    st.tuples(st.sampled_from((1, 1, 2, 3, 4, 8)), st.integers(1, 200), st.integers(0, 400)),
    min_size=1, max_size=25, unique_by=lambda drawn: drawn[2],
)  # fmt: skip


# a promotion that is overdue when the job is preempted comes with the next event, not with the world's answer
@example([(8, 109, 185), (8, 172, 75), (4, 130, 85)], 0.1, False)
@given(jobs_drawn, st.sampled_from((0.0, 0.5, 1.0, 3.0)), st.booleans())
def test_indexes_and_heaps_give_what_a_plain_reading_of_the_rules_gives(
    drawn: list[tuple[int, int, int]], promote: float, gittins: bool
) -> None:
    specs = [job(f"j{i}", gpus, duration, submit) for i, (gpus, duration, submit) in enumerate(drawn)]
    totals = [30.0, 60.0, 61.0, 90.0, 200.0, 300.0, 700.0, 5000.0]
    expected = PlainSimulator(8, promote, ReleasedIndex(totals) if gittins else None).run(specs)
    from dally.policies.tiresias import Tiresias
    from dally.policies.tiresias.released import Released

    policy = Tiresias(Tiresias.Options(variant="released", thresholds=(60.0, 150.0), promote=promote))
    if gittins:
        assert isinstance(policy.rules, Released)
        policy.rules.index = ReleasedIndex(totals)
    played = play(specs, cluster(2, 4), policy)
    assert {r.job_id: (r.jct, r.preemptions) for r in played.run.ledger.rows} == expected


@pytest.mark.reference
@pytest.mark.parametrize(("index", "file", "preemptions", "makespan"), [
    ("", "dlas-gpu", 300, 75045), (",index=gittins,distribution={}/yarn-gput1000.csv", "dlas-gpu-gittins", 648, 75379),
])  # fmt: skip
def test_every_job_completes_when_the_released_simulator_says(
    index: str, file: str, preemptions: int, makespan: int, tiresias: Path
) -> None:
    with (tiresias / "jobs_480.csv").open() as lines:
        rows = sorted(csv.DictReader(lines), key=lambda row: float(row["submit_time"]))
    jobs = [Job(r["job_id"], float(r["submit_time"]), int(r["num_gpu"]), model=r["model_name"]) for r in rows]
    trace = Trace("480 jobs", "tiresias", jobs, [Truth(float(r["duration"])) for r in rows])
    played = play(trace, cluster(1, 32, 4), f"tiresias[variant=released{index.format(tiresias)}]")
    with (tiresias / "n32g4" / f"{file}.csv").open() as lines:
        expected = {r["job_id"]: (float(r["JCT"]), int(r["preempt"])) for r in csv.DictReader(lines)}
    assert {r.job_id: (r.jct, r.preemptions) for r in played.run.ledger.rows} == expected
    assert sum(row.preemptions for row in played.run.ledger.rows) == preemptions
    assert played.run.ledger.last_end == makespan


def test_a_demotion_timer_is_late_after_an_event_in_between() -> None:
    # Alone, two GPUs reach 60 GPU-seconds at 30 s. The arrival at 20 sets the timer anew: (60 − 20) // 2 = 20 s later,
    # so `long` keeps its place in queue 0 until 40, and `next`, which came at 20 and wants all GPUs, starts then.
    specs = [job("long", 2, 100, 0), job("next", 2, 10, 20)]
    played = play(specs, cluster(1, 2), "tiresias[variant=released,thresholds=60/150]")
    assert played.run.ledger.row("next").first_start == 40.0


def test_without_an_event_in_between_the_demotion_timer_is_exact() -> None:
    specs = [job("long", 2, 100, 0), job("next", 2, 10, 0)]
    played = play(specs, cluster(1, 2), "tiresias[variant=released,thresholds=60/150]")
    assert played.run.ledger.row("next").first_start == 30.0
