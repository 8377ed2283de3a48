"""A second history made without Dally, of another scheduler than `history`: a tick instead of events, arrays of GPUs by
time instead of a list of ends, and rules that are drawn by the seed.

Three partitions, one of them with nodes of four GPUs; arrays of equal jobs that come at once; users' limits too long by
any factor. The seed draws the order of the queue (first come, age and size, least used first, accounts' least used
first), who may pass (conservative or EASY), which nodes are taken (fullest, emptiest, last first) and the load, light
or heavy. The scheduler looks every ten seconds. What it planned before is thrown away at every look.

    python -m tests.twin.other_history FOLDER [SEED] [JOBS]     writes sacct.txt and nodes.txt, and no slurm.conf
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

TICK = 10  # seconds between two looks of the scheduler
SLOT = 600  # seconds: plans are on this grid
HORIZON = 900  # slots, a bit more than six days
PARTITIONS = (("big", "h100", 10, 8), ("old", "v100", 8, 4), ("mid", "a100", 6, 8))


@dataclass
class Rules:
    order: str
    passing: str
    nodes: str
    load: float


@dataclass
class Piece:
    """One job; tasks of an array are jobs of one id."""

    id: str
    user: str
    account: str
    partition: str
    nodes: int
    gpus: int  # on each
    submit: int
    run: int
    limit: int
    start: int = -1
    where: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + min(self.run, self.limit)

    @property
    def work(self) -> float:
        return float(self.nodes * self.gpus * min(self.run, self.limit))


def drawn(seed: int) -> Rules:
    chance = random.Random(f"rules {seed}")
    return Rules(chance.choice(["first come", "age and size", "least used", "least used account"]),
                 chance.choice(["conservative", "easy"]), chance.choice(["fullest", "emptiest", "last"]),
                 chance.choice([0.7, 0.85, 0.95]))  # fmt: skip


def pieces(seed: int, count: int, load: float) -> dict[str, list[Piece]]:
    """By partition, in order of submission."""
    chance = np.random.default_rng(seed)
    found: dict[str, list[Piece]] = {}
    number = 0
    for name, _, nodes, gpus in PARTITIONS:
        mine: list[Piece] = []
        while len(mine) < count * nodes * gpus // sum(n * g for _, _, n, g in PARTITIONS):
            number += 1
            who = int(min(24, chance.geometric(0.12)))
            one = int(chance.choice([1, 2, gpus // 2, gpus], p=[0.5, 0.2, 0.15, 0.15]))
            on = int(chance.choice([1, 2, 4], p=[0.86, 0.1, 0.04])) if one >= gpus // 2 else 1
            tasks = int(chance.integers(3, 15)) if chance.random() < 0.04 else 1
            run = int(np.clip(chance.gamma(0.6, 9000.0), 30, 2 * 86400))
            limit = max(1800, min(3 * 86400, int(run * chance.choice([1.1, 1.5, 3.0, 6.0])) // 1800 * 1800))
            for task in range(tasks):
                length = run if tasks == 1 else max(30, int(run * chance.uniform(0.7, 1.3)))
                mine.append(Piece(f"{number}_{task}" if tasks > 1 else str(number), f"u{who}", f"acc{who % 5}", name, on,
                                  one, 0, length, limit))  # fmt: skip
        span = sum(piece.work for piece in mine) / (nodes * gpus * load)
        arrays = {piece.id.partition("_")[0]: 0 for piece in mine}
        for array, moment in zip(arrays, np.sort(chance.uniform(0.0, span, len(arrays))), strict=True):
            arrays[array] = int(moment)
        for piece in mine:
            piece.submit = arrays[piece.id.partition("_")[0]]
        found[name] = mine
    return found


class Ticking:
    """One partition; usage is that of the partition alone, and never decays."""

    def __init__(self, nodes: int, gpus: int, rules: Rules) -> None:
        self.gpus, self.rules = gpus, rules
        self.free = np.full(nodes, gpus)
        self.used: dict[str, float] = {}

    def run(self, mine: list[Piece]) -> None:
        queue: list[Piece] = []
        running: list[Piece] = []
        at, now = 0, 0
        while at < len(mine) or queue or running:
            now += TICK
            if not queue and at < len(mine) and not running:
                now = max(now, -(-mine[at].submit // TICK) * TICK)
            ended = [piece for piece in running if piece.end <= now]
            for piece in ended:
                self.free[piece.where] += piece.gpus
            running = [piece for piece in running if piece.end > now]
            came = at
            while at < len(mine) and mine[at].submit <= now:
                queue.append(mine[at])
                at += 1
            for piece in running + ended:
                spent = piece.nodes * piece.gpus * (min(now, piece.end) - max(now - TICK, piece.start))
                for who in (piece.user, piece.account):
                    self.used[who] = self.used.get(who, 0.0) + spent
            if queue and (ended or at > came):
                for piece in self._started(sorted(queue, key=lambda p: self._key(p, now)), running, now):
                    queue.remove(piece)
                    running.append(piece)

    def _key(self, piece: Piece, now: int) -> tuple[float, int, str]:
        key = 0.0
        if self.rules.order == "age and size":
            key = -(now - piece.submit) / 86400 - 2.0 * piece.nodes * piece.gpus / (len(self.free) * self.gpus)
        elif self.rules.order == "least used":
            key = self.used.get(piece.user, 0.0)
        elif self.rules.order == "least used account":
            key = self.used.get(piece.account, 0.0)
        return key, piece.submit, piece.id.zfill(12)

    def _started(self, queue: list[Piece], running: list[Piece], now: int) -> list[Piece]:
        """A table of free GPUs by slot of time and node; who is planned takes his out of it."""
        table = np.repeat(self.free[None, :], HORIZON, axis=0)
        for piece in running:
            slots = max(1, -(-(piece.start + piece.limit - now) // SLOT))
            table[slots:, piece.where] += piece.gpus
        started: list[Piece] = []
        planned = 0
        for piece in queue:
            if planned and self.rules.passing == "easy" and not self._where(table, piece, 0):
                continue
            if not (table.max(axis=0) >= piece.gpus).any():
                continue
            for slot in range(HORIZON - 1):
                where = self._where(table, piece, slot)
                if where:
                    length = -(-piece.limit // SLOT)
                    table[slot : slot + length, where] -= piece.gpus
                    if slot == 0:
                        piece.start, piece.where = now, where
                        self.free[where] -= piece.gpus
                        started.append(piece)
                    else:
                        planned += 1
                    break
                if planned and self.rules.passing == "easy":
                    break
            if planned > 40:  # deep enough
                break
        return started

    def _where(self, table: np.ndarray, piece: Piece, slot: int) -> list[int]:
        room = table[slot : slot + -(-piece.limit // SLOT)].min(axis=0)
        fits = [node for node in range(len(room)) if room[node] >= piece.gpus]
        if len(fits) < piece.nodes:
            return []
        now = table[slot]
        if self.rules.nodes == "last":
            return fits[-piece.nodes :]
        sign = 1 if self.rules.nodes == "fullest" else -1
        return sorted(fits, key=lambda node: (sign * now[node], node))[: piece.nodes]


def write_other(folder: Path, seed: int, count: int) -> tuple[Rules, list[Piece]]:
    rules = drawn(seed)
    found = pieces(seed, count, rules.load)
    nodes, rows = [], []
    for name, kind, number, gpus in PARTITIONS:
        Ticking(number, gpus, rules).run(found[name])
        nodes += [f"NodeName={name}{node} Gres=gpu:{kind}:{gpus} Partitions={name} State=IDLE" for node in range(number)]
        for piece in found[name]:
            total = piece.nodes * piece.gpus
            hosts = ",".join(f"{name}{node}" for node in sorted(piece.where))
            state = "TIMEOUT" if piece.run > piece.limit else "COMPLETED"
            rows.append((piece.submit, f"{piece.id}|{piece.user}|{piece.account}|{name}|{_at(piece.submit)}|"
                         f"{_at(piece.start)}|{_at(piece.end)}|{state}|{piece.limit // 60}|{piece.nodes}|"
                         f"gres/gpu:{kind}={total},node={piece.nodes}|{hosts}"))  # fmt: skip
    head = "JobID|User|Account|Partition|Submit|Start|End|State|TimelimitRaw|NNodes|AllocTRES|NodeList"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sacct.txt").write_text("\n".join([head, *(row for _, row in sorted(rows))]) + "\n", encoding="utf-8")
    (folder / "nodes.txt").write_text("\n".join(nodes) + "\n", encoding="utf-8")
    return rules, [piece for mine in found.values() for piece in mine]


def _at(second: int) -> str:
    return str(np.datetime64("2026-01-05T00:00:00") + np.timedelta64(second, "s"))


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[2:4]]
    made, jobs = write_other(Path(sys.argv[1]), *(numbers + [1, 1500][len(numbers) :]))
    print(made, f"{len(jobs)} jobs, average wait {sum(job.start - job.submit for job in jobs) / len(jobs):.0f} s, JCT "
          f"{sum(job.end - job.submit for job in jobs) / len(jobs):.0f} s")  # fmt: skip
