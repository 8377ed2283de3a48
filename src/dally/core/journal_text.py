"""The journal as text: one JSON object a line, an instant each, the same bytes for the same run, and back again.

The first line says what was run on what, the cluster by the names of its machines, so that the rest can be read and
executed again from the file alone. Machines go by name everywhere: a cluster that grows renumbers no history.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from dally.core import events as ev
from dally.core import journal as jl
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Entry, Instant
from dally.core.placement import Placement
from dally.core.queues import Queue
from dally.core.reasons import Reason, Token
from dally.core.sharing import Share
from dally.core.topology import Topology, changed
from dally.core.topology_text import spec_from_plain, spec_to_plain, topology_from_plain, topology_to_plain

VERSION = 2

_KINDS: dict[str, type] = {
    "arrived": ev.Arrived, "finished": ev.Finished, "failed": ev.Failed, "cancelled": ev.Cancelled,
    "yielded": ev.Yielded, "start-failed": ev.StartFailed, "interrupted": ev.Interrupted,
    "held": ev.Held, "released": ev.Released,
    "contact-lost": ev.ContactLost, "contact-restored": ev.ContactRestored, "machine-down": ev.MachineDown,
    "machine-drained": ev.MachineDrained, "machine-up": ev.MachineUp, "gpus-withheld": ev.GpusWithheld,
    "machines": ev.MachinesChanged,
    "lease-ended": ev.LeaseEnded, "started": ev.Started, "measured": ev.Measured, "timer": ev.TimerDue,
    "start": pl.Start, "preempt": pl.Preempt, "migrate": pl.Migrate, "resize": pl.Resize,
    "reshare": pl.Reshare, "extend": pl.Extend, "wake-at": pl.WakeAt, "wait": pl.Wait, "stop": pl.Stop,
    "rejected": jl.Rejected, "leaving": jl.Leaving, "odd": jl.Odd, "refused": jl.Refused, "in-charge": jl.InCharge,
    "queues": ev.QueuesSet, "let-in": jl.LetIn,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}
_JOB_DEFAULTS = {name: Job.__dataclass_fields__[name].default for name in Job.__dataclass_fields__}
_TOKENS = {token.label: token for token in Token}
_FOR_EVER = "inf"  # of a wait
_quote = json.encoder.encode_basestring_ascii
_dense = json.JSONEncoder(separators=(",", ":")).encode


class JournalText:
    """Instants to lines and back, on the cluster as it is at that point of the journal."""

    def __init__(self, topology: Topology) -> None:
        self._lay_out(topology)
        # The entries a run writes for every job, spelled out: ten times as fast as the general way, same text.
        self._quick: dict[type, Callable[[Any], str]] = {
            ev.Finished: _only_job("finished"), ev.Yielded: _only_job("yielded"), ev.TimerDue: _timer,
            ev.LeaseEnded: _only_job("lease-ended"), pl.Preempt: _only_job("preempt"), pl.Start: self._start,
            ev.Measured: _measured,
        }  # fmt: skip

    def _lay_out(self, topology: Topology) -> None:
        self.topology = topology
        self._quoted = [_quote(name) for name in topology.machine_names]
        self._number = {name: number for number, name in enumerate(topology.machine_names)}

    def header(self, **about: Any) -> str:
        """First line of a journal. No times, no paths: same run, same bytes."""
        about = {"journal": VERSION, **about, "topology": topology_to_plain(self.topology)}
        return json.dumps(about, sort_keys=True) + "\n"

    def encode(self, instant: Instant) -> str:
        """One line of text. Fields that have their default are left out."""
        happened = ",".join(self._entry(entry) for entry in instant.happened)
        if any(type(entry) is ev.MachinesChanged for entry in instant.happened):
            self._follow(instant)
        line = f'{{"t":{instant.time!r},"happened":[{happened}]'
        if instant.decided is not None:
            line += f',"decided":[{",".join(self._entry(entry) for entry in instant.decided)}]'
        return line + "}\n"

    def decode(self, line: str, where: str = "journal") -> Instant:
        """A line back to what it records."""
        try:
            fields: dict[str, Any] = json.loads(line)
            happened = tuple(self._read(entry) for entry in fields["happened"])
            instant = Instant(float(fields["t"]), happened, None)
            if any(type(entry) is ev.MachinesChanged for entry in happened):
                self._follow(instant)
            if "decided" not in fields:
                return instant
            return instant._replace(decided=tuple(self._read(entry) for entry in fields["decided"]))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(f"{where}: not a line of a journal ({error})") from error

    def _follow(self, instant: Instant) -> None:
        """What comes after machines came or went is written with the new ones."""
        for entry in instant.happened:
            if type(entry) is ev.MachinesChanged:
                self._lay_out(changed(self.topology, entry.added, entry.removed))

    # --- entries --------------------------------------------------------------------------------------------

    def _entry(self, entry: Entry) -> str:
        kind = type(entry)
        quick = self._quick.get(kind)
        if quick is not None:
            return quick(entry)
        return _dense(self._fields(entry))

    def _fields(self, entry: Entry) -> dict[str, Any]:
        kind = type(entry)
        fields: dict[str, Any] = {"e": _NAMES[kind]}
        defaults = kind._field_defaults
        for name, value in zip(kind._fields, entry, strict=True):
            if name not in defaults or value != defaults[name]:
                fields[name] = self.plain(value)
        return fields

    def _read(self, fields: dict[str, Any]) -> Any:
        kind = _KINDS[fields.pop("e")]
        return kind(**{name: self.rich(name, value) for name, value in fields.items()})

    def plain(self, value: Any) -> Any:
        """What JSON can hold of a field or an entry."""
        if isinstance(value, Placement):
            names = self.topology.machine_names
            return {names[machine]: f"{mask:x}" for machine, mask in value.slices}
        if isinstance(value, Reason):
            plain: list[Any] = [value.token.label, value.sentence]
            if value.until is not None or value.evidence:
                plain.append(value.until)
            return [*plain, list(value.evidence)] if value.evidence else plain
        if isinstance(value, pl.Demand):
            return list(map(_plain_number, value.short))
        if isinstance(value, Share):
            return {name: given for name, given in value._asdict().items() if given != Share._field_defaults[name]}
        if isinstance(value, Job):
            return {name: _plain_number(given) for name, default in _JOB_DEFAULTS.items()
                    if (given := getattr(value, name)) != default}  # fmt: skip
        if isinstance(value, Queue):
            return {name: given for name, given in value._asdict().items() if given != Queue._field_defaults.get(name)}
        if isinstance(value, tuple) and value and isinstance(value[0], Queue):
            return [self.plain(queue) for queue in value]
        if isinstance(value, tuple) and type(value) in _NAMES:
            return self._fields(cast(Entry, value))  # the event of an odd one
        if isinstance(value, tuple):
            return [item if isinstance(item, str) else spec_to_plain(item) for item in value]
        return value

    def rich(self, name: str, value: Any) -> Any:
        """What a field of this name stands for."""
        if name == "placement":
            return Placement.of((self._number[machine], int(mask, 16)) for machine, mask in value.items())
        if name == "share":
            return Share(**value)
        if name == "reason":
            token, sentence, *rest = value
            return Reason(_TOKENS[token], sentence, rest[0] if rest else None,
                          tuple(rest[1]) if len(rest) > 1 else ())  # fmt: skip
        if name == "who" and isinstance(value, list):
            return pl.demand_of(*value[:4], *(None if each is None else float(each) for each in value[4:5]), *value[5:])
        if name == "job" and isinstance(value, dict):
            return Job(**(value if value.get("wait") != _FOR_EVER else {**value, "wait": math.inf}))
        if name == "event":
            return self._read(dict(value))  # a snapshot may be loaded more than once
        if name == "queues":
            return tuple(Queue(**queue) for queue in value)
        if name == "removed":
            return tuple(value)
        if name == "added":
            return tuple(spec_from_plain(spec) for spec in value)
        return value

    def _start(self, entry: Any) -> str:
        quoted = self._quoted
        where = ",".join(f'{quoted[machine]}:"{mask:x}"' for machine, mask in entry.placement.slices)
        lease = "" if entry.lease is None else f',"lease":{entry.lease!r}'
        share = "" if entry.share is None else f',"share":{_dense(self.plain(entry.share))}'
        return f'{{"e":"start","job":{_quote(entry.job)},"placement":{{{where}}}{lease}{share}}}'


def read_header(line: str, name: str = "journal") -> dict[str, Any]:
    """The first line of a journal; refused in a sentence where it is none, or of another version."""
    try:
        about: dict[str, Any] = json.loads(line)
        version = about["journal"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{name}: not a journal, its first line is not a journal's header") from error
    if version != VERSION:
        raise UserError(f"{name}: journal of version {version}; this program reads version {VERSION}. "
                        "Run the experiment again to have it in the new form")  # fmt: skip
    return about


def text_for(about: dict[str, Any], name: str = "journal") -> JournalText:
    """How the lines after this header are read."""
    try:
        return JournalText(topology_from_plain(about["topology"]))
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{name}: its header does not say what the cluster was ({error})") from error


def read(lines: Iterable[str], name: str = "journal") -> Iterator[Instant]:
    """All instants after the header; a last line cut short by a crash is left out."""
    iterator = iter(lines)
    text = text_for(read_header(next(iterator, ""), name), name)
    for number, line in enumerate(iterator, start=2):
        if line.endswith("\n"):
            yield text.decode(line, f"{name}, line {number}")


def encode_all(topology: Topology, instants: Sequence[Instant], **about: Any) -> str:
    """A whole journal, as a file holds it."""
    text = JournalText(topology)
    return text.header(**about) + "".join(map(text.encode, instants))


def _plain_number(value: Any) -> Any:
    """There is no ∞ in JSON."""
    return _FOR_EVER if value == math.inf else value


def _only_job(name: str) -> Callable[[Any], str]:
    return lambda entry: f'{{"e":"{name}","job":{_quote(entry.job)}}}'


def _timer(entry: Any) -> str:
    return '{"e":"timer"}'


def _measured(entry: Any) -> str:
    delay = "" if entry.delay == 0.0 else f',"delay":{entry.delay!r}'
    beside = "" if entry.neighbours == 1.0 else f',"neighbours":{entry.neighbours!r}'
    return (f'{{"e":"measured","job":{_quote(entry.job)},"speed":{entry.speed!r},'
            f'"step_time":{entry.step_time!r},"exposed":{entry.exposed!r}{delay}{beside}}}')  # fmt: skip
