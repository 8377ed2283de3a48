"""Runs disturbed in ways that must leave no trace: asked in vain, saved and loaded, killed at any byte and resumed."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dally.core.journal import Instant
from dally.core.policy import Policy
from dally.core.scheduler import Scheduler
from dally.core.snapshot import save
from dally.core.topology import Topology
from dally.experiments.checks.replay import must
from dally.policies.options import make_policy
from dally.simulator.world import SimulatedWorld
from dally.store.recovery import recover, replay_world
from dally.store.store import Store, segments

MakePolicy = Callable[[str], Policy]
Begin = Callable[[Store, list[Instant]], tuple[SimulatedWorld, Scheduler]]
MOST_INSTANTS = 20_000


def reborn(scheduler: Scheduler, make: MakePolicy = make_policy) -> None:
    """Another policy object with the same memory, from text, in the place of the one that is there."""
    view = scheduler.books.view
    saved = json.loads(json.dumps(scheduler.memory.save(view.topology), allow_nan=False))
    scheduler.policy = make(scheduler.policy.name)
    scheduler.resume_with(type(scheduler.memory).load(saved, view.topology))


@contextmanager
def disturbed(seed: int, *, asks: int = 2, rebirths: float = 0.0, make: MakePolicy = make_policy) -> Iterator[None]:
    """Inside the block every scheduler is asked in vain before each decision, and the policy is reborn now and then."""
    chance = random.Random(seed)
    original = Scheduler.decide

    def decide(self: Scheduler, now: float) -> None:
        if chance.random() < rebirths:
            reborn(self, make)
        for _ in range(asks):
            self.ask(now)
        original(self, now)

    Scheduler.decide = decide  # type: ignore[method-assign]
    try:
        yield
    finally:
        Scheduler.decide = original  # type: ignore[method-assign]


def kill(begin: Begin, policy: str, topology: Topology, chance: random.Random, kills: int, folder: Path,
         make: MakePolicy = make_policy) -> int:  # fmt: skip
    """One run, killed at random bytes of its journal, brought back from snapshot and tail, and run to its end, which
    must be the same; returns how often it was killed."""
    whole: list[Instant] = []
    copies: list[Path] = []
    with Store.create(folder / "whole", topology, policy=policy) as store:
        store.synced = False
        _, scheduler = begin(store, whole)

        def between(now: float) -> bool:
            if chance.random() < 0.05:
                store.snapshot(save(scheduler), keep=chance.random() < 0.5)
            if chance.random() < 0.1 and len(copies) < kills:
                copies.append(Path(shutil.copytree(store.folder, folder / f"copy{len(copies)}")))
            return len(whole) < MOST_INSTANTS

        scheduler.run(between)
        must(len(whole) < MOST_INSTANTS, "it goes on for ever")
        while len(copies) < kills:
            copies.append(Path(shutil.copytree(store.folder, folder / f"copy{len(copies)}")))
    for copy in copies:
        path = segments(copy)[-1][1]
        header = len(path.read_bytes().split(b"\n", 1)[0]) + 1
        os.truncate(path, chance.randint(header, path.stat().st_size))
        seen: list[Instant] = []
        with Store.open(copy) as store:
            store.synced = False
            world, scheduler = begin(store, seen)
            must(recover(store, scheduler, make).remembered, "its memory is not found again")
            done = store.instants
            if done and whole[done - 1].decided is not None:  # decided, written, and perhaps not handed over
                replay_world(world, whole[: done - 1])
                world.next_events()
                scheduler.carry_out(whole[done - 1].time, whole[done - 1].decided or ())
            else:
                replay_world(world, whole[:done])
            scheduler.run()
        must(seen == whole[done:], f"killed after decision {done:,} and resumed, it goes on in another way")
        shutil.rmtree(copy)
    return len(copies)
