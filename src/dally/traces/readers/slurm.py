"""What `sacct` says about jobs, in either of its output forms: GPUs, nodes, states, and requeued attempts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dally.core.job import DurationMeans
from dally.traces.assembly import NO_GPUS, Assembly, Row
from dally.traces.readers.attempts import failure_points
from dally.traces.readers.lifecycle import life_of

_NODES = re.compile(r"([^,\[]+)(?:\[([^\]]*)\])?([^,\[]*)(?:,|$)")
_GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::([^:=,()]+))??[:=](\d{1,9})(?!\d)")
# A row in one of these states is an attempt that Slurm put back into the queue under the same id.
_RETRIED = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL"})
_MOST_NODES = 4096


@dataclass(slots=True)
class Record:
    """One line of `sacct`: an attempt at a job."""

    id: str
    line: int | None
    state: str
    submit: float | None
    start: float | None
    end: float | None
    elapsed: float | None
    gpus: int | None
    gpu_type: str | None = None
    limit: float | None = None
    nodes: str | None = None
    user: str | None = None
    tenant: str | None = None
    priority: int = 0


def gpus_in(tres: str) -> tuple[int, str | None]:
    """GPUs and their type in `billing=8,gres/gpu=4,gres/gpu:a100=4` or `gpu:a100:4(S:0-1)`; (0, None) without any.

    A typed count repeats an untyped one, so the untyped total wins and types only add up without it.
    """
    total, typed, kind = None, 0, None
    for name, count in _GRES.findall(tres):
        if name:
            typed, kind = typed + int(count), name
        else:
            total = int(count)
    kinds = {name for name, _ in _GRES.findall(tres) if name}
    return (typed if total is None else total), (kind if len(kinds) == 1 else None)


def node_names(text: str) -> list[str] | None:
    """`n[01-03,7],gpu9` → n01, n02, n03, n7, gpu9; None for anything that is not a plain node list."""
    names: list[str] = []
    if text.lower() in ("none assigned", "none", "(null)", "unknown", ""):
        return None
    for prefix, ranges, suffix in _NODES.findall(text):
        if not ranges:
            names.append(prefix + suffix)
            continue
        for part in ranges.split(","):
            low, _, high = part.partition("-")
            high = high or low
            if not (low.isdecimal() and high.isdecimal()) or max(len(low), len(high)) > 9:
                return None
            if int(high) - int(low) > _MOST_NODES:
                return None
            names += [f"{prefix}{number:0{len(low)}d}{suffix}" for number in range(int(low), int(high) + 1)]
    return names or None


def add_records(assembly: Assembly, records: Iterable[Record]) -> None:
    """Turn attempts into jobs and hand them to the assembly."""
    by_id: dict[str, list[list[Record]]] = {}
    order: list[list[Record]] = []
    for record in records:
        runs = by_id.setdefault(record.id, [])
        # `sacct --duplicates` lists a requeued job once per attempt; a reused id is another job.
        if runs and runs[-1][-1].state in _RETRIED:
            runs[-1].append(record)
        else:
            runs.append([record])
            order.append(runs[-1])
    for attempts in order:
        row = _row(assembly, attempts)
        if row is not None:
            assembly.rows.append(row)


def _row(assembly: Assembly, attempts: list[Record]) -> Row | None:
    last, first = attempts[-1], attempts[0]
    gpus = next((attempt.gpus for attempt in reversed(attempts) if attempt.gpus), None)
    if gpus is None:
        assembly.drop(NO_GPUS, last.line, last.id)
        return None
    life = life_of(assembly, last.line, last.id, last.state, last.submit, last.start, last.end, last.elapsed)
    if life is None:
        return None
    earlier = [_length(attempt) for attempt in attempts[:-1]]
    submit, duration, cancel_at = life.submit, life.duration, life.cancel_at
    failures: tuple[float, ...] = ()
    if any(earlier):
        # A requeue rewrites the submission; the first attempt has the true one.
        submit = min(submit, first.submit) if first.submit is not None else submit
        lengths = [*earlier, duration or 0.0]
        duration, cancel_at = sum(lengths), None
        failures = failure_points(lengths)
    names = node_names(last.nodes) if last.nodes and life.duration is not None else None
    ran_on = tuple((name, gpus // len(names)) for name in names) if names and gpus % len(names) == 0 else ()
    return Row(last.id, submit, gpus, duration, last.line, gpu_type=last.gpu_type, user=last.user,
               tenant=last.tenant, priority=last.priority, declared_duration=last.limit, ending=life.ending,
               cancel_at=cancel_at, failures=failures, ran_on=ran_on,
               means=DurationMeans.AS_PLACED if ran_on else DurationMeans.BEST_PLACEMENT)  # fmt: skip


def _length(attempt: Record) -> float:
    """Run time of an attempt that was put back; 0 where it never started."""
    if attempt.start is not None and attempt.end is not None:
        return max(0.0, attempt.end - attempt.start)
    return max(0.0, attempt.elapsed or 0.0)


