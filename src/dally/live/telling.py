"""What `explain` and dry runs found, as somebody would say it. Imports nothing heavy: commands use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dally.core.reasons import Token
from dally.core.units import show_time


def explain_text(found: dict[str, Any]) -> str:
    """What `explain` found, as somebody would say it."""
    return "\n".join(_lines(found))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield _headline(found)
    if found["machines"]:
        speed = f", at {found['speed']:.0%} of its reference speed" if found["speed"] not in (None, 1.0) else ""
        yield _line("Where", f"{_machines(found['machines'])}, within one {found['level']}{speed}")
    if found.get("step") is not None:
        yield _line("Step", step_text(found["step"]))
    if found["why"] is not None:
        yield _line("Why", f"{found['why']} [{found['reason']}]")
    if found.get("until_in") is not None:
        yield _line("Until", f"this reason ends by itself in {show_time(found['until_in'])}")
    if found["ahead"] is not None:
        yield _line("Ahead", _ahead(found["ahead"]))
    if found["free"] is not None:
        yield _line("Free", found["free"]["why"])
    if found["estimate"] is not None:
        yield _line("Start", estimate_text(found["estimate"]))
        yield _line("", f"({found['estimate']['basis']})")
    for number, other in enumerate(found["alternatives"]):
        yield _line("Sooner" if number == 0 else "", f"{other['change']}: {estimate_text(other['estimate'])}")
    if found["estimate"] is not None and found["estimate"]["median"] and not found["alternatives"]:
        yield _line("Sooner", "nothing that was tried would start it sooner: submitted anew it begins at the end again")


def step_text(step: dict[str, Any]) -> str:
    """What a step takes and what it should take."""
    measured, predicted = step["measured"], step["predicted"]
    said = "not measured yet" if measured is None else f"{show_time(measured)} measured"
    if predicted is None:
        return said
    off = "" if step["error"] is None else f" ({100 * step['error']:+.1f} %)"
    parts = [f"compute {show_time(step['compute'])}"]
    parts += [f"{name} {show_time(step[name])}" for name in ("exchange", "data") if step[name] > 0]
    return f"{said}, {show_time(predicted)} predicted{off}: {', '.join(parts)}"


def _line(label: str, text: str) -> str:
    return f"  {label:<7} {text}"


def _headline(found: dict[str, Any]) -> str:
    who = ", ".join(str(part) for part in (found["name"], found["user"]) if part)
    kind = f" {found['gpu_type']}" if found["gpu_type"] else ""
    gpus = f"{found['gpus']}{kind} GPU{'s' if found['gpus'] != 1 else ''}"
    said = {"waiting": f"waits for {gpus}", "running": f"runs on {gpus}", "starting": f"starts on {gpus}",
            "yielding": f"was preempted, saves its checkpoint and wants {gpus} again",
            "lost": f"is out of contact on {gpus}", "held": f"is held and wants {gpus}"}  # fmt: skip
    state = said.get(found["state"], f"is {found['state']}")
    if found["reason"] == Token.WAITING_FOR_QUOTA.label:
        state = f"waits until its queue may have {gpus} more"
    lasts = "" if found["lasts"] is None else f", for {show_time(found['lasts'])} so far"
    often = found["preemptions"]
    before = f"; preempted {often} time{'s' if often > 1 else ''}" if often else ""
    return f"Job {found['id']}{f' ({who})' if who else ''} {state}{lasts}{before}."


def _machines(machines: dict[str, list[int]]) -> str:
    names = [f"{name} ({len(gpus)} GPU{'s' if len(gpus) > 1 else ''})" for name, gpus in machines.items()]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more machines" if len(names) > 4 else "")


def _ahead(ahead: dict[str, Any]) -> str:
    if not ahead["jobs"]:
        return "nobody: it is the first in the queue" + (f" of {ahead['of']:,}" if ahead["of"] > 1 else "")
    named = ", ".join(f"{job['id']} ({', '.join(str(part) for part in (job['user'], job['gpus']) if part)})"
                      for job in ahead["first"])  # fmt: skip
    more = ahead["jobs"] - len(ahead["first"])
    jobs = "1 job comes" if ahead["jobs"] == 1 else f"{ahead['jobs']:,} jobs come"
    return f"{jobs} first and want {ahead['gpus']:,} GPUs: {named}" + (f" and {more:,} more" if more else "")


def estimate_text(estimate: dict[str, Any]) -> str:
    """A range for people; or what can be said where there is none."""
    low, median, high = estimate["low"], estimate["median"], estimate["high"]
    if high == 0.0:
        return "at once"
    if median is None:
        return "nobody can say" if low is None else f"not in the next {show_time(low)}; further was not looked"
    if low == high:
        return f"in about {show_time(median)}" + ("" if estimate["samples"] > 1 else ", in the one future looked at")
    first = "at once" if low == 0.0 else f"in {show_time(low or 0.0)}"
    last = "much later" if high is None else show_time(high)
    return f"{first} to {last}, about {show_time(median)}"


def dry_run_text(answer: dict[str, Any]) -> str:
    """What would become of a job that is not submitted."""
    starts = {"now": "It would start at once", "later": "It would wait", "never": "It can never start here"}
    place = f" on {_machines(answer['machines'])}" if answer["machines"] else ""
    why = f": {answer['why']}" if answer["why"] else ""
    lines = [f"{starts[answer['starts']]}{place}{why}."]
    if answer["preempts"]:
        lines.append(_line("Preempts", ", ".join(answer["preempts"])))
    if answer["estimate"] is not None:
        lines.append(_line("Start", estimate_text(answer["estimate"])))
        lines.append(_line("", f"({answer['estimate']['basis']})"))
    label = "Fits as" if answer["starts"] == "never" else "Sooner"
    for number, other in enumerate(answer["alternatives"]):
        lines.append(_line(label if number == 0 else "", f"{other['change']}: {estimate_text(other['estimate'])}"))
    return "\n".join(lines)
