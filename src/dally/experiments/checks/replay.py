"""Who held which GPU, and who did how much work, from a journal alone: a second opinion on the scheduler's books."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.journal import Entry, Leaving
from dally.core.topology import Topology


class PropertyError(AssertionError):
    """Something that must hold for every policy does not. Its text says what happened."""


def must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise PropertyError(otherwise)


class Replay:
    """Who holds which GPU, from the journal alone: shares no code with the scheduler or the index of free GPUs."""

    def __init__(self, topology: Topology, jobs: Iterable[Job], entries: Sequence[tuple[float, Entry]]) -> None:
        self.topology = topology
        self.jobs = {job.id: job for job in jobs}
        self.owner: dict[tuple[int, int], str] = {}  # of shared GPUs, whoever came last
        self.placed: dict[str, str] = {}  # where jobs run, as text
        self.limits = {job.id: job.limits for job in self.jobs.values()}
        self.parted: dict[str, str] = {}  # preempted off shared GPUs: which they were
        self.down: set[int] = set()
        self.vacated: dict[str, float] = {}  # preempted, GPUs still with it, since when
        self.running: set[str] = set()
        self.ended: set[str] = set()
        self.moves: dict[str, list[float]] = defaultdict(list)  # times at which a job's GPUs are taken away by a plan
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
            must(entry.job in self.running, f"{entry.job} is preempted and does not run")
            shared = list(self.placed.values()).count(self.placed[entry.job]) > 1
            self.parted.pop(entry.job, None)
            if shared:
                self.parted[entry.job] = self.placed[entry.job]
                self.drop(entry.job)  # the others keep the GPUs
            self.running.discard(entry.job)
            self.vacated[entry.job] = now
        elif isinstance(entry, pl.Reshare):
            must(entry.job in self.running, f"{entry.job} is given another share and does not run")
        elif isinstance(entry, Leaving):
            # of jobs that shared GPUs and are preempted all at once, one keeps them
            for gpu, owner in self.owner.items():
                if self.vacated.get(owner) == now and self.placed.get(owner) == self.parted.get(entry.job, ""):
                    self.owner[gpu] = entry.job
            must(len(self.held(entry.job)) == entry.gpus, f"{entry.job} keeps other GPUs than the journal says")
        elif isinstance(entry, (ev.Finished, ev.Failed, ev.Cancelled)):
            must(entry.job not in self.ended, f"{entry.job} ends twice")
            must(not isinstance(entry, ev.Finished) or entry.job in self.running, f"{entry.job} ends and does not run")
            self.ended.add(entry.job)
            self.drop(entry.job)
        elif isinstance(entry, (ev.Interrupted, ev.Yielded, ev.StartFailed)):
            self.drop(entry.job)
        elif isinstance(entry, ev.MachineDown):
            machine = self.topology.machine_by_name[entry.machine]
            must(not any(m == machine for m, _ in self.owner), f"machine {entry.machine} is down and in use")
            self.down.add(machine)
        elif isinstance(entry, ev.MachineUp):
            self.down.discard(self.topology.machine_by_name[entry.machine])

    def occupy(self, now: float, entry: pl.Start | pl.Migrate | pl.Resize) -> None:
        wanted = self.jobs[entry.job]
        must(entry.job not in self.running and entry.job not in self.ended, f"{entry.job} starts and is not waiting")
        must(entry.job not in self.vacated, f"{entry.job} starts before it has yielded")
        gpus = [
            (m, bit) for m, mask in entry.placement.slices for bit in range(mask.bit_length()) if mask >> bit & 1
        ]
        fewest, most = (wanted.gpus,) * 2 if isinstance(entry, pl.Start) else self.limits[entry.job]
        must(fewest <= len(set(gpus)) <= most, f"{entry.job} is a gang of {wanted.gpus} on {len(set(gpus))} GPUs")
        types = {self.topology.machines[m].gpu_type for m, _ in gpus}
        right = len(types) == 1 and (wanted.gpu_type is None or types == {wanted.gpu_type})
        must(right, f"{entry.job} is on {', '.join(sorted(types))}")
        for gpu in gpus:
            must(gpu[1] < self.topology.machines[gpu[0]].gpus, f"there is no GPU {gpu}")
            must(gpu[0] not in self.down, f"{entry.job} starts on machine {gpu[0]}, which is down")
            holder = self.owner.get(gpu)
            share = None if isinstance(entry, pl.Resize) else entry.share
            if share is not None and holder is not None and self.placed.get(holder) == entry.placement.text():
                holder = None  # the very same GPUs, shared
            # handed over in the plan that preempts the holder, and in no other
            must(holder is None or (now in self.moves[holder] and self.vacated.get(holder, now) == now),
                 f"GPU {gpu} is with {holder} and given to {entry.job} at {now}")  # fmt: skip
            self.owner[gpu] = entry.job
        self.running.add(entry.job)
        self.placed[entry.job] = entry.placement.text()


def work_by_journal(entries: Sequence[tuple[float, Entry]]) -> dict[str, float]:
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
