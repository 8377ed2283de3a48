"""Gangs on the same GPUs take turns: one runs, the others are suspended, by weight."""

from __future__ import annotations

from dally.core.placement import Placement
from dally.core.sharing import Groups, Share
from dally.live.attempts import Key
from dally.live.turns import Turns

HERE = Placement.of([(0, 3)])


class Told:
    """An engine of which only suspending and resuming is asked."""

    def __init__(self) -> None:
        self.running: dict[str, bool] = {}
        self.said = 0

    def suspend(self, job: str, attempt: int) -> None:
        self.running[job] = False
        self.said += 1

    def resume(self, job: str, attempt: int) -> None:
        self.running[job] = True
        self.said += 1

    @property
    def who(self) -> str:
        return "".join(job for job, runs in sorted(self.running.items()) if runs)


def group(*shares: tuple[str, float, str | None]) -> Groups:
    groups = Groups()
    for job, weight, beside in shares:
        groups.enter(job, HERE, Share(weight, beside, quantum=10.0))
    return groups


def served(groups: Groups, seconds: float, begun: str) -> tuple[dict[str, float], Told]:
    """How long each ran, looking whenever the turns want to be looked at."""
    engine = Told()
    turns = Turns(engine, lambda: groups)  # type: ignore[arg-type]
    keys = {job: Key(job, 1) for job in begun}
    ran: dict[str, float] = {}
    now = 0.0
    while now < seconds:
        again = turns.look(now, keys) or seconds
        for job in engine.who:
            ran[job] = ran.get(job, 0.0) + min(again, seconds) - now
        now = again
    return ran, engine


def test_a_turn_lasts_as_many_quanta_as_its_weight() -> None:
    ran, _ = served(group(("a", 1.0, None), ("b", 3.0, None)), 400.0, "ab")
    assert ran == {"a": 100.0, "b": 300.0}


def test_those_who_are_packed_run_together() -> None:
    ran, _ = served(group(("a", 1.0, None), ("b", 1.0, None), ("c", 1.0, "a")), 200.0, "abc")
    assert ran == {"a": 100.0, "b": 100.0, "c": 100.0}


def test_who_is_alone_is_never_suspended() -> None:
    ran, engine = served(group(("a", 1.0, None)), 100.0, "a")
    assert ran == {"a": 100.0} and engine.said == 1


def test_nobody_waits_for_the_turn_of_one_that_has_not_begun() -> None:
    ran, _ = served(group(("a", 1.0, None), ("b", 1.0, None)), 100.0, "b")
    assert ran == {"b": 100.0}


def test_when_a_neighbour_leaves_the_other_goes_on_at_once() -> None:
    groups = group(("a", 1.0, None), ("b", 1.0, None))
    engine = Told()
    turns = Turns(engine, lambda: groups)  # type: ignore[arg-type]
    keys = {job: Key(job, 1) for job in "ab"}
    turns.look(0.0, keys)
    assert engine.who == "a"
    groups.leave("a")
    del keys["a"]
    assert turns.look(3.0, keys) is None
    assert engine.running["b"]
