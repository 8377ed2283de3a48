"""When machines were down, from a file: Dally's own list, or what `sacctmgr -P show event` prints of nodes."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

from dally.core.errors import UserError
from dally.core.topology import Topology
from dally.core.units import seconds
from dally.simulator.faults import Outages
from dally.traces.source import Source, open_source
from dally.traces.times import known, moment

_NAME, _FROM, _UNTIL = ("nodename", "node"), ("timestart", "start"), ("timeend", "end")
_ASK = "sacctmgr -P show event format=NodeName,TimeStart,TimeEnd,State,Reason"


def read_outages(path: Path, topology: Topology, origin: str | None = None, notes: list[str] | None = None) -> Outages:
    """`origin`: when second 0 of the trace was, for files with dates; what is left out of those is said in `notes`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a list of outages: {error}") from error
    first = text.lstrip("\ufeff \n").partition("\n")[0].lower().replace(" ", "")
    if "|" in first and any(name in first.split("|") for name in _FROM):
        return _events(open_source(path), topology, origin, [] if notes is None else notes)
    rows = list(csv.DictReader(text.splitlines()))
    if not rows or not {"machine", "down"} <= set(rows[0]):
        raise UserError(f"{path}: a list of outages has the columns machine,down,up and at least one row, or is what"
                        f" {_ASK} prints")  # fmt: skip
    found: Outages = {}
    for line, row in enumerate(rows, start=2):
        machine = topology.machine_by_name.get(row["machine"] or "")
        if machine is None:
            raise UserError(f"{path}, line {line}, machine: the cluster has no machine {row['machine']!r}")
        try:
            down = seconds(row["down"])
            up = seconds(row["up"]) if row.get("up") else None
        except UserError as error:
            raise UserError(f"{path}, line {line}: {error}") from error
        if down < 0:
            raise UserError(f"{path}, line {line}, down: times count from the trace's origin and are not negative")
        if up is not None and up <= down:
            raise UserError(f"{path}, line {line}, up: the machine comes back before it goes down")
        found.setdefault(machine, []).append((down, up))
    for machine, spans in found.items():
        spans.sort()
        for (_, up), (down, _) in itertools.pairwise(spans):
            if up is None or down < up:
                name = topology.machines[machine].name
                raise UserError(f"{path}: machine {name} goes down at {down:g} s while it is still down")
    return found


def _events(source: Source, topology: Topology, origin: str | None, notes: list[str]) -> Outages:
    """Slurm's own record. A node with several types of GPU is several machines, NODE:TYPE."""
    zero = moment(origin) if origin is not None else None
    if zero is None:
        raise UserError(f"{source.shown} has dates, and the trace does not say on what date it begins")
    table = source.table()
    columns = {name.replace(" ", ""): at for name, at in table.columns.items()}
    name, since, until = (next((columns[each] for each in names if each in columns), -1)
                          for names in (_NAME, _FROM, _UNTIL))  # fmt: skip
    state = columns.get("state", -1)
    if min(name, since, until, state) < 0:
        raise UserError(f"{source.shown} lacks some of the columns of outages: ask for {_ASK}")
    machines: dict[str, list[int]] = {}
    for number, machine in enumerate(topology.machines):
        bare = machine.name.rpartition("/")[2]
        machines.setdefault(bare, []).append(number)
        if ":" in bare:
            machines.setdefault(bare.partition(":")[0], []).append(number)
    spans: dict[int, list[tuple[float, float | None]]] = {}
    drained = elsewhere = before = unreadable = backwards = 0
    for _, fields in table.rows():
        node = known(fields[name]) if name < len(fields) else None
        if node is None:
            continue  # the cluster itself: its processors changed, its controller came up
        if len(fields) <= max(since, until, state) or (begun := moment(fields[since])) is None:
            unreadable += 1
            continue
        ended = moment(fields[until])
        if ended is None and not _never(fields[until]):
            unreadable += 1
            continue
        word = fields[state].upper()
        if "DRAIN" in word and "DOWN" not in word:
            drained += 1
        elif node not in machines:
            elsewhere += 1
        elif ended is not None and ended[0] <= zero[0]:
            before += 1
        elif ended is not None and ended[0] <= begun[0]:
            backwards += 1
        else:
            up = None if ended is None else ended[0] - zero[0]
            for number in machines[node]:
                spans.setdefault(number, []).append((max(0.0, begun[0] - zero[0]), up))
    left_out = {"of drained nodes, which end no job": drained, "of nodes that the cluster does not have": elsewhere,
                "of a time before the trace begins": before, "without a date": unreadable,
                "that end no later than they begin": backwards}  # fmt: skip
    notes += [f"outages: left out: {n} event{'s' * (n != 1)} {what}" for what, n in left_out.items() if n]
    return {number: _joined(each) for number, each in spans.items()}


def _never(text: str) -> bool:
    """A word for unknown, or a clock that nobody set; anything else that is no date is a mistake in the file."""
    return known(text) is None or text.strip().startswith(("0", "1969", "1970"))


def _joined(spans: list[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """In order of time, those that overlap or meet as one: a node that is down is reported again for another reason."""
    joined: list[tuple[float, float | None]] = []
    for down, up in sorted(spans, key=lambda span: span[0]):
        if joined and (joined[-1][1] is None or down <= joined[-1][1]):
            last = joined[-1][1]
            joined[-1] = (joined[-1][0], None if last is None or up is None else max(last, up))
        else:
            joined.append((down, up))
    return joined
