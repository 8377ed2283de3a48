"""Runs that are disturbed in ways that must leave no trace: asked in between, saved and loaded, tried and thrown away."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager

from dally.core.scheduler import Scheduler
from dally.policies.options import make_policy


def reborn(scheduler: Scheduler) -> None:
    """Another policy object with the same memory, from text, in the place of the one that is there."""
    view = scheduler.books.view
    saved = json.loads(json.dumps(scheduler.memory.save(view.topology), allow_nan=False))
    scheduler.policy = make_policy(scheduler.policy.name)
    scheduler.memory = type(scheduler.memory).load(saved, view.topology)
    for ranking in (view.waiting, view.preemptible):
        ranking.unwatch()
    scheduler.policy.attach(view, scheduler.memory)


@contextmanager
def disturbed(seed: int, *, asks: int = 2, rebirths: float = 0.0) -> Iterator[None]:
    """Inside the block every scheduler is asked in vain before each decision, and the policy is reborn now and then."""
    chance = random.Random(seed)
    original = Scheduler.decide

    def decide(self: Scheduler, now: float) -> None:
        if chance.random() < rebirths:
            reborn(self)
        for _ in range(asks):
            self.ask(now)
        original(self, now)

    Scheduler.decide = decide  # type: ignore[method-assign]
    try:
        yield
    finally:
        Scheduler.decide = original  # type: ignore[method-assign]
