"""From a record back to a scheduler that goes on: executed again, or trusted as it stands.

*Verify*: the events are fed to the policy anew, and its plans must be the recorded ones, to the last digit. *Trust*:
the recorded plans are taken as facts, for when the program or the policy is another one than wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from dally.core.errors import UserError
from dally.core.events import Event
from dally.core.journal import Decided, InCharge, Instant, Journal, Odd
from dally.core.policy import Policy
from dally.core.scheduler import Scheduler, World
from dally.core.snapshot import load, load_memory
from dally.store.store import Store

Mode = Literal["verify", "trust"]
MakePolicy = Callable[[str], Policy]


class Difference(Exception):  # noqa: N818 - it names what was found
    """A record that is not what the policy decides on the same events."""

    def __init__(self, number: int, recorded: Instant | None, again: Instant) -> None:
        time = again.time if recorded is None else recorded.time
        super().__init__(f"instant {number} (t = {time:g} s): what was recorded is not what comes out again")
        self.number, self.recorded, self.again = number, recorded, again


class Recovered(NamedTuple):
    """How a scheduler came back."""

    from_snapshot: int  # instants in the snapshot; 0: there was none
    followed: int  # instants after it
    remembered: bool  # whether the policy has its own memory back, not one made from what could be seen


class Recorded:
    """A world that says what a record says it said."""

    def __init__(self, instants: Iterable[Instant]) -> None:
        self._instants = iter(instants)
        self._ahead: list[Instant] = []
        self.number = 0  # instants handed out

    def _peek(self) -> Instant | None:
        if not self._ahead and (found := next(self._instants, None)) is not None:
            self._ahead.append(found)
        return self._ahead[0] if self._ahead else None

    def take(self) -> Instant | None:
        found = self._peek()
        if found is not None:
            self._ahead.pop()
            self.number += 1
        return found

    def next_events(self) -> tuple[float, Sequence[Event]] | None:
        found = self.take()
        return None if found is None else (found.time, events_of(found))

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[Event]:
        """The immediate answers are the next record, if nobody was asked for that one. One of a later time is of a
        service that had stopped asking."""
        following = self._peek()
        if following is None or following.decided is not None or following.time != now:
            return ()
        self.take()
        return events_of(following)


def events_of(instant: Instant) -> list[Event]:
    """As the world reported them: odd ones are found odd again."""
    return [entry.event if isinstance(entry, Odd) else entry for entry in instant.happened]


def execute(scheduler: Scheduler, instants: Iterable[Instant], make_policy: MakePolicy) -> int:
    """Feed the events anew; raises `Difference` at the first instant that is not as recorded. Returns how many."""
    seen: list[Instant] = []
    compared = 0

    def remember(source: Iterable[Instant]) -> Iterator[Instant]:
        for instant in source:
            seen.append(instant)
            yield instant

    def compare(again: Instant) -> None:
        nonlocal compared
        recorded = seen.pop(0) if seen else None
        if recorded != again:
            raise Difference(compared, recorded, again)
        compared += 1

    world = Recorded(remember(instants))
    before, scheduler.world = scheduler.world, world
    journal, scheduler.journal = scheduler.journal, Journal(compare)
    try:
        while (found := world.take()) is not None:
            policy = next((entry.policy for entry in found.decided or () if isinstance(entry, InCharge)), None)
            if policy is not None:
                scheduler.put_in_charge(make_policy(policy), found.time)
            elif found.decided is None:  # answers to something decided before the first instant we have
                scheduler.absorb(found.time, events_of(found))
                scheduler.write(found.time, None)
            else:
                scheduler.step(found.time, events_of(found))
    finally:
        journal.instants += compared
        scheduler.world, scheduler.journal = before, journal
    return compared


def trust(scheduler: Scheduler, instants: Iterable[Instant], make_policy: MakePolicy) -> int:
    """Take everything as recorded; the scheduler's policy hears of it. Returns how many instants."""
    count = 0
    for instant in instants:
        scheduler.follow(instant)
        count += 1
    return count


def recover(store: Store, scheduler: Scheduler, make_policy: MakePolicy, mode: Mode = "verify") -> Recovered:
    """Bring a scheduler that has seen nothing to where the store ends: newest snapshot, then the instants after it.

    To verify, the policy that was in charge then is in charge again; to trust, the scheduler's own is from the start.
    """
    found = store.newest_snapshot()
    number, remembered = 0, True
    if found is not None:
        number, state = found
        load(scheduler, state)
        if mode == "verify" and state["policy"] != scheduler.policy.name:
            scheduler.policy = make_policy(state["policy"])
        memory = load_memory(scheduler.policy, state, scheduler)
        if memory is not None:
            scheduler.resume_with(memory)
        elif mode == "verify":
            raise UserError(f"{store.folder}: the memory of {state['policy']!r} in its snapshot is of another version; "
                            "what was recorded can be trusted, not executed again")  # fmt: skip
        else:
            remembered = False
            scheduler.put_in_charge(scheduler.policy, scheduler.time, written=False)
    elif mode == "verify" and store.about.get("policy", scheduler.policy.name) != scheduler.policy.name:
        scheduler.put_in_charge(make_policy(store.about["policy"]), 0.0, written=False)
    scheduler.journal.instants = number
    followed = (execute if mode == "verify" else trust)(scheduler, store.since(number), make_policy)
    return Recovered(number, followed, remembered)


def replay_world(world: World, instants: Iterable[Instant]) -> None:
    """Bring a world that decides nothing by itself (a simulated one) to where a record ends."""
    for instant in instants:
        if instant.decided is not None:
            world.next_events()
            world.carry_out(instant.time, instant.decided)
