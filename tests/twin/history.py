"""A cluster's history, made without Dally: jobs, a small EASY-backfill scheduler, and what `sacct` would print of them.

Nothing here uses our simulator or our policies, so that a back-test on it is a test. The scheduler is the textbook's:
in each partition jobs go in the order of their priority (fair-share and age), the first that does not fit gets a
reservation from the time limits of those that run, and others start where that does not delay it. It knows nodes and
GPUs one by one, acts at whole seconds, and looks at the queue whenever a job has come or gone.

    python -m tests.twin.history FOLDER [SEED] [JOBS]     writes sacct.txt, slurm.conf and topology.conf
"""

from __future__ import annotations

import heapq
import math
import random
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

ORIGIN = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
HALF_LIFE = 2 * 86400.0  # of usage
MAX_AGE = 86400.0
FAIR_WEIGHT, AGE_WEIGHT = 10_000, 4_000
HOURS = 3600
LIMITS = [1 * HOURS, 2 * HOURS, 4 * HOURS, 8 * HOURS, 12 * HOURS, 24 * HOURS, 48 * HOURS]  # people type round numbers


@dataclass
class Partition:
    name: str
    kind: str  # of its GPUs
    nodes: list[str]
    gpus: int  # of each node
    rack: int = 4  # nodes under one switch


@dataclass
class Batch:
    """A job as it was submitted, and what became of it."""

    id: int
    user: str
    account: str
    partition: Partition
    nodes: int
    gpus: int  # on each node
    exclusive: bool  # nobody else on its nodes; Slurm then allocates and bills all of their GPUs
    submit: int
    run: int  # seconds it would take
    limit: int
    patience: int  # seconds after which its user cancels it, if it still waits
    start: int | None = None
    end: int | None = None
    where: list[str] = field(default_factory=list)
    state: str = ""

    @property
    def held(self) -> int:
        """GPUs it holds on each of its nodes."""
        return self.partition.gpus if self.exclusive else self.gpus


def two_partitions() -> list[Partition]:
    return [Partition("a100", "a100", [f"a{number:02}" for number in range(1, 13)], 8),
            Partition("h100", "h100", [f"h{number:02}" for number in range(1, 7)], 8, rack=3)]  # fmt: skip


def submissions(partitions: list[Partition], count: int, seed: int, load: float = 0.85) -> list[Batch]:
    """Jobs in order of submission: a few busy users and many quiet ones, more by day than by night."""
    rng = random.Random(seed)
    users = [(f"user{number:02}", f"lab{number % 4}", 1.0 / (number + 1)) for number in range(16)]
    busy = [weight for _, _, weight in users]
    found = []
    for number in range(count):
        name, account, _ = rng.choices(users, busy)[0]
        partition = rng.choices(partitions, [len(p.nodes) for p in partitions])[0]
        nodes, gpus, exclusive = rng.choices(
            [(1, 1, False), (1, 2, False), (1, 4, False), (1, 8, False), (1, 4, True), (2, 4, False), (2, 8, True),
             (3, 8, True)], [40, 17, 14, 12, 4, 5, 6, 2])[0]  # fmt: skip
        run = max(20, min(40 * HOURS, round(rng.lognormvariate(math.log(45 * 60), 1.5))))
        roomy = run * rng.choice([1.0, 1.2, 2.0, 4.0, 8.0])
        limit = next((each for each in LIMITS if each >= roomy), LIMITS[-1])
        if rng.random() < 0.05:  # asked for too little
            limit = max(each for each in LIMITS if each <= max(run, LIMITS[0]))
        patience = rng.randrange(1, 12) * HOURS if rng.random() < 0.04 else 10**9
        found.append(Batch(1000 + number, name, account, partition, nodes, gpus, exclusive, 0, run, limit, patience))
    capacity = sum(len(p.nodes) * p.gpus for p in partitions)
    work = sum(min(b.run, b.limit) * b.nodes * b.held for b in found)
    span = work / (capacity * load)
    moments = sorted(_moment(rng, span) for _ in found)
    for batch, moment in zip(found, moments, strict=True):
        batch.submit = round(moment)
    return found


def _moment(rng: random.Random, span: float) -> float:
    """Some time in the span; at three in the morning a third as likely as in the afternoon."""
    while True:
        moment = rng.random() * span
        if rng.random() < (2 - math.cos(2 * math.pi * (moment / 86400 - 3 / 24))) / 3:
            return moment


class Easy:
    """The scheduler: who waits, who runs, and what each user has used."""

    def __init__(self, partitions: list[Partition]) -> None:
        self.partitions = partitions
        self.free = {node: p.gpus for p in partitions for node in p.nodes}
        self.waiting: dict[str, list[Batch]] = {p.name: [] for p in partitions}
        self.running: dict[str, list[Batch]] = {p.name: [] for p in partitions}
        self.used: dict[str, float] = {}  # GPU-seconds, decayed up to `booked`
        self.rate: dict[str, int] = {}  # GPUs each user holds now
        self.booked = 0

    def run(self, batches: list[Batch]) -> None:
        """Everything from the first submission to the last end."""
        events = [(batch.submit, 1, batch.id, batch) for batch in batches]  # ends before arrivals
        events += [(b.submit + b.patience, 2, b.id, b) for b in batches if b.patience < 10**8]
        heapq.heapify(events)
        while events:
            now = events[0][0]
            touched = set()
            while events and events[0][0] == now:
                _, kind, _, batch = heapq.heappop(events)
                touched.add(batch.partition.name)
                if kind == 0:
                    self._end(batch, now)
                elif kind == 1:
                    self.used.setdefault(batch.user, 0.0)
                    self.waiting[batch.partition.name].append(batch)
                elif batch.start is None:
                    self.waiting[batch.partition.name].remove(batch)
                    batch.end, batch.state = now, "CANCELLED by 1000"
            for partition in self.partitions:
                if partition.name in touched:
                    for batch in self._schedule(partition, now):
                        heapq.heappush(events, (batch.end or 0, 0, batch.id, batch))

    # --- priority ---------------------------------------------------------------------------------------------

    def _book(self, now: int) -> None:
        """Usage halves every HALF_LIFE; what runs adds to it."""
        kept = 0.5 ** ((now - self.booked) / HALF_LIFE)
        for user in self.used:
            self.used[user] = self.used[user] * kept + self.rate.get(user, 0) * (1 - kept) * HALF_LIFE / math.log(2)
        self.booked = now

    def _priority(self, batch: Batch, now: int, total: float) -> float:
        share = self.used[batch.user] / total if total else 0.0
        fair = 2.0 ** -(share * len(self.used))  # everybody has the same share
        return FAIR_WEIGHT * fair + AGE_WEIGHT * min(1.0, (now - batch.submit) / MAX_AGE)

    # --- scheduling -------------------------------------------------------------------------------------------

    def _schedule(self, partition: Partition, now: int) -> list[Batch]:
        self._book(now)
        total = sum(self.used.values())
        queue = sorted(self.waiting[partition.name], key=lambda b: (-self._priority(b, now, total), b.id))
        started: list[Batch] = []
        head: Batch | None = None  # the first that does not fit
        reserved: tuple[float, dict[str, int]] | None = None  # from when on, and GPUs that may be taken then, by node
        for batch in queue:
            room = {node: self.free[node] for node in partition.nodes}
            if reserved is not None and now + batch.limit > reserved[0]:
                room = {node: min(free, reserved[1].get(node, free)) for node, free in room.items()}
            where = _fits(batch, room)
            if where is not None:
                self._start(batch, where, now)
                started.append(batch)
                if head is not None:
                    reserved = self._reserve(head, partition, now)
            elif head is None:
                head, reserved = batch, self._reserve(batch, partition, now)
        return started

    def _reserve(self, head: Batch, partition: Partition, now: int) -> tuple[float, dict[str, int]]:
        """When the head can start as the limits have it, and what may be taken beyond that time on each node."""
        room = {node: self.free[node] for node in partition.nodes}
        for other in sorted(self.running[partition.name], key=lambda b: ((b.start or 0) + b.limit, b.id)):
            for node in other.where:
                room[node] += other.held
            where = _fits(head, room)
            if where is not None:
                spare = {node: room[node] - (head.held if node in where else 0) for node in partition.nodes}
                return max(now, (other.start or 0) + other.limit), spare
        raise ValueError(f"job {head.id} asks for more than there is")

    def _start(self, batch: Batch, where: list[str], now: int) -> None:
        for node in where:
            self.free[node] -= batch.held
        self.waiting[batch.partition.name].remove(batch)
        self.running[batch.partition.name].append(batch)
        self.rate[batch.user] = self.rate.get(batch.user, 0) + batch.held * batch.nodes
        batch.start, batch.where = now, where
        batch.end = now + min(batch.run, batch.limit)
        batch.state = "TIMEOUT" if batch.run > batch.limit else "FAILED" if batch.id % 17 == 0 else "COMPLETED"

    def _end(self, batch: Batch, now: int) -> None:
        self._book(now)
        for node in batch.where:
            self.free[node] += batch.held
        self.running[batch.partition.name].remove(batch)
        self.rate[batch.user] -= batch.held * batch.nodes


def _fits(batch: Batch, room: dict[str, int]) -> list[str] | None:
    """The first nodes in their order with room for it."""
    found = [node for node, free in room.items() if free >= batch.held]
    return found[: batch.nodes] if len(found) >= batch.nodes else None


# --- what Slurm would write -----------------------------------------------------------------------------------------


def sacct_text(batches: list[Batch]) -> str:
    """As `sacct -aP -o JobID,User,…` prints it, in the order of job ids."""
    lines = ["JobID|User|Account|Partition|QOS|Submit|Eligible|Start|End|Elapsed|State|TimelimitRaw|NNodes|ReqTRES"
             "|AllocTRES|NodeList"]  # fmt: skip
    for batch in batches:
        assert batch.end is not None
        wanted, total = batch.nodes * batch.gpus, batch.nodes * batch.held
        asked = f"billing={wanted},cpu={wanted * 8},gres/gpu={wanted},node={batch.nodes}"
        given = f"cpu={total * 8},gres/gpu:{batch.partition.kind}={total},gres/gpu={total},node={batch.nodes}"
        began = "None" if batch.start is None else _clock(batch.start)
        ran = 0 if batch.start is None else batch.end - batch.start
        where = ",".join(batch.where) or "None assigned"
        lines.append(f"{batch.id}|{batch.user}|{batch.account}|{batch.partition.name}|normal|{_clock(batch.submit)}"
                     f"|{_clock(batch.submit)}|{began}|{_clock(batch.end)}|{_elapsed(ran)}|{batch.state}"
                     f"|{batch.limit // 60}|{batch.nodes}|{asked}|{given if batch.start is not None else ''}|{where}")  # fmt: skip
    return "\n".join(lines) + "\n"


def slurm_conf(partitions: list[Partition]) -> str:
    """The configuration of a Slurm that does much the same."""
    lines = ["ClusterName=lab", "SchedulerType=sched/backfill",
             "SchedulerParameters=bf_window=2880,bf_interval=30,bf_job_part_count_reserve=1",
             "SelectType=select/cons_tres", "PriorityType=priority/multifactor", "PriorityFlags=NO_FAIR_TREE",
             f"PriorityWeightFairshare={FAIR_WEIGHT}", f"PriorityWeightAge={AGE_WEIGHT}",
             f"PriorityMaxAge={int(MAX_AGE / 86400)}-0", f"PriorityDecayHalfLife={int(HALF_LIFE / 86400)}-0",
             "TopologyPlugin=topology/flat"]  # it does not look at switches  # fmt: skip
    for p in partitions:
        lines.append(f"NodeName={_hosts(p.nodes)} CPUs=64 Gres=gpu:{p.kind}:{p.gpus}")
    for p in partitions:
        lines.append(f"PartitionName={p.name} Nodes={_hosts(p.nodes)} MaxTime=2-00:00:00"
                     + (" Default=YES" if p is partitions[0] else ""))  # fmt: skip
    return "\n".join(lines) + "\n"


def topology_conf(partitions: list[Partition]) -> str:
    leaves = [(f"{p.name}-s{at // p.rack}", p.nodes[at : at + p.rack])
              for p in partitions for at in range(0, len(p.nodes), p.rack)]  # fmt: skip
    lines = [f"SwitchName={name} Nodes={','.join(nodes)}" for name, nodes in leaves]
    return "\n".join([*lines, f"SwitchName=core Switches={','.join(name for name, _ in leaves)}"]) + "\n"


def _hosts(nodes: list[str]) -> str:
    return f"{nodes[0][0]}[{nodes[0][1:]}-{nodes[-1][1:]}]"


def _clock(second: int) -> str:
    return (ORIGIN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def _elapsed(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def made_history(seed: int, jobs: int, load: float = 0.85) -> tuple[list[Partition], list[Batch]]:
    partitions = two_partitions()
    batches = submissions(partitions, jobs, seed, load)
    Easy(partitions).run(batches)
    return partitions, batches


def write_history(folder: Path, seed: int, jobs: int, load: float = 0.85) -> list[Batch]:
    partitions, batches = made_history(seed, jobs, load)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sacct.txt").write_text(sacct_text(batches), encoding="utf-8")
    (folder / "slurm.conf").write_text(slurm_conf(partitions), encoding="utf-8")
    (folder / "topology.conf").write_text(topology_conf(partitions), encoding="utf-8")
    return batches


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[2:4]]
    written = write_history(Path(sys.argv[1]), *(numbers + [1, 2000][len(numbers) :]))
    waits = [b.start - b.submit for b in written if b.start is not None]
    lives = [b.end - b.submit for b in written if b.start is not None and b.end is not None]
    print(f"{len(written)} jobs, average wait {sum(waits) / len(waits):.0f} s, JCT {sum(lives) / len(lives):.0f} s")
