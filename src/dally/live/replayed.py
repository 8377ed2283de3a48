"""A live run done again in a simulated world with what was measured: the same decisions, or each difference explained.

First the policy is fed the recorded events: it must decide what was recorded. Then it decides in a world of its own, in
which jobs run as fast and as long as they did, and everything else takes no time, as simulators have it. Where it
decides otherwise there, the world is made more like the live one step by step; the step at which the difference goes
away is its explanation. What is left after the last step is not explained, and is said to be so.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.estimates import Declared
from dally.core.journal import Instant, Journal
from dally.core.topology import Topology, changed
from dally.live.lived import Lived, Record, read
from dally.live.lived_world import Fidelity, LivedWorld
from dally.policies.options import make_policy
from dally.store.recovery import Difference, execute

UNEXPLAINED = "not explained"

# From a world in which nothing takes time to one that does all as the live one did.
STEPS: tuple[tuple[str, Fidelity], ...] = (
    ("jobs run as fast and as long as they did; nothing else takes time", Fidelity()),
    ("starts take as long as they did", Fidelity(starts=True)),
    ("leaving takes as long as it did", Fidelity(starts=True, leaving=True)),
    ("timers and leases ring as late as they did", Fidelity(starts=True, leaving=True, rings=True)),
    ("nobody is asked while the service stops", Fidelity(starts=True, leaving=True, rings=True, stops=True)),
    ("times are the same to the last digit, reports of one instant in the same order, and odd ones are heard",
     Fidelity(starts=True, leaving=True, rings=True, stops=True, digits=True)),
)


class Made(NamedTuple):
    """A decision about a job: the n-th one."""

    time: float
    kind: str
    job: str
    number: int
    where: tuple[tuple[str, int], ...]  # machine, mask of its GPUs

    def same(self, other: Made | None) -> bool:
        return other is not None and (self.kind, self.where) == (other.kind, other.where)


class Parted(NamedTuple):
    """A decision that is another one, or is made in one of both runs only."""

    live: Made | None
    simulated: Made | None
    why: str


class Step(NamedTuple):
    """A simulated run, as far as it is like the live one."""

    text: str
    same: int
    other: int
    latest: float  # seconds between the two times of a decision that is the same, at most


class Replayed(NamedTuple):
    instants: int
    verified: Difference | None  # where the policy, fed the recorded events, does not decide what was recorded
    decisions: int  # of the live run
    steps: list[Step]
    differences: list[Parted]  # of the first step

    @property
    def unexplained(self) -> list[Parted]:
        return [each for each in self.differences if each.why == UNEXPLAINED]


def replay(record: Record) -> Replayed:
    """Do a live run again, and say where it differs and why."""
    lived = read(record)
    fed = record.scheduler()
    try:
        execute(fed, record.instants, make_policy)
        verified = None
    except Difference as difference:
        verified = difference
    live = _decisions(record.instants, record.topology)
    runs = [_decisions(_simulated(record, lived, fidelity), record.topology) for _, fidelity in STEPS]
    steps = [_step(text, live, run) for (text, _), run in zip(STEPS, runs, strict=True)]
    differences = [Parted(live.get(key), runs[0].get(key), _why(key, live, runs)) for key in _parted(live, runs[0])]
    return Replayed(len(record.instants), verified, len(live), steps, differences)


Decisions = dict[tuple[str, int], Made]


def _simulated(record: Record, lived: Lived, fidelity: Fidelity) -> list[Instant]:
    seen: list[Instant] = []
    scheduler = record.scheduler()
    world = LivedWorld(lived, fidelity, lambda time, name: scheduler.put_in_charge(make_policy(name), time))
    scheduler.world, scheduler.journal = world, Journal(seen.append)
    while (reported := world.next_events()) is not None:
        now, events = reported
        scheduler.absorb(now, events)
        if world.asks(now):
            scheduler.decide(now)
        else:
            scheduler.write(now, None)
    return seen


def _decisions(instants: Iterable[Instant], topology: Topology) -> Decisions:
    """Who starts, moves or is preempted, each by the job and which of its decisions it is."""
    names, found, numbers = topology.machine_names, Decisions(), dict[str, int]()
    for instant in instants:
        for event in instant.happened:
            if isinstance(event, ev.MachinesChanged):
                topology = changed(topology, event.added, event.removed)
                names = topology.machine_names
        for action in instant.decided or ():
            if isinstance(action, (pl.Start, pl.Migrate, pl.Resize, pl.Preempt)):
                number = numbers[action.job] = numbers.get(action.job, 0) + 1
                slices = () if isinstance(action, pl.Preempt) else action.placement.slices
                where = tuple((names[machine], mask) for machine, mask in slices)
                found[action.job, number] = Made(instant.time, type(action).__name__.lower(), action.job, number, where)
    return found


def _parted(live: Decisions, run: Decisions) -> list[tuple[str, int]]:
    """In order of time."""
    keys = [key for key in live.keys() | run.keys() if not _same(live.get(key), run.get(key))]
    return sorted(keys, key=lambda key: ((live.get(key) or run[key]).time, key))


def _same(one: Made | None, other: Made | None) -> bool:
    return one is not None and one.same(other)


def _why(key: tuple[str, int], live: Decisions, runs: list[Decisions]) -> str:
    """The step after which it is decided as it was, and stays so."""
    for number in range(1, len(runs)):
        if all(_agrees(key, live, run) for run in runs[number:]):
            return STEPS[number][0]
    return UNEXPLAINED


def _agrees(key: tuple[str, int], live: Decisions, run: Decisions) -> bool:
    return (key not in live and key not in run) or _same(live.get(key), run.get(key))


def _step(text: str, live: Decisions, run: Decisions) -> Step:
    other = len(_parted(live, run))
    shifts = [abs(made.time - run[key].time) for key, made in live.items() if made.same(run.get(key))]
    return Step(text, len(shifts), other, max(shifts, default=0.0))


# --- where a record comes from --------------------------------------------------------------------------------------


def live_record(source: str) -> Record:
    """The journal of a service: its state directory, its SQLite file, a postgresql:// URL; or a journal file."""
    path = Path(source)
    if path.is_dir() and (path / "dally.db").exists():
        return _from_database(f"sqlite:///{path / 'dally.db'}")
    if path.is_file() and path.suffix == ".db":
        return _from_database(f"sqlite:///{path}")
    if source.startswith(("postgresql://", "postgres://")):
        return _from_database(source)
    return _from_file(path)


def _from_database(url: str) -> Record:
    from dally.live.learned import Learned
    from dally.store.database import Database, stored

    database = Database(url)
    try:
        stored(database)
        instants = tuple(database.since(0, database.first_topology))
        return Record(database.first_topology, str(database.about["policy"]), instants, Learned)
    finally:
        database.close()


def _from_file(path: Path) -> Record:
    from dally.store.store import open_journal

    journal = open_journal(path)
    if "network" in journal.about:
        raise UserError(f"{path} is the journal of a simulation; `dally journal verify` executes it again")
    if "policy" not in journal.about:
        raise UserError(f"{path}: its header does not say the policy, so it cannot be done again")
    topology = journal.topology
    return Record(topology, journal.about["policy"], tuple(journal), lambda _: Declared())


def plain(found: Replayed) -> dict[str, Any]:
    """For JSON."""
    return {
        "instants": found.instants, "decides_the_same_on_the_recorded_events": found.verified is None,
        "decisions": found.decisions, "steps": [each._asdict() for each in found.steps],
        "differences": [{"job": (each.live or each.simulated).job,  # type: ignore[union-attr]
                         "live": None if each.live is None else text(each.live),
                         "simulated": None if each.simulated is None else text(each.simulated), "why": each.why}
                        for each in found.differences],
        "unexplained": len(found.unexplained),
    }  # fmt: skip


def text(made: Made) -> str:
    where = ", ".join(f"{mask.bit_count()} of {machine}" for machine, mask in made.where)
    return f"{made.kind} at {made.time:.3f} s" + (f" on {where}" if where else "")
