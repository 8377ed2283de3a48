"""One step as torch.profiler saw it: what computed when, what was sent when, and what of the sending nothing hid."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dally.core.errors import UserError

Span = tuple[float, float]
_GAP = 50.0  # microseconds between operations that are still drawn as one piece
_MOST = 200  # pieces that are kept


def read_trace(path: Path) -> tuple[list[dict[str, Any]], float]:
    """Moments of the last whole step in a Chrome trace, and its exposed communication in seconds."""
    events = _events(path)
    updates = sorted(
        (e["ts"], e["ts"] + e["dur"], e["tid"]) for e in events if str(e["name"]).startswith("Optimizer.step#")
    )
    if len(updates) < 2:
        raise UserError(f"{path}: there is no whole step between two optimiser steps in this trace")
    begin, end, thread = updates[-2][1], updates[-1][1], updates[-1][2]
    inside = [e for e in events if e["ts"] < end and e["ts"] + e["dur"] > begin]
    sent = [e for e in inside if _is_sending(e)]
    kernels = [e for e in inside if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and not _is_sending(e)]
    worked = kernels or [e for e in inside if e.get("tid") == thread and _is_compute(e)]
    moments: list[dict[str, Any]] = [
        {"lane": "network", "what": str(e["name"]), "start": _at(e["ts"], begin), "end": _at(e["ts"] + e["dur"], begin)}
        for e in sent
    ]
    compute = union((e["ts"], e["ts"] + e["dur"]) for e in worked)
    phases = _phases(inside, thread, begin)
    for start, stop in _joined(compute):
        what = next((name for name, (a, b) in phases.items() if a <= (start + stop) / 2 < b), "compute")
        moments.append({"lane": "compute", "what": what, "start": _at(start, begin), "end": _at(stop, begin)})
    moments.sort(key=lambda m: (m["lane"], m["start"]))
    if len(moments) > _MOST:
        moments = sorted(moments, key=lambda m: m["start"] - m["end"])[:_MOST]
        moments.sort(key=lambda m: (m["lane"], m["start"]))
    alone = uncovered(union((max(e["ts"], begin), min(e["ts"] + e["dur"], end)) for e in sent), compute)
    return moments, sum(b - a for a, b in alone) / 1e6


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        raw = path.read_bytes()
        data = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        return [e for e in data["traceEvents"] if e.get("ph") == "X" and "dur" in e]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is not a Chrome trace: {error}") from None


def _is_sending(event: dict[str, Any]) -> bool:
    name, kind = str(event["name"]), event.get("cat")
    if kind == "kernel":
        return "nccl" in name.lower()
    return kind == "user_annotation" and name.startswith("gloo:")


def _is_compute(event: dict[str, Any]) -> bool:
    return event.get("cat") == "cpu_op" and not str(event["name"]).startswith("c10d::")


def _phases(events: Iterable[dict[str, Any]], thread: Any, begin: float) -> dict[str, Span]:
    """Forward, backward and optimiser as the main thread went through them."""
    back = [e for e in events if str(e["name"]).startswith("autograd::engine::evaluate_function")]
    update = [e for e in events if str(e["name"]).startswith("Optimizer.step#") and e["tid"] == thread]
    found: dict[str, Span] = {}
    last = max((e["ts"] for e in update), default=float("inf"))
    if back:
        first = min(e["ts"] for e in back)
        found["forward"] = (begin, first)
        found["backward"] = (first, last)
    found["optimiser"] = (last, float("inf"))
    return found


def union(spans: Iterable[Span]) -> list[Span]:
    """The same stretch of time as spans that do not overlap, in order."""
    found: list[Span] = []
    for start, stop in sorted(spans):
        if stop <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def uncovered(spans: Sequence[Span], by: Sequence[Span]) -> list[Span]:
    """What of `spans` lies outside `by`; both as `union` gives them."""
    left = []
    for start, stop in spans:
        at = start
        for a, b in by:
            if b <= at or a >= stop:
                continue
            if a > at:
                left.append((at, a))
            at = max(at, b)
        if at < stop:
            left.append((at, stop))
    return left


def _joined(spans: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    for start, stop in spans:
        if found and start - found[-1][1] < _GAP:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def _at(moment: float, begin: float) -> float:
    return max(0.0, moment - begin) / 1e6
