"""What Slurm's commands print, as types: jobs, nodes and reservations of `scontrol -o -d show …`.

Text and not JSON, whose fields change from version to version while these words have not for ten years. A line that
cannot be read is skipped where it is about somebody else, since one odd job must not blind us for all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from dally.catalog.clusters.hostlist import expand
from dally.catalog.clusters.slurm_nodes import parse_gres
from dally.core.errors import UserError
from dally.core.records import dataclass

Counts = Mapping[str | None, int]  # GPUs by type as written; None: of a type that is not named

ACTIVE = frozenset(("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING",
                    "STAGE_OUT"))  # fmt: skip - has GPUs
WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"))
# Everything else is an end: COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, PREEMPTED, BOOT_FAIL, DEADLINE, …

_DETAIL = re.compile(r"\bNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_ASKED = re.compile(r"\bTresPer(Node|Job|Task|Socket)=(\S+)")
_NAME = re.compile(r"\bJobName=(.*?) UserId=([^(\s]*)\((\d+)\)")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job of Slurm, whosesoever it is."""

    id: int
    state: str
    reason: str
    uid: int
    user: str = ""
    name: str = ""
    comment: str = ""
    held: bool = False
    restarts: int = 0
    nodes: tuple[str, ...] = ()  # that it has
    gpus: Mapping[str, Counts] = field(default_factory=dict)  # per node, of a job that has nodes
    wanted: int = 0  # GPUs in all that it asks for
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    partition: str = ""
    time_limit: float | None = None  # seconds; None: none

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @property
    def waiting(self) -> bool:
        return self.state in WAITING

    @property
    def over(self) -> bool:
        return not self.active and not self.waiting


@dataclass(frozen=True, slots=True)
class SlurmNode:
    name: str
    address: str
    state: str  # the base state: IDLE, MIXED, ALLOCATED, DOWN, …
    flags: frozenset[str] = frozenset()  # DRAIN, MAINTENANCE, RESERVED, NOT_RESPONDING, …
    reason: str = ""
    gpus: Counts = field(default_factory=dict)
    used: Counts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reservation:
    name: str
    nodes: tuple[str, ...]
    start: float
    end: float
    flags: frozenset[str] = frozenset()


def read_jobs(text: str) -> list[SlurmJob]:
    return [job for line in text.splitlines() if line.startswith("JobId=") and (job := _job(line)) is not None]


def _job(line: str) -> SlurmJob | None:
    named = _NAME.search(line)
    rest = line[named.end() :] if named else line  # a job's name is its owner's to choose, whatever it looks like
    state = _word(rest, "JobState")
    if state is None or named is None:
        return None
    try:
        nodes = _hosts(_word(rest, "NodeList"))
        gpus = {node: dict(parse_gres(gres)) for hosts, gres in _DETAIL.findall(rest) for node in _hosts(hosts)}
        number = int(line.split(maxsplit=1)[0].partition("=")[2])
        return SlurmJob(
            number, state, _word(rest, "Reason") or "", int(named[3]), named[2], named[1],
            _word(rest, "Comment") or "", held=state == "PENDING" and _word(rest, "Priority") == "0",
            restarts=int(_word(rest, "Restarts") or 0), nodes=nodes, gpus=gpus,
            wanted=sum(sum(each.values()) for each in gpus.values()) or _wanted(rest),
            submitted=_moment(_word(rest, "SubmitTime")), started=_moment(_word(rest, "StartTime")),
            ended=_moment(_word(rest, "EndTime")), partition=_word(rest, "Partition") or "",
            time_limit=seconds(_word(rest, "TimeLimit")),
        )  # fmt: skip
    except (ValueError, UserError):
        return None


def _wanted(rest: str) -> int:
    """GPUs in all, of a job that has none yet."""
    def number(key: str) -> int:
        found = re.match(r"\d+", _word(rest, key) or "")
        return int(found[0]) if found else 1

    times = {"Job": 1, "Node": number("NumNodes"), "Task": number("NumTasks"), "Socket": number("NumNodes")}
    for per, asked in _ASKED.findall(rest):
        gres = ",".join(part.removeprefix("gres:").removeprefix("gres/") for part in asked.split(","))
        if found := sum(count for _, count in parse_gres(gres)):
            return found * times[per]
    return 0


def read_nodes(text: str) -> list[SlurmNode]:
    found: list[SlurmNode] = []
    for line in text.splitlines():
        if not line.startswith("NodeName="):
            continue
        name, state = _word(line, "NodeName"), _word(line, "State")
        if name is None or state is None:
            continue
        base, *flags = state.split("+")
        if base.endswith("*"):
            base, flags = base[:-1], [*flags, "NOT_RESPONDING"]
        flags = [flag.rstrip("*") for flag in flags] + ["NOT_RESPONDING" for flag in flags if flag.endswith("*")]
        reason = re.search(r"\bReason=(.*)$", line)
        found.append(SlurmNode(name, _word(line, "NodeAddr") or name, base, frozenset(flags),
                               reason[1].strip() if reason else "", dict(parse_gres(_word(line, "Gres") or "")),
                               dict(parse_gres(_word(line, "GresUsed") or ""))))  # fmt: skip
    return found


def read_reservations(text: str) -> list[Reservation]:
    found: list[Reservation] = []
    for line in text.splitlines():
        name, start, end = _word(line, "ReservationName"), _moment(_word(line, "StartTime")), \
            _moment(_word(line, "EndTime"))  # fmt: skip
        if name is None or start is None or end is None:
            continue
        flags = frozenset((_word(line, "Flags") or "").split(","))
        found.append(Reservation(name, _hosts(_word(line, "Nodes")), start, end, flags))
    return found


def topology_conf(text: str) -> str:
    """`scontrol show topology` as it would stand in topology.conf: a switch of switches names no nodes."""
    def lines() -> Iterator[str]:
        for line in text.splitlines():
            switch, nodes, switches = (_word(line, key) for key in ("SwitchName", "Nodes", "Switches"))
            block = _word(line, "BlockName")
            if block is not None and nodes is not None:
                yield f"BlockName={block} Nodes={nodes}"
            elif switch is not None and (switches or nodes):
                yield f"SwitchName={switch} " + (f"Switches={switches}" if switches else f"Nodes={nodes}")

    return "\n".join(lines())


def seconds(text: str | None) -> float | None:
    """A time limit: [days-]hours:minutes:seconds; None for none."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text or "")
    if found is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def _word(line: str, key: str) -> str | None:
    found = re.search(rf"(?:^|\s){re.escape(key)}=(\S*)", line)
    return found[1] if found and found[1] not in ("", "(null)", "N/A") else None


def _hosts(text: str | None) -> tuple[str, ...]:
    return tuple(expand(text)) if text else ()


def _moment(text: str | None) -> float | None:
    return float(text) if text and text.isdigit() else None  # SLURM_TIME_FORMAT=%s (client.py)
