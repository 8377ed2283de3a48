"""A journal executed again: from the file alone, a scheduler that knows what the one that wrote it knew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dally.core.errors import UserError
from dally.core.events import Event
from dally.core.journal import Decided, Instant, Journal
from dally.core.scheduler import Scheduler
from dally.core.snapshot import load, load_memory
from dally.core.states import State
from dally.network.model import NetworkModel
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.interference import DEFAULT, make_interference
from dally.simulator.meter import NoisyMeter
from dally.simulator.profiles import Profiles
from dally.simulator.tabled import Tabled
from dally.store.journal_file import JournalReader
from dally.store.recovery import Difference, execute
from dally.store.store import open_journal


class Nowhere:
    """A world in which nothing happens: the record says what did."""

    def next_events(self) -> None:
        return None

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[Event]:
        return ()


class Verdict(NamedTuple):
    """What came of executing a journal again."""

    instants: int
    difference: Difference | None
    torn: bool  # whether the journal ends in the middle of an instant


def rebuilt(journal: JournalReader, policy: str | None = None, throughputs: Path | None = None) -> Scheduler:
    """A scheduler that has seen nothing yet, for the cluster, network and policy that the journal's header names."""
    about = journal.about
    missing = [name for name in ("policy", "network") if name not in about]
    if missing:
        raise UserError(f"{journal.path}: its header does not say the {missing[0]}, so it cannot be executed again")
    network: NetworkModel = make_network(about["network"], journal.topology)
    table = None
    if about.get("throughputs") is not None:
        if throughputs is None:
            raise UserError(f"{journal.path}: it was run on measured throughputs; name the file with --throughputs")
        from dally.catalog.throughputs import read_throughputs

        table = read_throughputs(throughputs)
        network = Tabled(network, table, journal.topology)
    interference = make_interference(about.get("interference", DEFAULT), table)
    meter = NoisyMeter(about.get("measurement_noise", 0.0), about.get("seed", 0))
    return Scheduler(journal.topology, make_policy(policy or about["policy"]), Nowhere(), Journal(),
                     Profiles(network, journal.topology, interference), interference, meter)  # fmt: skip


def verify(path: Path, throughputs: Path | None = None, progress: Callable[[int], None] | None = None,
           policy: str | None = None) -> Verdict:  # fmt: skip
    """Feed the recorded events to the policy anew: every plan must be the recorded one. `policy`: where the one in the
    header comes from, if it is not registered."""
    journal = open_journal(path)
    scheduler = rebuilt(journal, policy, throughputs)
    begin_with(scheduler, journal)
    count = 0

    def counted() -> Iterator[Instant]:
        nonlocal count
        for instant in journal:
            yield instant
            count += 1
            if progress is not None and count % 1000 == 0:
                progress(count)

    try:
        done = execute(scheduler, counted(), make_policy)
    except Difference as difference:
        return Verdict(difference.number, difference, journal.torn)
    return Verdict(done, None, journal.torn)


def begin_with(scheduler: Scheduler, journal: JournalReader) -> None:
    """A store whose beginning was compacted away begins with a snapshot."""
    if journal.begins_with is None:
        return
    load(scheduler, journal.begins_with)
    memory = load_memory(scheduler.policy, journal.begins_with, scheduler)
    if memory is None:
        raise UserError(f"{journal.path}: it begins with a snapshot whose memory is of another version or policy")
    scheduler.resume_with(memory)


class Standing(NamedTuple):
    """One job at a moment of a replayed run."""

    job: str
    state: State
    gpus: int
    since: float
    why: str


def at_time(path: Path, until: float | None, policy: str | None = None,
            throughputs: Path | None = None) -> tuple[Scheduler, float]:  # fmt: skip
    """The scheduler as it was at a time of the record (the end: None). With another `policy`, that one is in charge
    from then on: ask it what it would do."""
    journal = open_journal(path)
    scheduler = rebuilt(journal, throughputs=throughputs)
    begin_with(scheduler, journal)
    last = scheduler.time
    for instant in journal:
        if until is not None and instant.time > until:
            break
        scheduler.follow(instant)
        last = instant.time
    if policy is not None:
        scheduler.put_in_charge(make_policy(policy), last, written=False)
    return scheduler, last


def standings(scheduler: Scheduler) -> list[Standing]:
    """Everybody who has not ended, those with GPUs first."""
    found = []
    names = scheduler.view.topology.machine_names
    for job in scheduler.jobs.values():
        reason = scheduler.reason(job.id)
        if job.placement is not None:
            why = ", ".join(f"{mask.bit_count()} of {names[m]}" for m, mask in job.placement.slices)
        else:
            why = "" if reason is None else f"{reason.token.label}: {reason.sentence}"
        if job.state in (State.WAITING, State.STARTING, State.RUNNING, State.YIELDING, State.LOST):
            found.append(Standing(job.id, job.state, job.gpus, job.last_change, why))
    return sorted(found, key=lambda standing: (standing.state is State.WAITING, standing.since))
