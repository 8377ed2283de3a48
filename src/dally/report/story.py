"""A job's story: what happened to it and why it waited, told from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Entry, LetIn, Odd, Rejected, flat
from dally.core.reasons import Reason
from dally.core.sharing import Share
from dally.core.topology import Topology
from dally.core.units import show_time
from dally.store.journal_file import JournalReader


def tell(job_id: str, journal: JournalReader) -> Iterator[str]:
    """One line per thing that happened to the job, in order of time."""
    job: Job | None = None
    waiting = False
    said: dict[str | pl.Demand, Reason] = {}
    told: Reason | None = None
    last = 0.0
    for now, entry in flat(journal):
        last = now
        if isinstance(entry, ev.Arrived) and entry.job.id == job_id:
            job, waiting, told = entry.job, True, None
            wish = f" of type {job.gpu_type}" if job.gpu_type else ""
            wish += f" inside one {job.within}" if job.within else ""
            yield f"{_at(now)}  submitted: {job.gpus} GPU{'s' if job.gpus > 1 else ''}{wish}" + (
                f", {job.model}" if job.model else "")  # fmt: skip
        elif isinstance(entry, pl.Wait):
            said[entry.who] = entry.reason
        elif job is not None and isinstance(entry, Odd):
            if getattr(entry.event, "job", None) == job_id:
                yield f"{_at(now)}  a report that did not fit, {type(entry.event).__name__}: {entry.why}"
        elif job is None or getattr(entry, "job", None) != job_id:
            pass
        else:
            line = _line(entry, journal.topology)
            if isinstance(entry, LetIn):
                said.pop(job_id, None)
            if line is not None:
                waiting = isinstance(entry, (pl.Preempt, ev.Interrupted, ev.StartFailed, ev.Released, LetIn))
                told = None if waiting else told
                yield f"{_at(now)}  {line}"
        if job is not None and waiting:
            demand = pl.demand_of_job(job)
            reason = said.get(job_id) or said.get(demand)
            if reason is not None and reason != told:
                told = reason
                until = f"; until {_at(reason.until).strip()} at the latest" if reason.until is not None else ""
                yield f"{_at(now)}  waits, {reason.token.label}: {reason.sentence}{until}"
    if job is None:
        raise UserError(f"the journal knows no job {job_id!r}")
    if waiting:
        yield f"{_at(last)}  still waiting when the journal ends"


def ends_of(entries: Iterable[tuple[float, Entry]]) -> dict[str, tuple[str, float]]:
    """How and when every job ended."""
    return {entry.job: (type(entry).__name__, now) for now, entry in entries
            if isinstance(entry, (ev.Finished, ev.Failed, ev.Cancelled, Rejected))}  # fmt: skip


def entry_text(entry: Entry, topology: Topology) -> str:
    """One entry as a line for people."""
    job = getattr(entry, "job", None)
    if isinstance(entry, ev.Arrived):
        wish = f" of type {entry.job.gpu_type}" if entry.job.gpu_type else ""
        return f"job {entry.job.id}: submitted, {entry.job.gpus} GPUs{wish}"
    if isinstance(entry, pl.Wait):
        who = f"job {entry.who}" if isinstance(entry.who, str) else (
            f"jobs of {entry.who.gpus} {entry.who.gpu_type + ' ' if entry.who.gpu_type else ''}GPUs")
        return f"{who}: wait, {entry.reason.token.label}: {entry.reason.sentence}"
    if isinstance(entry, Odd):
        return f"odd: {entry_text(entry.event, topology)} ({entry.why})"
    line = _line(entry, topology)
    if line is None or job is None:
        fields = ", ".join(f"{name} {value}" for name, value in entry._asdict().items() if value not in ("", None))
        return _WORDS.get(type(entry), type(entry).__name__) + (f": {fields}" if fields else "")
    return f"job {job}: {line}"


_WORDS: dict[type, str] = {ev.MachineDown: "machine down", ev.MachineDrained: "machine drained",
                           ev.MachineUp: "machine up", ev.GpusWithheld: "GPUs of others", ev.TimerDue: "a timer rings",
                           ev.LeaseEnded: "lease ended", ev.Yielded: "checkpoint saved", pl.WakeAt: "to be woken",
                           ev.MachinesChanged: "machines come and go"}  # fmt: skip
_ENDS: dict[type, str] = {ev.Finished: "finished", ev.Failed: "gave up after its retries", ev.Cancelled: "cancelled"}


_VERBS: dict[type, str] = {pl.Start: "starts on", pl.Migrate: "moves to", pl.Resize: "is resized to"}


def _line(entry: Entry, topology: Topology) -> str | None:
    if isinstance(entry, (pl.Start, pl.Migrate, pl.Resize)):
        slices = entry.placement.slices
        names = topology.machine_names
        where = ", ".join(f"{mask.bit_count()} of {names[machine]}" for machine, mask in slices[:8])
        more = f" and of {len(slices) - 8} more" if len(slices) > 8 else ""
        verb = _VERBS[type(entry)]
        gpus = entry.placement.gpus
        share = "" if isinstance(entry, pl.Resize) or entry.share is None else f"; {_shared(entry.share)}"
        return f"{verb} {gpus} GPU{'s' if gpus > 1 else ''}: {where}{more}{share}"
    if isinstance(entry, pl.Reshare):
        return f"its share changes: {_shared(entry.share)}"
    if isinstance(entry, ev.Measured):
        parts = [f"runs at {entry.speed:.0%} of its reference speed"]
        if entry.exposed > 0:
            parts.append(f"{entry.exposed:.0%} of a step is communication")
        if entry.neighbours > 1.0005:
            parts.append(f"{entry.neighbours - 1:.0%} slower by its neighbours")
        if entry.delay > 0:
            parts.append(f"first {show_time(entry.delay)} go to loading and hand-over")
        return "; ".join(parts)
    if isinstance(entry, pl.Preempt):
        return "preempted"
    if isinstance(entry, pl.Extend):
        return f"keeps its GPUs for another {show_time(entry.lease)}"
    if isinstance(entry, ev.Interrupted):
        return f"interrupted: {entry.cause}"
    if isinstance(entry, ev.StartFailed):
        return f"did not start: {entry.cause}"
    if isinstance(entry, ev.Held):
        return f"held by its owner: {entry.why}" if entry.why else "held by its owner"
    if isinstance(entry, LetIn):
        return "let in by its queue"
    if isinstance(entry, ev.Released):
        return "released"
    if isinstance(entry, ev.ContactLost):
        return "contact with it is lost"
    if isinstance(entry, ev.ContactRestored):
        return "it is heard of again"
    if isinstance(entry, ev.Started):
        return "runs"
    if isinstance(entry, pl.Stop):
        return "is told to stop: nobody planned that it runs"
    if isinstance(entry, Rejected):
        return f"turned away, {entry.reason.token.label}: {entry.reason.sentence}"
    if isinstance(entry, ev.Failed) and entry.cause:
        return f"ended: {entry.cause}"
    return _ENDS.get(type(entry))


def _shared(share: Share) -> str:
    if share.beside is not None:
        return f"packed beside job {share.beside}"
    return f"in turns of {show_time(share.weight * share.quantum)} with whoever else holds them"


def _at(time: float) -> str:
    """Day, hour, minute, second of the run."""
    whole = int(time)
    return f"{whole // 86400:3d}d {whole // 3600 % 24:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
