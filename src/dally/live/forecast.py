"""When will a job start, what would make it start sooner, and what would become of one more: asked of a snapshot.

The real scheduler with the real policy goes on from the snapshot into several possible futures (`forecast_world`), each
with durations drawn anew (`durations`), until the job starts. Nothing here touches the scheduler that was saved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.estimates import Declared, Estimates
from dally.core.job import Job
from dally.core.journal import Instant, Journal, flat
from dally.core.journal_text import JournalText
from dally.core.records import dataclass
from dally.core.scheduler import Scheduler
from dally.core.sharing import Interference
from dally.core.snapshot import load, load_memory
from dally.core.states import ENDED, State
from dally.core.topology import Topology
from dally.core.topology_text import topology_from_plain
from dally.live.durations import NOBODY_KNOWS, Drawn, Durations, History, declarations
from dally.live.forecast_world import ForecastWorld
from dally.network.model import NetworkModel
from dally.policies.options import make_policy

SAMPLES = 20
BUDGET = 2.0  # seconds of CPU
HORIZON = 30 * 86400.0  # seconds: nobody is told about what is further away
_LOW, _HIGH = 0.1, 0.9

Saved = dict[str, Any]  # what `core.snapshot.save` gives


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds from now until a job starts: in one of ten futures sooner than `low`, in one of ten later than `high`.
    None: not within the horizon, or not known."""

    low: float | None
    median: float | None
    high: float | None
    samples: int  # futures looked at to their end
    horizon_reached: bool  # in some of them it did not start, as far as was looked
    basis: str  # what it stands on, in a sentence
    cut_off: bool = False  # time was up before all futures had been looked at
    starts: tuple[float, ...] = ()  # in every future, by its number; infinite: not within the horizon

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        del found["starts"]
        return found


class Said(Declared):
    """What the submitter said, in whichever unit."""

    def work(self, job: Job) -> float | None:
        return job.declared_duration if job.work is None else job.work


class Known(NamedTuple):
    """What the service knows beyond the snapshot: who asks hands it over."""

    estimates: Estimates | None = None  # what policies are told; default: what jobs say of themselves
    history: History | None = None  # what has ended; default: what comes with the snapshot
    network: NetworkModel | None = None  # steps of profiled jobs
    interference: Interference | None = None


class Futures:
    """Possible futures of a snapshot, by number."""

    def __init__(self, state: Saved, policy: str | None = None, known: Known | None = None, *, seed: int = 0,
                 durations: Durations | None = None, now: float | None = None) -> None:  # fmt: skip
        """`policy`: in charge from now on; default: the one that is. `durations`: in place of drawn ones."""
        known = known or Known()
        self.state, self.policy = state, str(state["policy"]) if policy is None else make_policy(policy).name
        self.now = max(state["time"], state["time"] if now is None else now)
        self.topology: Topology = topology_from_plain(state["topology"])
        self.known = known._replace(estimates=known.estimates or Said())
        history = History.of(state) if known.history is None else known.history
        self.durations = durations or Drawn(history, self.known.estimates, seed, declarations(state))

    def begin(self, future: int = 0) -> tuple[Scheduler, ForecastWorld]:
        """A scheduler at the moment of the snapshot, in a world of its own."""
        estimates, _, network, interference = self.known
        world = ForecastWorld(self.durations, future, estimates, network, interference)
        scheduler = Scheduler(self.topology, make_policy(self.state["policy"]), world, Journal(), estimates,
                              interference)  # fmt: skip
        load(scheduler, self.state)
        memory = load_memory(scheduler.policy, self.state, scheduler)
        takes_over = self.policy != scheduler.policy.name or memory is None
        if memory is None or takes_over:
            scheduler.put_in_charge(make_policy(self.policy), self.now, written=False)
        else:
            scheduler.resume_with(memory)
        world.take_up(scheduler.books, self.now, ask=takes_over)
        return scheduler, world

    def job(self, job_id: str) -> Job:
        """As it was submitted."""
        found: Job = JournalText(self.topology).rich("job", self._plain(job_id)["job"])
        return found

    def standing(self, job_id: str) -> State:
        return State(self._plain(job_id)["state"])

    def _plain(self, job_id: str) -> dict[str, Any]:
        for plain in self.state["jobs"]:
            if plain["job"]["id"] == job_id:
                return dict(plain)
        raise UserError(f"nobody knows a job {job_id!r}")


class Budget:
    """So many seconds of this thread's CPU."""

    def __init__(self, seconds: float, spent: Callable[[], float] = time.thread_time) -> None:
        self._spent, self._end = spent, spent() + seconds

    @property
    def over(self) -> bool:
        return self._spent() >= self._end

    @property
    def left(self) -> float:
        return max(0.0, self._end - self._spent())

    def part(self, share: float) -> Budget:
        """A share of what is left."""
        return Budget(self.left * share, self._spent)


def estimate_start(state: Saved, job_id: str, policy: str | None = None, known: Known | None = None, *,
                   samples: int = SAMPLES, budget: float = BUDGET, seed: int = 0, durations: Durations | None = None,
                   now: float | None = None) -> Estimate:  # fmt: skip
    """When a job that waits will start. The same seed gives the same answer, unless time is up before."""
    futures = Futures(state, policy, known, seed=seed, durations=durations, now=now)
    there = futures.standing(job_id)
    if there in ENDED:
        raise UserError(f"job {job_id!r} is {there.value}: it will not start any more")
    if there in (State.RUNNING, State.STARTING):
        return Estimate(0.0, 0.0, 0.0, 0, False, "it has its GPUs already")
    return starts(futures, job_id, (), samples, Budget(budget))


def starts(futures: Futures, job_id: str, first: Sequence[ev.Event], samples: int, budget: Budget,
           horizon: float = HORIZON) -> Estimate:  # fmt: skip
    """Go into one future after the other, each beginning with these events, until the job starts."""
    found: list[float] = []
    unknown, reached, cut = False, 0.0, False
    never: str | None = None  # where it does not start: what is true of it then
    for future in range(max(1, samples)):
        looked = _until_it_starts(futures, future, job_id, first, budget, horizon)
        unknown |= looked.unknown and looked.start is None
        if looked.beyond:
            return Estimate(None, None, None, 1, True, f"not before machines come back: it {looked.why}")
        never = looked.why or never
        if looked.cut_off:
            reached, cut = looked.reached, True
            break
        found.append(math.inf if looked.start is None else looked.start)
        if looked.certain:
            found *= max(1, samples)
            break
        if budget.over and future + 1 < samples:
            cut = True
            break
    return _estimate(found, futures, samples, cut, reached, unknown, never)


class _Looked(NamedTuple):
    start: float | None  # seconds from now; None: it did not
    reached: float  # seconds from now that were looked at
    cut_off: bool
    unknown: bool  # somebody never ended because nobody knows when
    certain: bool = False  # it starts before anything was left to chance
    why: str | None = None  # it does not start
    beyond: bool = False  # … because what is up of the cluster is too small, whoever ends


def _until_it_starts(futures: Futures, future: int, job_id: str, first: Sequence[ev.Event], budget: Budget,
                     horizon: float) -> _Looked:  # fmt: skip
    scheduler, world = futures.begin(future)
    now = futures.now
    if first:
        scheduler.step(now, first)
    job = scheduler.jobs[job_id]
    instants, cut = 0, False

    def between(time: float) -> bool:
        nonlocal instants, cut
        instants += 1
        if job.placement is not None or job.state in ENDED or time - now > horizon:
            return False
        cut = instants % 16 == 0 and budget.over
        return not cut

    if between(now):
        scheduler.run(between)
    ahead = scheduler.time - now
    if job.placement is not None:
        return _Looked(max(0.0, ahead), ahead, False, bool(world.unknown), certain=ahead <= 0)
    reason = scheduler.reason(job_id)
    return _Looked(None, ahead, cut, bool(world.unknown), why=None if reason is None else reason.sentence,
                   beyond=scheduler.view.too_large(job.demand) is not None)  # fmt: skip


def _estimate(found: list[float], futures: Futures, samples: int, cut: bool, reached: float, unknown: bool,
              never: str | None) -> Estimate:  # fmt: skip
    basis = futures.durations.basis
    if found and max(found) == 0.0:
        return Estimate(0.0, 0.0, 0.0, len(found), False, "the policy starts it at once", False, tuple(found))
    if not found:
        basis = f"time was up in the middle of the first future; until then it had not started; {basis}"
        return Estimate(reached, None, None, 0, True, basis, True)
    if all(math.isinf(start) for start in found):
        if unknown and basis != NOBODY_KNOWS:
            basis = f"it waits for jobs of which nobody knows how long they run; {basis}"
        elif not unknown:  # nobody it could wait for: how long jobs run has nothing to do with it
            why = f" ({never})" if never is not None else ""
            drawn = "" if basis == NOBODY_KNOWS else f"; {basis}"
            basis = f"it does not start as long as nothing changes, or not within 30 days{why}{drawn}"
        return Estimate(None, None, None, len(found), True, basis, cut, tuple(found))
    if cut:
        basis = f"{len(found)} of {samples} futures, then time was up; {basis}"
    ordered = sorted(found)
    return Estimate(_quantile(ordered, _LOW), _quantile(ordered, 0.5), _quantile(ordered, _HIGH), len(found),
                    math.isinf(ordered[-1]), basis, cut, tuple(found))  # fmt: skip


def _quantile(ordered: Sequence[float], q: float) -> float | None:
    found = ordered[round(q * (len(ordered) - 1))]
    return None if math.isinf(found) else found


# --- what would make it start sooner --------------------------------------------------------------------------------


class Change(NamedTuple):
    """A job asked for differently."""

    text: str
    job: Job


def changes(job: Job, topology: Topology) -> Iterator[Change]:
    """What its owner could ask for instead, and the cluster has: the smallest changes first."""
    kinds = [kind for kind in topology.gpu_types if kind != job.gpu_type and topology.capacity(kind) >= job.gpus]
    if job.gpu_type is not None:
        for kind in kinds:
            yield Change(f"type {kind} instead of {job.gpu_type}", replace(job, gpu_type=kind))
        if len(kinds) > 1:
            yield Change("any GPU type", replace(job, gpu_type=None))
    yield from _wider(job, topology)
    least = job.min_gpus or 1
    capacity = topology.capacity(job.gpu_type)
    gpus = job.gpus
    while capacity > 0 and gpus > least:
        smaller = 1 << (gpus.bit_length() - 1)
        gpus = max(least, gpus // 2 if smaller == gpus else smaller)
        if gpus <= capacity:
            smallest = None if job.min_gpus is None else min(job.min_gpus, gpus)
            yield Change(f"{job.gpus} → {gpus} GPU{'s' if gpus > 1 else ''}",
                         replace(job, gpus=gpus, min_gpus=smallest))  # fmt: skip


def _wider(job: Job, topology: Topology) -> Iterator[Change]:
    """Where a job insists on a level, the levels around it; where it waits for one by its own will, not to wait."""
    names = [level.name for level in topology.levels]
    if job.within in names:
        for wider in names[names.index(job.within) + 1 :]:
            level = None if wider == names[-1] else wider
            yield Change(f"within the {wider} instead of the {job.within}", replace(job, within=level))
    if job.prefers is not None and job.wait != 0:
        yield Change(f"without waiting for a {job.prefers}", replace(job, wait=0.0))


def alternatives(state: Saved, job_id: str, policy: str | None = None, known: Known | None = None, *,
                 samples: int = SAMPLES, budget: float = BUDGET, seed: int = 0, durations: Durations | None = None,
                 now: float | None = None, most: int = 4,
                 instead_of: Estimate | None = None) -> list[dict[str, Any]]:  # fmt: skip
    """What would make it start sooner: cancelled, and submitted anew as something else. Only what helps is listed."""
    futures = Futures(state, policy, known, seed=seed, durations=durations, now=now)
    job, spent = futures.job(job_id), Budget(budget)
    if instead_of is None:
        instead_of = starts(futures, job_id, (), samples, spent.part(0.4))
    return list(_helpful(futures, job, (ev.Cancelled(job_id),), instead_of, samples, spent, most))


def _helpful(futures: Futures, job: Job, first: tuple[ev.Event, ...], than: Estimate, samples: int, budget: Budget,
             most: int) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Changes that start sooner than that, each with its estimate, until one starts at once or time is up."""
    tried = list(changes(job, futures.topology))
    count, fewer = 0, than  # still fewer GPUs must be better than fewer
    for number, change in enumerate(tried):
        if budget.over or count == most:
            return
        changed = replace(change.job, id=f"{job.id}'", submit_time=futures.now)
        found = starts(futures, changed.id, (*first, ev.Arrived(changed)), min(samples, max(1, than.samples)),
                       budget.part(1.0 / (len(tried) - number)))  # fmt: skip
        if sooner(found, fewer if "→" in change.text else than):
            count += 1
            yield {"change": change.text, "estimate": found.plain()}
            if "→" in change.text:
                fewer = found
                if found.high == 0.0:
                    return


def sooner(one: Estimate, than: Estimate) -> bool:
    """In most of the futures that both have, and by more than a second in the median."""
    if one.median is None:
        return False
    if than.median is None:
        return not than.cut_off or one.median <= (than.low or 0.0)
    pairs = list(zip(one.starts, than.starts, strict=False))
    wins = sum(a < b for a, b in pairs)
    return wins * 4 >= 3 * len(pairs) and one.median < than.median - 1.0


# --- one job more ---------------------------------------------------------------------------------------------------


def dry_run(state: Saved, job: Job, policy: str | None = None, known: Known | None = None, *, samples: int = SAMPLES,
            budget: float = BUDGET, seed: int = 0, durations: Durations | None = None,
            now: float | None = None) -> dict[str, Any]:  # fmt: skip
    """What would become of a job that is submitted now: `starts` is now, later or never; where, when and why."""
    futures = Futures(state, policy, known, seed=seed, durations=durations, now=now)
    spent = Budget(budget)
    if any(plain["job"]["id"] == job.id for plain in state["jobs"]):
        raise UserError(f"there is a job {job.id!r} already")
    job = replace(job, submit_time=futures.now)
    scheduler, _ = futures.begin()
    seen: list[Instant] = []
    scheduler.journal = Journal(seen.append)
    scheduler.step(futures.now, [ev.Arrived(job)])
    active, reason = scheduler.jobs[job.id], scheduler.reason(job.id)
    answer: dict[str, Any] = {"starts": "later", "reason": None, "why": None, "machines": None, "level": None,
                              "speed": None, "preempts": [], "estimate": None, "alternatives": []}  # fmt: skip
    if reason is not None and active.placement is None:
        answer.update(reason=reason.token.label, why=reason.sentence)
    if active.placement is not None:
        answer.update(starts="now", **where(active, scheduler, futures.known.estimates))
        answer["preempts"] = [entry.job for _, entry in flat(seen) if isinstance(entry, pl.Preempt)]
        return answer
    if active.state is State.REJECTED:
        answer.update(starts="never", alternatives=list(_possible(futures, job, samples, spent)))
        return answer
    estimate = starts(futures, job.id, (ev.Arrived(job),), samples, spent.part(0.5))
    answer.update(estimate=estimate.plain(), alternatives=list(
        _helpful(futures, job, (), estimate, samples, spent, 4)))  # fmt: skip
    return answer


def _possible(futures: Futures, job: Job, samples: int, budget: Budget) -> Iterator[dict[str, Any]]:
    """The nearest things that would fit: one of each kind of change."""
    kinds: set[str] = set()
    for change in changes(job, futures.topology):
        kind = "gpus" if "→" in change.text else change.text
        if kind in kinds:
            continue
        changed = replace(change.job, id=f"{job.id}'")
        scheduler, _ = futures.begin()
        scheduler.absorb(futures.now, [ev.Arrived(changed)])
        if scheduler.jobs[changed.id].state is not State.REJECTED:
            kinds.add(kind)
            found = starts(futures, changed.id, (ev.Arrived(changed),), samples, budget.part(0.5))
            yield {"change": change.text, "estimate": found.plain()}


def where(job: ActiveJob, scheduler: Scheduler, estimates: Estimates | None) -> dict[str, Any]:
    """The machines and GPUs of a job that has some, the innermost level that holds them, and its speed there."""
    placement, topology = job.placement, scheduler.view.topology
    if placement is None:
        return {"machines": None, "level": None, "speed": None}
    machines = {topology.machine_names[machine]: [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
                for machine, mask in placement.slices}  # fmt: skip
    speed = None if estimates is None else estimates.speed(job.job, placement)
    return {"machines": machines, "level": topology.levels[placement.level(topology)].name, "speed": speed}
