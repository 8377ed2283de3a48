"""Jobs that wait for others (`sbatch --dependency`): they arrive once what they wait for has come about here.

In a record such a job was eligible when the jobs before it had ended *there*. Under another policy these end at another
time, and it must come then. `linked` makes what a trace says plain: only jobs of the trace, only starts and ends.
`Followers` is the simulated world's account of who still waits for whom.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dally.core.job import Ending, Job, Truth
from dally.traces.trace import Trace

WAITED = "they wait for other jobs (--dependency) and arrive once these have come so far"
UNKNOWN = "jobs they waited for are not in the trace: taken to have come so far"
NEVER = "what they waited for never came about, and they did not run: left out"
_AT_ONCE = 60.0  # seconds from the end of the last job it waited for to its being eligible: not for another reason
_MINUTE = 60.0
_PART = re.compile(r"^([a-z]+)(?::(.*))?$")
_BEGINS, _ENDS = "after", "afterany"  # what is left once a trace is plain
_OK, _NOT_OK, _TASK_BY_TASK = "afterok", "afternotok", "aftercorr"
_KINDS = frozenset({_BEGINS, _ENDS, _OK, _NOT_OK, _TASK_BY_TASK, "afterburstbuffer"})


class Need(NamedTuple):
    """`job` has begun (or, where `begun` is false, ended), and so many seconds have passed since."""

    job: str
    begun: bool
    delay: float = 0.0


class Needs(NamedTuple):
    needs: tuple[Need, ...]
    any: bool = False  # one of them is enough


def needs_of(after: str) -> Needs:
    """Of a plain text: `after:7+5,afterany:8`."""
    found: list[Need] = []
    for kind, job, minutes in _named(after):
        found.append(Need(job, kind == _BEGINS, minutes * _MINUTE))
    return Needs(tuple(found), "?" in after)


def _named(after: str) -> Iterator[tuple[str, str, float]]:
    """(kind, job, minutes) of every job named; kinds that are not known are passed over."""
    for part in re.split(r"[,?]", re.sub(r"\([^)]*\)", "", after)):
        match = _PART.match(part.strip().lower())
        if match is None or match[1] not in _KINDS or match[2] is None:
            continue
        for name in part.strip().partition(":")[2].split(":"):
            job, _, minutes = name.partition("+")
            if job:
                yield match[1], job, float(minutes) if minutes.isdigit() else 0.0


def linked(trace: Trace) -> Trace:
    """The trace with dependencies made plain, jobs that could never start left out, and notes of both."""
    if not any(job.after is not None for job in trace.jobs):
        return trace
    known = _Known(trace)
    counted: Counter[str] = Counter()
    kept: list[tuple[Job, Truth]] = []
    for place, (job, truth) in enumerate(zip(trace.jobs, trace.truths, strict=True)):
        made = (job, truth) if job.after is None else known.plain(place, job, truth, counted)
        if made is not None:
            kept.append(made)
    kept.sort(key=lambda pair: pair[0].submit_time)
    notes = [f"{count:,} jobs: {what}" for what, count in counted.most_common()]
    return replace(trace, jobs=[job for job, _ in kept], truths=[truth for _, truth in kept],
                   notes=[*trace.notes, *notes])  # fmt: skip


class _Known:
    """Jobs of a trace by name, by array, and by user and name."""

    def __init__(self, trace: Trace) -> None:
        self.pairs = list(zip(trace.jobs, trace.truths, strict=True))
        self.place = {job.id: place for place, job in enumerate(trace.jobs)}
        self.tasks: dict[str, list[str]] = {}
        self.alike: dict[tuple[str | None, str | None], list[int]] = {}
        for place, job in enumerate(trace.jobs):
            array, task, _ = job.id.partition("_")
            if task:
                self.tasks.setdefault(array, []).append(job.id)
            self.alike.setdefault((job.user, job.name), []).append(place)

    def plain(self, place: int, job: Job, truth: Truth, counted: Counter[str]) -> tuple[Job, Truth] | None:
        after = job.after or ""
        either = "?" in after
        met: list[str] = []
        ends: list[float | None] = []
        missing = never = 0
        for kind, name, minutes in (*_named(after), *self._alone(place, job, after)):
            for other in self._jobs(kind, name, job.id):
                at = self.place.get(other)
                if at is None or at >= place:  # Slurm has no job wait for one that is not there yet
                    missing += 1
                elif truth.start is None and not _comes(kind, self.pairs[at][1]):
                    never += 1
                else:
                    met.append(f"{_BEGINS}:{other}+{minutes:g}" if kind == _BEGINS else f"{_ENDS}:{other}")
                    ends.append(_when(kind, minutes, self.pairs[at][1]))
        if never and not (either and met):
            counted[NEVER] += 1
            return None
        if missing:
            counted[UNKNOWN] += 1
        if not met or (either and missing):
            return replace(job, after=None), truth
        counted[WAITED] += 1
        since = truth.submitted
        known = [end for end in ends if end is not None]
        if since is not None and known and job.submit_time - (min if either else max)(known) <= _AT_ONCE:
            job = replace(job, submit_time=since)  # nothing else held it back
        return replace(job, after=("?" if either else ",").join(dict.fromkeys(met))), truth

    def _jobs(self, kind: str, name: str, mine: str) -> list[str]:
        name = name.removesuffix("_*")
        if kind == _TASK_BY_TASK and "_" in mine and name in self.tasks:
            return [f"{name}_{mine.partition('_')[2]}"]
        return [name] if name in self.place or name not in self.tasks else self.tasks[name]

    def _alone(self, place: int, job: Job, after: str) -> Iterator[tuple[str, str, float]]:
        """`singleton`: those of its name and user that came before it, back to one that itself waited for all."""
        if not any(part.strip().lower() == "singleton" for part in re.split(r"[,?]", after)):
            return
        for before in reversed(self.alike[(job.user, job.name)]):
            if before < place:
                other = self.pairs[before][0]
                yield _ENDS, other.id, 0.0
                if other.after is not None and "singleton" in other.after.lower():
                    return


def _comes(kind: str, truth: Truth) -> bool:
    """Whether what is waited for ever comes about, as that job's own record has it."""
    if kind in (_OK, _TASK_BY_TASK):
        return truth.ending is Ending.COMPLETED
    return kind != _NOT_OK or truth.ending is not Ending.COMPLETED


def _when(kind: str, minutes: float, truth: Truth) -> float | None:
    """When that was in the record."""
    if truth.start is None:
        return truth.cancel_at
    if kind == _BEGINS:
        return truth.start + minutes * _MINUTE
    return None if truth.duration is None else truth.start + truth.duration


class Followers:
    """Who still waits for whom in a simulated world."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._left: dict[str, int] = {}  # job → needs that are not met
        self._by: dict[tuple[str, bool], list[tuple[str, float]]] = {}  # (job, begun) → who waits for it, how long
        self._kept: dict[str, tuple[Job, Truth]] = {}  # submitted, and waiting for others
        for job in jobs:
            if job.after is not None:
                needs, either = needs_of(job.after)
                self._left[job.id] = min(1, len(needs)) if either else len(needs)
                for need in needs:
                    self._by.setdefault((need.job, need.begun), []).append((job.id, need.delay))

    def keeps(self, job: Job, truth: Truth) -> bool:
        """Whether it has to wait, though it was submitted."""
        if self._left.get(job.id, 0) <= 0:
            return False
        self._kept[job.id] = job, truth
        return True

    def heard(self, job_id: str, *, begun: bool) -> list[tuple[str, float]]:
        """Who waited for that, and for how many seconds more."""
        return self._by.pop((job_id, begun), [])

    def met(self, job_id: str) -> tuple[Job, Truth] | None:
        """One of its needs is met; the job where it can come now."""
        self._left[job_id] -= 1
        return self._kept.pop(job_id, None) if self._left[job_id] == 0 else None
