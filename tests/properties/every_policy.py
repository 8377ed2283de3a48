"""What the properties draw from: every registered policy with several options, small worlds, and a replay."""

from __future__ import annotations

import dataclasses
import typing
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from hypothesis import strategies as st

from builders import Flat, Played, Spec, cluster, job, mixed_cluster, play
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.journal import Entry, Leaving
from dally.core.topology import Topology
from dally.policies.options import all_policies
from dally.simulator.faults import Faults


@cache
def variants(name: str) -> list[str]:
    """The policy as it is, every choice of every option that lists its choices, and times a hundredth as long."""
    maker = dict(all_policies())[name]
    hints = typing.get_type_hints(maker.Options)
    found = [name]
    for field in dataclasses.fields(maker.Options):
        hint, default = hints[field.name], field.default
        if hint is bool:
            found.append(f"{name}[{field.name}={'false' if default else 'true'}]")
        elif typing.get_origin(hint) is typing.Literal:
            found += [f"{name}[{field.name}={value}]" for value in typing.get_args(hint) if value != default]
        elif isinstance(default, float) and field.metadata.get("unit") == "s":
            found += [f"{name}[{field.name}={default / 100!r}]"]
    return found


NAMES = [name for name, _ in all_policies()]
CLUSTERS = [cluster(4), cluster(2, 4), cluster(2, 2, 2), cluster(1, 2, 4, islands=(2, 2)),
            mixed_cluster(v100=(4, 2), a100=(4, 4))]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One small world; the policy is put in by the test."""

    policy: str
    jobs: list[Spec]
    topology: Topology
    network: str
    cost: tuple[float, float]
    faulty: int | None  # the seed, where things break
    scale: float

    def faults(self) -> Faults | None:
        if self.faulty is None:
            return None
        return Faults(len(self.topology.machines), mtbf=500 * self.scale, mttr=20 * self.scale,
                      job_mtbf=300 * self.scale, retries=10_000, checkpoint_interval=5 * self.scale,
                      seed=self.faulty)  # fmt: skip

    def play(self) -> Played:
        return play(self.jobs, self.topology, self.policy, network=self.network, cost=Flat(*self.cost),
                    faults=self.faults(), instants=30_000)  # fmt: skip


@st.composite
def cases(draw: st.DrawFn, policy: str, faults: bool | None = None) -> Case:
    topology = draw(st.sampled_from(CLUSTERS))
    scale = draw(st.sampled_from([1.0, 60.0]))
    lengths = st.integers(0, 40) | st.floats(0.01, 40.0)
    rows = st.tuples(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 8]), lengths, st.integers(0, 30) | st.floats(0, 30),
                     st.sampled_from((None, None, *topology.gpu_types)))  # fmt: skip
    drawn = draw(st.lists(rows, min_size=1, max_size=12))
    jobs = [job(f"j{i}", gpus, duration * scale, submit * scale, gpu_type=kind)
            for i, (gpus, duration, submit, kind) in enumerate(drawn)]  # fmt: skip
    faulty = draw(st.integers(0, 99)) if faults or (faults is None and draw(st.booleans())) else None
    return Case(draw(st.sampled_from(variants(policy))), jobs, topology,
                draw(st.sampled_from(["ideal", "level-penalty"])),
                draw(st.sampled_from([(0.0, 0.0), (0.0, 2.0), (1.5, 2.5)])), faulty, scale)  # fmt: skip


def runnable(case: Case) -> set[str]:
    return {spec.job.id for spec in case.jobs if spec.job.gpus <= case.topology.capacity(spec.job.gpu_type)}


class Replay:
    """Who holds which GPU, from the journal alone: shares no code with the scheduler or the index of free GPUs."""

    def __init__(self, topology: Topology, jobs: list[Spec], entries: list[tuple[float, Entry]]) -> None:
        self.topology = topology
        self.jobs = {spec.job.id: spec.job for spec in jobs}
        self.owner: dict[tuple[int, int], str] = {}  # of shared GPUs, whoever came last
        self.placed: dict[str, str] = {}  # where jobs run, as text
        self.limits = {spec.job.id: spec.job.limits for spec in jobs}
        self.parted: dict[str, str] = {}  # preempted off shared GPUs: which they were
        self.down: set[int] = set()
        self.vacated: dict[str, float] = {}  # preempted, GPUs still with it, since when
        self.running: set[str] = set()
        self.ended: set[str] = set()
        self.moves = defaultdict(list)  # times at which a job's GPUs are taken away by a plan
        for now, entry in entries:
            if isinstance(entry, (pl.Preempt, pl.Migrate, pl.Resize)):
                self.moves[entry.job].append(now)
        for now, entry in entries:
            self.see(now, entry)

    def held(self, job_id: str) -> list[tuple[int, int]]:
        return [gpu for gpu, owner in self.owner.items() if owner == job_id]

    def drop(self, job_id: str) -> None:
        where = self.placed.pop(job_id, None)
        heir = next((other for other, there in self.placed.items() if there == where), None)
        for gpu in self.held(job_id):
            if heir is None:
                del self.owner[gpu]
            else:
                self.owner[gpu] = heir
        self.vacated.pop(job_id, None)
        self.running.discard(job_id)

    def see(self, now: float, entry: Entry) -> None:
        if isinstance(entry, (pl.Start, pl.Migrate, pl.Resize)):
            if not isinstance(entry, pl.Start):
                self.drop(entry.job)
            self.occupy(now, entry)
        elif isinstance(entry, pl.Preempt):
            assert entry.job in self.running, f"{entry.job} is preempted and does not run"
            shared = list(self.placed.values()).count(self.placed[entry.job]) > 1
            self.parted.pop(entry.job, None)
            if shared:
                self.parted[entry.job] = self.placed[entry.job]
                self.drop(entry.job)  # the others keep the GPUs
            self.running.discard(entry.job)
            self.vacated[entry.job] = now
        elif isinstance(entry, pl.Reshare):
            assert entry.job in self.running, f"{entry.job} is given another share and does not run"
        elif isinstance(entry, Leaving):
            # of jobs that shared GPUs and are preempted all at once, one keeps them
            for gpu, owner in self.owner.items():
                if self.vacated.get(owner) == now and self.placed.get(owner) == self.parted.get(entry.job, ""):
                    self.owner[gpu] = entry.job
            assert len(self.held(entry.job)) == entry.gpus, f"{entry.job} keeps other GPUs than the journal says"
        elif isinstance(entry, (ev.Finished, ev.Failed, ev.Cancelled)):
            assert entry.job not in self.ended, f"{entry.job} ends twice"
            assert not isinstance(entry, ev.Finished) or entry.job in self.running, (
                f"{entry.job} ends and does not run"
            )
            self.ended.add(entry.job)
            self.drop(entry.job)
        elif isinstance(entry, (ev.Interrupted, ev.Yielded)):
            self.drop(entry.job)
        elif isinstance(entry, ev.MachineDown):
            assert not any(m == entry.machine for m, _ in self.owner), f"machine {entry.machine} is down and in use"
            self.down.add(entry.machine)
        elif isinstance(entry, ev.MachineUp):
            self.down.discard(entry.machine)

    def occupy(self, now: float, entry: pl.Start | pl.Migrate | pl.Resize) -> None:
        wanted = self.jobs[entry.job]
        assert entry.job not in self.running and entry.job not in self.ended, (
            f"{entry.job} starts and is not waiting"
        )
        assert entry.job not in self.vacated, f"{entry.job} starts before it has yielded"
        gpus = [
            (m, bit) for m, mask in entry.placement.slices for bit in range(mask.bit_length()) if mask >> bit & 1
        ]
        fewest, most = (wanted.gpus,) * 2 if isinstance(entry, pl.Start) else self.limits[entry.job]
        assert fewest <= len(set(gpus)) <= most, f"{entry.job} is a gang of {wanted.gpus} on {len(set(gpus))} GPUs"
        types = {self.topology.machines[m].gpu_type for m, _ in gpus}
        assert len(types) == 1 and (wanted.gpu_type is None or types == {wanted.gpu_type}), (
            f"{entry.job} is on {types}"
        )
        for gpu in gpus:
            assert gpu[1] < self.topology.machines[gpu[0]].gpus, f"there is no GPU {gpu}"
            assert gpu[0] not in self.down, f"{entry.job} starts on machine {gpu[0]}, which is down"
            holder = self.owner.get(gpu)
            share = None if isinstance(entry, pl.Resize) else entry.share
            if share is not None and holder is not None and self.placed.get(holder) == entry.placement.text():
                holder = None  # the very same GPUs, shared
            # handed over in the plan that preempts the holder, and in no other
            assert holder is None or (now in self.moves[holder] and self.vacated.get(holder, now) == now), \
                f"GPU {gpu} is with {holder} and given to {entry.job} at {now}"  # fmt: skip
            self.owner[gpu] = entry.job
        self.running.add(entry.job)
        self.placed[entry.job] = entry.placement.text()


def work_by_journal(entries: list[tuple[float, Entry]]) -> dict[str, float]:
    """Σ speed × productive seconds of every job, from the journal alone."""
    done: dict[str, float] = defaultdict(float)
    speed: dict[str, tuple[float, float]] = {}  # job → (speed, productive from)

    def stop(now: float, job_id: str) -> None:
        rate, since = speed.pop(job_id, (0.0, now))
        done[job_id] += rate * max(0.0, now - since)

    for now, entry in entries:
        if isinstance(entry, ev.Measured):
            loading = max(now, speed.get(entry.job, (0.0, now))[1], now + entry.delay)
            stop(now, entry.job)
            speed[entry.job] = (entry.speed, loading)
        elif isinstance(entry, (pl.Preempt, pl.Migrate, pl.Resize, ev.Interrupted, ev.Finished, ev.Failed)):
            stop(now, entry.job)
    return dict(done)
