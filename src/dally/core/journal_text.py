"""The journal as text: one JSON object a line, the same bytes for the same run, and back again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Entry, Leaving, Rejected
from dally.core.placement import Placement
from dally.core.reasons import Reason, Token
from dally.core.sharing import Share

VERSION = 1

_KINDS: dict[str, type] = {
    "arrived": ev.Arrived, "finished": ev.Finished, "failed": ev.Failed, "cancelled": ev.Cancelled,
    "yielded": ev.Yielded, "interrupted": ev.Interrupted, "machine-down": ev.MachineDown,
    "machine-up": ev.MachineUp, "lease-ended": ev.LeaseEnded, "measured": ev.Measured, "timer": ev.TimerDue,
    "start": pl.Start, "preempt": pl.Preempt, "migrate": pl.Migrate, "resize": pl.Resize,
    "reshare": pl.Reshare, "extend": pl.Extend, "wake-at": pl.WakeAt, "wait": pl.Wait,
    "rejected": Rejected, "leaving": Leaving,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}
_JOB_DEFAULTS = {name: Job.__dataclass_fields__[name].default for name in Job.__dataclass_fields__}
_TOKENS = {token.label: token for token in Token}
_quote = json.encoder.encode_basestring_ascii


def header(**about: Any) -> str:
    """First line of a journal: what was run on what. No times, no paths: same run, same bytes."""
    return json.dumps({"journal": VERSION, **about}, sort_keys=True) + "\n"


def encode(now: float, entry: Entry) -> str:
    """One line of text. Fields that have their default are left out."""
    kind = type(entry)
    quick = _QUICK.get(kind)
    if quick is not None:
        return quick(now, entry)
    fields: dict[str, Any] = {"t": now, "e": _NAMES[kind]}
    defaults = kind._field_defaults
    for name, value in zip(kind._fields, entry, strict=True):
        if name not in defaults or value != defaults[name]:
            fields[name] = _plain(value)
    return json.dumps(fields, separators=(",", ":")) + "\n"


def decode(line: str, where: str = "journal") -> tuple[float, Entry]:
    """A line back to what it records."""
    try:
        fields: dict[str, Any] = json.loads(line)
        now, kind = float(fields.pop("t")), _KINDS[fields.pop("e")]
        return now, kind(**{name: _rich(name, value) for name, value in fields.items()})
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{where}: not a line of a journal ({error})") from error


def read(lines: Iterable[str], name: str = "journal") -> Iterator[tuple[float, Entry]]:
    """All entries after the header; a last line cut short by a crash is left out."""
    iterator = iter(lines)
    first = next(iterator, "")
    try:
        version = json.loads(first)["journal"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{name}: not a journal, its first line is not a journal's header") from error
    if version != VERSION:
        raise UserError(f"{name}: journal of version {version}; this program reads version {VERSION}")
    for number, line in enumerate(iterator, start=2):
        if line.endswith("\n"):
            yield decode(line, f"{name}, line {number}")


def _plain(value: Any) -> Any:
    if isinstance(value, Placement):
        return value.text()
    if isinstance(value, Reason):
        return [value.token.label, value.sentence, *([value.until] if value.until is not None else [])]
    if isinstance(value, pl.Demand):
        return list(value)
    if isinstance(value, Share):
        return {name: given for name, given in value._asdict().items() if given != Share._field_defaults[name]}
    if isinstance(value, Job):
        return {name: getattr(value, name) for name, default in _JOB_DEFAULTS.items()
                if getattr(value, name) != default}  # fmt: skip
    return value


def _rich(name: str, value: Any) -> Any:
    if name == "placement":
        return Placement.parse(value)
    if name == "share":
        return Share(**value)
    if name == "reason":
        return Reason(_TOKENS[value[0]], *value[1:])
    if name == "who" and isinstance(value, list):
        return pl.Demand(*value)
    if name == "job" and isinstance(value, dict):
        return Job(**value)
    return value


# The entries a run writes for every job, spelled out: ten times as fast as the general way, same text.
def _only_job(name: str) -> Callable[[float, Any], str]:
    return lambda now, entry: f'{{"t":{now!r},"e":"{name}","job":{_quote(entry.job)}}}\n'


def _start(now: float, entry: Any) -> str:
    lease = "" if entry.lease is None else f',"lease":{entry.lease!r}'
    share = "" if entry.share is None else f',"share":{json.dumps(_plain(entry.share), separators=(",", ":"))}'
    return (f'{{"t":{now!r},"e":"start","job":{_quote(entry.job)},"placement":"{entry.placement.text()}"'
            f"{lease}{share}}}\n")  # fmt: skip


def _measured(now: float, entry: Any) -> str:
    delay = "" if entry.delay == 0.0 else f',"delay":{entry.delay!r}'
    beside = "" if entry.neighbours == 1.0 else f',"neighbours":{entry.neighbours!r}'
    return (f'{{"t":{now!r},"e":"measured","job":{_quote(entry.job)},"speed":{entry.speed!r},'
            f'"step_time":{entry.step_time!r},"exposed":{entry.exposed!r}{delay}{beside}}}\n')  # fmt: skip


_QUICK: dict[type, Callable[[float, Any], str]] = {
    ev.Finished: _only_job("finished"), ev.Yielded: _only_job("yielded"), ev.LeaseEnded: _only_job("lease-ended"),
    pl.Preempt: _only_job("preempt"), pl.Start: _start, ev.Measured: _measured,
}  # fmt: skip
