"""Other time limits than users gave: all of them so many times as long, or none above so much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.units import seconds, show_time
from dally.experiments.twin.history import History
from dally.report.wording import jobs_text

MINUTE = 60.0
_MOST = "max="


@dataclass(frozen=True, slots=True)
class LimitChange:
    """`factor` of every limit, but nobody asks for less than the job really took; `most`: MaxTime, which ends who is
    over it."""

    text: str
    factor: float | None = None
    most: float | None = None

    @classmethod
    def of(cls, text: str) -> LimitChange:
        """`x0.5`, or `max=12h`."""
        if text.startswith(_MOST):
            most = seconds(text.removeprefix(_MOST))
            if most > 0:
                return cls(text, most=most)
        else:
            try:
                factor = float(text.removeprefix("x").removeprefix("×"))
            except ValueError:
                factor = math.nan
            if 0 < factor < math.inf:
                return cls(text, factor=factor)
        raise UserError(f"--limits {text!r}: write x0.5 (all limits half as long) or max=12h (none above twelve hours)")

    def changed(self, history: History) -> tuple[History, str]:
        """The history as if users had given such limits, and what changes in words."""
        pairs, touched, ended, kept = [], 0, 0, 0
        for job, truth in zip(history.trace.jobs, history.trace.truths, strict=True):
            before = job.limit if job.limit is not None else job.declared_duration
            if before is None and self.most is None:
                pairs.append((job, truth))
                continue
            ran = truth.duration or 0.0
            if self.most is not None:
                after = min(before if before is not None else math.inf, self.most)
                ended += ran > after
            else:
                assert self.factor is not None and before is not None
                kept += self.factor * before < min(ran, before)
                after = max(self.factor * before, min(ran, before), MINUTE)
                after = math.ceil(after / MINUTE) * MINUTE
            touched += after != before
            declared = job.declared_duration if job.declared_duration is None and before is not None else after
            pairs.append((replace(job, limit=after, declared_duration=declared), truth))
        if not touched:
            raise UserError(f"--limits {self.text!r} changes no job's limit; {_had(history)}")
        trace = replace(history.trace, jobs=[job for job, _ in pairs], truths=[truth for _, truth in pairs])
        return replace(history, trace=trace), self._said(ended, kept)

    def _said(self, ended: int, kept: int) -> str:
        if self.most is None:
            told = f"time limits × {self.factor:g}"
            return f"{told} ({jobs_text(kept)} no less than they took)" if kept else told
        told = f"time limits of {show_time(self.most)} at most"
        return f"{told} ({jobs_text(ended)} ended by it)" if ended else told


def _had(history: History) -> str:
    limits = [limit for job in history.trace.jobs if (limit := job.limit or job.declared_duration) is not None]
    return f"the longest in the record is {show_time(max(limits))}" if limits else "the record has none"


def limit_changes(texts: Sequence[str]) -> tuple[LimitChange, ...]:
    return tuple(map(LimitChange.of, texts))
