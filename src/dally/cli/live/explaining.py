"""Why a job waits and when it may start, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dally.cli.live.common import ago, clock, where
from dally.core.units import show_time


def explain_lines(found: dict[str, Any]) -> Iterator[str]:
    """State, reason, evidence, who is ahead, when, and what would make it sooner."""
    name = f" ({found['name']})" if found.get("name") else ""
    yield f"job {found['id']}{name} is {found['state']}" + (
        f" on {where(found['machines'])}" if found.get("machines") else "")  # fmt: skip
    if found.get("reason") or found.get("why"):
        yield f"{found.get('reason') or 'why'}: {found.get('why') or ''}".rstrip(": ")
    if found.get("submitted"):
        yield f"submitted {ago(found['submitted'])} ago"
    if found.get("evidence"):
        yield f"evidence: {_flat(found['evidence'])}"
    if found.get("until"):
        yield f"this reason ends by itself at {clock(found['until'])}"
    ahead = found.get("ahead")
    if ahead:
        shown = ", ".join(_who(each) for each in ahead[:10])
        yield f"ahead of it: {shown}" + (f" and {len(ahead) - 10} more" if len(ahead) > 10 else "")
    yield from estimate_line(found.get("estimate"))
    yield from sooner_lines(found.get("sooner") or found.get("alternatives"))


def estimate_line(estimate: Any) -> Iterator[str]:
    if not estimate:
        return
    if not isinstance(estimate, dict):
        yield f"estimated start: {estimate}"
        return
    low, high, likely = (estimate.get(name) for name in ("low", "high", "median"))
    if low == high == 0:
        yield "estimated start: at once"
    elif low is not None and high is not None:
        middle = f", most likely {_in(likely)}" if likely is not None else ""
        yield f"estimated start: between {_in(low)} and {_in(high)} from now{middle}"
    elif estimate.get("why"):
        yield f"no estimate: {estimate['why']}"


def sooner_lines(ways: Any, title: str = "it would start sooner:") -> Iterator[str]:
    if ways:
        yield title
    for way in ways or ():
        if not isinstance(way, dict):
            yield f"  {way}"
            continue
        what = way.get("what") or way.get("change") or _flat(way)
        line = next(estimate_line(way.get("estimate")), "").replace("estimated start: ", "")
        yield f"  {_flat(what)}" + (f": {line}" if line else "")


def _in(seconds: Any) -> str:
    return show_time(max(0.0, float(seconds))) if isinstance(seconds, (int, float)) else str(seconds)


def _who(each: Any) -> str:
    if not isinstance(each, dict):
        return str(each)
    return f"{each.get('id')}" + (f" ({each['gpus']} GPUs)" if each.get("gpus") else "")


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_flat(each)}" for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_flat, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
