"""A job as its owner writes it (docs/formats/job.md), checked field by field, and what the rest makes of it."""

from __future__ import annotations

import re
import shlex
import signal as signals
import time
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.topology import Topology
from dally.core.units import seconds
from dally.live.engine import Program
from dally.live.plain_errors import sentence_of, shown

MOST_GPUS = 1_000_000
MOST_MEMBERS = 10_000  # of an array
LONGEST_WORD = 128 * 1024 - 1  # bytes of one argument or variable that the system passes on
SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "QUIT", "ALRM")
RESERVED = "DALLY_"  # what the service tells a job; nobody else sets it
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_JOB_ID = re.compile(r"^[0-9]{1,18}(_[0-9]{1,9})?$")
_RANGE = re.compile(r"^(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?$")
_PART = "[0-9]+(-[0-9]+(:[0-9]+)?)?"  # of an array
_TIMES: list[dict[str, Any]] = [{"type": "number", "exclusiveMinimum": 0, "maximum": 1e10},
                                {"type": "string", "pattern": "^[1-9][0-9]{0,5}(s|m|h|d)$"}]  # fmt: skip
_TIME_SCHEMA = {"anyOf": _TIMES, "examples": ["90s", "10m", 3600]}


def _time(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"it must be a time such as 90s, 10m or 1.5h, not {shown(value)}")
    try:
        found = seconds(value)
    except (UserError, OverflowError) as error:
        raise ValueError(str(error)) from None
    if found < 0:
        raise ValueError(f"{value!r} is negative")
    if found > 1e10:
        raise ValueError(f"{value!r} is more than three centuries")
    return found


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("it must be above 0")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError(f"{shown(value)} has characters that cannot be printed")
    return value


def _passable(value: str) -> str:
    """What the system can hand to a process: no zero byte, not too long, text that can be encoded."""
    if "\0" in value:
        raise ValueError("it has a zero byte, which no program can be given")
    try:
        if len(value.encode()) > LONGEST_WORD:
            raise ValueError(f"it is longer than {LONGEST_WORD} bytes, the most the system passes on")
    except UnicodeEncodeError:
        raise ValueError("it is not valid text") from None
    return value


def _words(value: Any) -> Any:
    """A command as one text is split at blanks, with quotes as a shell reads them; no shell sees it."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise ValueError(f"{shown(value)} cannot be split into words: {error}") from None
    return value


def _variables(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for name in value:
        if not isinstance(name, str) or not _VARIABLE.match(name):
            raise ValueError(f"{shown(name)} is not the name of a variable")
        if name.startswith(RESERVED):
            raise ValueError(f"{name}: names that begin with {RESERVED} are the service's own")
    numbers = {name: str(each) for name, each in value.items()
               if isinstance(each, (int, float)) and not isinstance(each, bool)}  # fmt: skip
    return {**value, **numbers}


def _id(value: Any) -> Any:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _JOB_ID.match(text):
        raise ValueError(f"{shown(value)} is not the id of a job")
    return text


def _signal(value: Any) -> Any:
    name = value.upper().removeprefix("SIG") if isinstance(value, str) else value
    if name not in SIGNALS or not hasattr(signals, f"SIG{name}"):
        raise ValueError(f"it must be one of {', '.join(SIGNALS)}, not {shown(value)}")
    return name


def _begin(value: Any) -> Any:
    """Unix seconds; `10m` is from now, a date is in local time unless it says otherwise."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not 1e9 <= value <= 1e11:
            raise ValueError(f"write 10m (from now), a date such as 2026-11-20T08:00, or Unix seconds, not {value!r}")
        return float(value)
    if not isinstance(value, str):
        raise ValueError(f"write 10m (from now) or a date such as 2026-11-20T08:00, not {shown(value)}")
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return time.time() + _time(value)
    except ValueError:
        raise ValueError(f"write 10m (from now) or a date such as 2026-11-20T08:00, not {shown(value)}") from None


def _array(value: str) -> str:
    members(value)
    return value


def _wait(value: Any) -> Any:
    return value if value in ("auto", "none", "forever") else _time(value)


Seconds = Annotated[float, BeforeValidator(_time), WithJsonSchema(_TIME_SCHEMA)]
Duration = Annotated[float, BeforeValidator(_time), AfterValidator(_positive), WithJsonSchema(_TIME_SCHEMA)]
Label = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Word = Annotated[str, AfterValidator(_passable)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$")]
PathText = Annotated[str, Field(min_length=1, max_length=4000), AfterValidator(_passable)]
JobId = Annotated[str, BeforeValidator(_id), WithJsonSchema({"type": "string", "pattern": _JOB_ID.pattern})]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class PlacementSpec(_Part):
    """Levels go by the names the topology has: machine, rack, …"""

    required: Label | None = None  # all GPUs in one domain of this level, or the job waits
    preferred: Label | None = None  # … worth waiting for, for so long
    wait: Annotated[
        Literal["auto", "none", "forever"] | float, BeforeValidator(_wait),
        WithJsonSchema({"anyOf": [{"enum": ["auto", "none", "forever"]}, *_TIMES]}),
    ] = "auto"  # fmt: skip

    @model_validator(mode="after")
    def _something(self) -> PlacementSpec:
        if self.required is None and self.preferred is None:
            raise ValueError("it needs required or preferred, with the name of a level")
        if self.preferred is None and self.wait != "auto":
            raise ValueError("wait goes with preferred: for a required level a job waits as long as it takes")
        return self

    @property
    def seconds(self) -> float | None:
        """As the scheduler counts: None is its own choice."""
        if isinstance(self.wait, float):
            return self.wait
        return {"auto": None, "none": 0.0, "forever": float("inf")}[self.wait]


class CheckpointSpec(_Part):
    """How the job is asked to save and leave. A job that says nothing of it is never preempted."""

    signal: Annotated[str, BeforeValidator(_signal), WithJsonSchema({"enum": list(SIGNALS)})] = "TERM"
    grace: Seconds = 10.0
    directory: PathText | None = None


class JobSpec(_Part):
    """Everything but the command and the number of GPUs may be left out."""

    model_config = ConfigDict(json_schema_extra={
        "anyOf": [{"required": ["gpus"]}, {"required": ["nodes", "gpus_per_node"]}]})  # fmt: skip

    command: Annotated[
        list[Word], BeforeValidator(_words), Field(min_length=1, max_length=10_000),
        WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
                                  {"type": "string", "minLength": 1}]}),
    ]  # fmt: skip
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)] | None = None
    nodes: Annotated[int, Field(ge=1, le=MOST_GPUS)] | None = None
    gpus_per_node: Annotated[int, Field(ge=1, le=4096)] | None = None
    name: Label | None = None
    user: Name | None = None
    queue: Name | None = None
    priority: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)] = 0
    gpu_type: Label | None = None
    placement: PlacementSpec | None = None
    model: Label | None = None
    profile: PathText | None = None
    duration: Duration | None = None
    checkpoint: CheckpointSpec | None = None
    preemptible: bool | None = None
    requeue_on: Annotated[list[Annotated[int, Field(ge=1, le=255)]], Field(max_length=255)] = []
    retries: Annotated[int, Field(ge=0, le=1000)] | None = None
    time_limit: Duration | None = None
    environment: Annotated[dict[str, Word], BeforeValidator(_variables), Field(max_length=2000)] = {}
    directory: PathText | None = None
    array: Annotated[
        str, Field(max_length=2000), AfterValidator(_array),
        WithJsonSchema({"type": "string", "pattern": f"^{_PART}(,{_PART})*(%[1-9][0-9]{{0,8}})?$",
                        "examples": ["0-9", "1,3,5", "0-9%2"]}),
    ] | None = None  # fmt: skip
    after: Annotated[list[JobId], Field(max_length=10_000)] = []
    after_ok: Annotated[list[JobId], Field(max_length=10_000)] = []
    begin: Annotated[
        float, BeforeValidator(_begin), WithJsonSchema({"anyOf": [_TIMES[1], {"type": "string", "format": "date-time"},
                                                          {"type": "number", "minimum": 1e9, "maximum": 1e11}]}),
    ] | None = None  # fmt: skip
    processes: Literal["machine", "gpu"] = "machine"
    hold: bool = False
    output: PathText | None = None

    @model_validator(mode="after")
    def _whole(self) -> JobSpec:
        if not self.command[0]:
            raise ValueError("command: its first word is empty")
        if self.gpus is not None and (self.nodes is not None or self.gpus_per_node is not None):
            raise ValueError("give either gpus or nodes and gpus_per_node")
        if self.gpus is None and (self.nodes is None or self.gpus_per_node is None):
            raise ValueError("gpus: it is missing (or nodes together with gpus_per_node)")
        if self.total_gpus > MOST_GPUS:
            raise ValueError(f"gpus: {self.total_gpus} are more than {MOST_GPUS}")
        if self.model is not None and self.profile is not None:
            raise ValueError("give either model or profile")
        if self.preemptible is False and self.checkpoint is not None:
            raise ValueError("preemptible: a job that is never preempted needs no checkpoint; leave one of them out")
        return self

    @property
    def total_gpus(self) -> int:
        return self.gpus if self.gpus is not None else (self.nodes or 0) * (self.gpus_per_node or 0)

    @property
    def may_be_preempted(self) -> bool:
        return self.preemptible if self.preemptible is not None else self.checkpoint is not None

    @property
    def at_once(self) -> int | None:
        """How many of its array may be there at a time; None: as many as it has."""
        _, percent, most = (self.array or "").partition("%")
        return int(most) if percent else None

    @property
    def required_level(self) -> str | None:
        """One node is one machine; several say only how many GPUs there are."""
        if self.placement is not None and self.placement.required is not None:
            return self.placement.required
        return "machine" if self.nodes == 1 else None

    @property
    def title(self) -> str:
        """What people call it."""
        return self.name or self.command[0].rpartition("/")[2] or self.command[0]

    def plain(self) -> dict[str, Any]:
        """As it is stored and sent: only what was said. `read_spec` makes the same job of it."""
        return self.model_dump(mode="json", exclude_defaults=True)


def read_spec(data: Any) -> JobSpec:
    """Plain data to a job, or one sentence that names the field."""
    try:
        return JobSpec.model_validate(data)
    except ValidationError as error:
        raise UserError(sentence_of(error, JobSpec)) from None


# --- arrays ------------------------------------------------------------------------------------------------------


def members(text: str) -> tuple[int, ...]:
    """`0-9`, `1,3,5-7`, `0-100:10`, `0-9%2` → the numbers, in order."""
    numbers, percent, most = text.partition("%")
    if percent and not re.fullmatch("[0-9]{1,9}", most.strip()):
        raise ValueError(f"{text!r} is not an array: after % comes how many may be there at a time, as in 0-9%2")
    if percent and int(most) < 1:
        raise ValueError(f"{text!r} is not an array: none of it could ever run")
    found: dict[int, None] = {}
    for part in numbers.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            raise ValueError(f"{text!r} is not an array; write 0-9, 1,3,5, 0-100:10 or 0-9%2")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise ValueError(f"{text!r} is not an array: {part.strip()!r} counts nothing")
        if (last - first) // step + 1 + len(found) > MOST_MEMBERS:
            raise ValueError(f"{text!r} has more than {MOST_MEMBERS} members")
        found.update(dict.fromkeys(range(first, last + 1, step)))
    return tuple(found)


def expand(spec: JobSpec) -> list[tuple[int | None, JobSpec]]:
    """The members of an array, each a job of its own with its number in ARRAY_INDEX; any other job by itself. Where
    only so many may be there at a time, each says so as an array of its own number."""
    if spec.array is None:
        return [(None, spec)]
    numbers, most = members(spec.array), spec.at_once
    return [(number, spec.model_copy(update={
                "array": None if most is None else f"{number}%{most}",
                "environment": {**spec.environment, "ARRAY_INDEX": str(number)}}))
            for number in numbers]  # fmt: skip


# --- what the rest makes of it -----------------------------------------------------------------------------------


def to_job(spec: JobSpec, id: str, now: float) -> Job:
    """What the scheduler may know. A time limit counts as a declaration where no duration is declared."""
    profile = _reference(spec)
    known: dict[str, Any] = {
        "id": id, "submit_time": now, "gpus": spec.total_gpus, "gpu_type": spec.gpu_type,
        "model": spec.model or spec.profile, "user": spec.user, "tenant": spec.queue, "priority": spec.priority,
        "declared_duration": spec.duration if spec.duration is not None else spec.time_limit,
        "reference": profile, "preemptible": spec.may_be_preempted, "within": spec.required_level,
        "prefers": spec.placement.preferred if spec.placement else None,
        "wait": spec.placement.seconds if spec.placement else None,
    }  # fmt: skip
    return Job(**_existing(known, Job))


def to_program(spec: JobSpec, id: str) -> Program:
    """What the engine runs."""
    checkpoint = spec.checkpoint or CheckpointSpec()
    known: dict[str, Any] = {
        "command": tuple(spec.command), "environment": dict(spec.environment), "directory": spec.directory,
        "grace": checkpoint.grace, "signal": checkpoint.signal, "processes": spec.processes,
        "checkpoint": checkpoint.directory, "time_limit": spec.time_limit, "output": _output(spec, id),
        "reference": _reference(spec),
    }  # fmt: skip
    return Program(**_existing(known, Program))


def check_levels(spec: JobSpec, topology: Topology) -> None:
    """Whether this cluster has the levels the job names; refused in a sentence."""
    names = [level.name for level in topology.levels]
    wanted = {"placement.required": spec.required_level,
              "placement.preferred": spec.placement.preferred if spec.placement else None}  # fmt: skip
    for field, level in wanted.items():
        if level is not None and level not in names:
            raise UserError(f"{field}: this cluster has no level {level!r}; it has {', '.join(names)}")


def check_model(spec: JobSpec) -> None:
    """Whether the model is in the catalog and the profile can be read; refused in a sentence."""
    named = spec.model or spec.profile
    if named is None:
        return
    from dally.catalog.store import find_model

    try:
        find_model(named)
    except UserError as error:
        raise UserError(f"{'model' if spec.model else 'profile'}: {error}") from None


def _reference(spec: JobSpec) -> float | None:
    """Seconds of a step at full speed, where a profile was measured on as many devices. One that was there at
    submission and is gone now says nothing: a job that was accepted is never refused later."""
    if spec.profile is None or not spec.profile.endswith((".yaml", ".yml")):
        return None
    from pathlib import Path

    from dally.profiler.document import read_profile

    try:
        runs = read_profile(Path(spec.profile)).runs
    except UserError:
        return None
    measured = (run.step for run in (runs.get("all"), runs.get("one")) if run and run.processes == spec.total_gpus)
    return next(measured, None)


def _output(spec: JobSpec, id: str) -> str | None:
    """`%j` is the job's id, `%x` its name, `%A` the array's id and `%a` the number in it."""
    if spec.output is None:
        return None
    whole, _, index = id.partition("_")
    known = {"%j": id, "%x": spec.title.replace("/", "_"), "%A": whole, "%a": index, "%%": "%"}
    return re.sub(r"%[jxAa%]", lambda match: known[match[0]], spec.output)


def _existing(values: dict[str, Any], kind: type) -> dict[str, Any]:
    """Only what this type has a field for."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in values.items() if name in names}
