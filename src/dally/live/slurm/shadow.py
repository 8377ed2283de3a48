"""The dry run: watches a Slurm with everybody's jobs, touches nothing, and says what a policy would do with them.

The policy decides for real, in a shadow: jobs that wait in Slurm wait there, GPUs that jobs have are withheld from it,
nodes stand as they stand. What it would start it says at once, and again when Slurm has done so, with how much later
that was. What all of it would have gained is a simulation of what was seen (gain.py), and is called that.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.journal import Decided, Journal, Rejected
from dally.core.scheduler import Scheduler
from dally.core.topology import Topology
from dally.live.even import made_even
from dally.live.slurm.client import Slurm, SlurmError
from dally.live.slurm.gain import Gain, SeenJob, gain
from dally.live.slurm.ordering import node_of
from dally.live.slurm.reading import Reservation, SlurmJob, SlurmNode
from dally.live.slurm.standing import reserved, standings
from dally.policies.options import make_policy

log = logging.getLogger("dally.slurm")


class Would(NamedTuple):
    """A start that the policy would have made."""

    at: float
    where: tuple[str, ...]


class Shadow:
    """A policy beside a Slurm. `see` takes a look that was taken at some time; `tell` is who hears about it."""

    def __init__(self, topology: Topology, policy: str, since: float, tell: Callable[[str], None],
                 before_reservations: float = 3600.0) -> None:  # fmt: skip
        self.topology, self.policy, self.since, self._tell = topology, policy, since, tell
        self._ahead = before_reservations
        self.seen: dict[str, SeenJob] = {}
        self._would: dict[str, Would] = {}
        self._waiting: dict[str, SlurmJob] = {}
        self._timer: float | None = None
        self._scheduler = Scheduler(topology, make_policy(policy), self, Journal(), strict=False)

    # --- the world of the shadow: nothing happens in it by itself, and nothing is done -----------------------------

    def next_events(self) -> None:
        return None

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[ev.Event]:
        for action in decided:
            if isinstance(action, pl.Start):
                names = [self.topology.machine_names[machine] for machine, _ in action.placement.slices]
                where = tuple(node_of(name)[0] for name in names)
                self._would[action.job] = Would(now, where)
                waits = self._waiting[action.job]
                self._tell(f"job {action.job} ({waits.wanted} GPUs, {waits.user}): {self._scheduler.policy.name} would "
                           f"start it now on {', '.join(where)}; in Slurm it waits "
                           f"({waits.reason or 'no reason given'})")  # fmt: skip
            elif isinstance(action, pl.WakeAt):
                self._timer = action.time
            elif isinstance(action, Rejected):
                self._tell(f"job {action.job}: would be turned away: {action.reason.sentence}")
        return ()

    # --- what is seen ------------------------------------------------------------------------------------------------

    def see(self, now: float, jobs: Sequence[SlurmJob], nodes: Sequence[SlurmNode],
            reservations: Sequence[Reservation] = ()) -> None:  # fmt: skip
        """What Slurm says at this time (unix seconds)."""
        events: list[ev.Event] = []
        clock = max(self._scheduler.time, now - self.since)
        waiting = {_name(job): job for job in jobs if job.waiting and job.wanted and not job.held
                   and job.reason not in ("BeginTime", "Dependency", "JobHeldUser", "JobHeldAdmin")}  # fmt: skip
        for name, job in waiting.items():
            if name not in self._scheduler.jobs:
                submitted = max(0.0, (job.submitted or now) - self.since)
                known = Job(name, submitted, job.wanted, user=job.user, preemptible=False,
                            declared_duration=job.time_limit)  # fmt: skip
                events.append(ev.Arrived(made_even(known, None, self.topology)))
        for name in self._waiting.keys() - waiting.keys():
            events.append(ev.Cancelled(name))  # from the shadow: it runs in Slurm, or was taken back
        self._waiting = {**self._waiting, **waiting}
        for job in jobs:
            self._note(job)
        events += self._machines(now, jobs, nodes, reservations)
        if self._timer is not None and clock >= self._timer:
            self._timer = None
            events.append(ev.TimerDue())
        if events:
            self._scheduler.step(clock, sorted(events, key=lambda event: ev.ORDER[type(event)]))
        self._waiting = waiting

    def _note(self, job: SlurmJob) -> None:
        """Keep what has run, and say when Slurm starts what the policy would have started."""
        name = _name(job)
        if job.started is None or job.waiting or (not job.gpus and name not in self.seen):
            return
        before = self.seen.get(name)
        ended = job.ended if job.over else None
        gpus, nodes = (before.gpus, before.nodes) if before else (job.wanted, job.nodes)
        self.seen[name] = SeenJob(name, job.user, gpus, job.submitted or job.started, job.started, ended,
                                  job.time_limit, nodes)  # fmt: skip
        if before is None and job.started >= self.since:
            would = self._would.pop(name, None)
            if would is None:
                said = "; the policy would not have started it yet" if name in self._waiting else ""
            else:
                said = f", {max(0.0, job.started - self.since - would.at):.0f} s after the policy would have, on " \
                       f"{', '.join(would.where)}"  # fmt: skip
            self._tell(f"job {name}: Slurm has started it on {', '.join(job.nodes)}{said}")

    def _machines(self, now: float, jobs: Sequence[SlurmJob], nodes: Sequence[SlurmNode],
                  reservations: Sequence[Reservation]) -> list[ev.Event]:  # fmt: skip
        fleet = self._scheduler.books.fleet
        found: list[ev.Event] = []
        held = reserved(reservations, now, self._ahead, ())
        for each in standings(self.topology, nodes, jobs, (), held):
            down = self.topology.machine_by_name[each.machine] in fleet.down
            if each.state == "up" and down:
                found.append(ev.MachineUp(each.machine))
            elif each.state != "up" and not down:
                found.append(ev.MachineDrained(each.machine))
            if each.withheld != fleet.withheld.get(each.machine, 0):
                found.append(ev.GpusWithheld(each.machine, each.withheld))
        return found

    def gain(self, now: float) -> Gain:
        return gain(self.seen.values(), self.topology, self.policy, self.since, now)

    # --- from one watch to the next ------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        return {"since": self.since, "policy": self.policy, "jobs": [job.plain() for job in self.seen.values()]}

    def recall(self, plain: dict[str, Any]) -> None:
        """What a watch before this one has seen: the comparison goes back to its beginning."""
        for fields in plain["jobs"]:
            job = SeenJob(**{**fields, "nodes": tuple(fields["nodes"])})
            self.seen[job.id] = job


def _name(job: SlurmJob) -> str:
    """A job that was requeued runs anew, and is another one here."""
    return f"{job.id}" if not job.restarts else f"{job.id}.{job.restarts}"


class DryRun:
    """Looks again and again, until told to stop; what was seen is kept in the state."""

    def __init__(self, slurm: Slurm, topology: Topology, policy: str, state: Path, *, poll: float = 1.0,
                 summary_every: float = 3600.0, tell: Callable[[str], None] = print) -> None:  # fmt: skip
        self.slurm, self.poll, self._summary_every, self._say = slurm, poll, summary_every, tell
        self.file = state / "dry-run.json"
        self._away = False
        since, plain = float(int(time.time())), None  # Slurm counts whole seconds
        if self.file.exists():
            plain = json.loads(self.file.read_text())
            since = float(plain["since"])
        self.shadow = Shadow(topology, policy, since, self._timed)
        if plain is not None:
            self.shadow.recall(plain)

    def _timed(self, text: str) -> None:
        self._say(f"{time.strftime('%H:%M:%S')} {text}")

    def run(self, stopped: Callable[[float], bool]) -> None:
        """`stopped` waits for so many seconds and says whether that is all."""
        summary = time.monotonic() + self._summary_every
        while not stopped(self._look()):
            if time.monotonic() >= summary:
                summary = time.monotonic() + self._summary_every
                self.summary()
        self._look()
        self.summary()

    def _look(self) -> float:
        """Seconds until the next one: it takes a tenth of the time at most."""
        begin = time.monotonic()
        try:
            jobs, nodes, reservations = self.slurm.jobs(), self.slurm.nodes(), self.slurm.reservations()
        except SlurmError as error:
            if not self._away:
                log.warning("Slurm does not answer (%s); nothing is concluded from that", error)
            self._away = True
            return self.poll
        self._away = False
        took = time.monotonic() - begin
        self.shadow.see(time.time(), jobs, nodes, reservations)
        return max(self.poll, 10 * took)

    def summary(self) -> None:
        self._keep()
        for line in self.shadow.gain(time.time()).lines():
            self._say(line)

    def _keep(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.shadow.plain()))
        new.replace(self.file)
