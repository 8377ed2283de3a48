"""The journal of a service that was killed, stopped with checkpoints, drained and meddled with: done again, every difference
has a name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from engines import ManualClock, PretendEngine

from builders import cluster
from dally.live import driver as driving
from dally.live.attending import LiveRules
from dally.live.driver import Driver, Hooks, Wanted
from dally.live.engine import Report
from dally.live.replayed import live_record, replay
from dally.live.spec import read_spec
from dally.live.verified import verify
from dally.policies.options import make_policy
from dally.store.database import Database
from dally.store.taking import Handed, Taken

TREE = cluster(2, 2, 4)
JOBS = 16


class Clock(ManualClock):
    def unix(self, time: float) -> float:
        return time + 1.7e9


class Quiet(PretendEngine):
    """Tells the world to quit where nothing happens any more."""

    even = False
    driver: Driver | None = None
    _idle = 0

    def observe(self, patience: float) -> Sequence[Report]:
        found = super().observe(patience)
        self._idle = 0 if found else self._idle + 1
        if self._idle > 40 and self.driver is not None:
            self._idle = 0
            self.driver.world.quit()
        return found


class Life:
    """A service with people around it, and what befalls it."""

    def __init__(self, folder: Path, policy: str, seed: int, **engine: float) -> None:
        self.chance, self.clock, self.policy = random.Random(seed), Clock(), make_policy(policy).name
        self.engine = Quiet(self.clock, seed=seed, **engine)  # type: ignore[arg-type]
        self.database = Database(f"sqlite:///{folder}/dally.db")
        self.database.prepare(TREE, policy=self.policy)
        self.jobs: list[str] = []

    def lead(self) -> None:
        assert self.database.take_the_lead(self.database.lead(), {"pid": 1})
        self.driver = self.engine.driver = Driver(self.database, self.engine, Wanted(self.policy, TREE),
                                                  LiveRules(retries=50, longest_wait=30.0), Hooks())  # fmt: skip

    def submit(self) -> None:
        seconds = self.chance.uniform(1, 100)
        spec = {"command": ["run", str(seconds)], "gpus": self.chance.choice((1, 1, 2, 4, 8)), "duration": seconds}
        if self.chance.random() < 0.6:
            spec["checkpoint"] = {"grace": "20s"}
        handed = Handed("ada", self.clock.unix(self.clock.time), [[(None, read_spec(spec).plain())]], None, "")
        (taken,) = self.database.submit([handed])
        assert isinstance(taken, Taken)
        self.jobs += taken.ids

    def ask(self, what: str, **about: str) -> None:
        self.driver.feed(self.database.ask({"what": what, "user": "ada", **about}))

    def step(self) -> bool:
        self.driver.world.go_on()
        found = self.driver.world.next_events()
        if found is not None:
            self.driver._step(*found)
            self.clock.time += self.chance.uniform(1e-4, 0.05)  # no two instants of a real service are one
        return found is not None

    def befalls(self) -> None:
        what = self.chance.choices(("job", "drain", "requeue", "hold", "kill", "stop", "nothing"), (4, 2, 2, 1, 1, 1, 9))[0]
        there = [job.id for job in self.driver.scheduler.jobs.values() if job.state.value in ("running", "starting")]
        if what == "job" and len(self.jobs) < JOBS:
            self.submit()
            self.lead()
        elif what == "drain":
            self.ask(self.chance.choice(("drain", "resume", "resume")), machine=self.chance.choice(TREE.machine_names))
        elif what == "requeue" and there:
            self.ask("requeue", job=self.chance.choice(there))
        elif what == "hold" and self.jobs:
            self.ask(self.chance.choice(("hold", "release", "release")), job=self.chance.choice(self.jobs))
        elif what in ("kill", "stop"):
            if what == "stop":
                self.driver.stopped_asking = True
                self.driver.world.leave_all()
                while self.driver.world.busy() and self.step():
                    pass
                self.driver.snapshot()
            self.clock.time += self.chance.uniform(0, 5)
            self.lead()

    def run(self) -> None:
        for _ in range(6):
            self.submit()
        self.lead()
        for _ in range(150):
            self.step()
            self.befalls()


@pytest.mark.parametrize("engine", [{}, {"latency": 3.0, "leaving": 2.0},
                                    {"latency": 1.0, "vanishes": 0.2, "leaving": 1.0, "refusals": 0.1}])  # fmt: skip
@pytest.mark.parametrize("policy", ["fifo", "las[quantum=10s]", "dally"])
def test_a_service_that_was_killed_stopped_and_drained_is_done_again(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, engine: dict[str, float]) -> None:  # fmt: skip
    life = Life(tmp_path, policy, 7, **engine)
    monkeypatch.setattr(driving, "ServiceClock", lambda made, time: life.clock)
    life.run()
    url = f"sqlite:///{tmp_path}/dally.db"
    checked = verify(url)
    assert checked.difference is None and checked.rows == [] and checked.instants > 40
    found = replay(live_record(f"{tmp_path}/dally.db"))
    assert found.verified is None and found.decisions > 20
    assert found.unexplained == []
    assert found.steps[-1].other == 0
