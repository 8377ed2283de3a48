"""The own trace format, version 1: every field of `Job` and `Truth`, as CSV for people or Parquet for size.

A CSV starts with the line `# dally-trace 1`, a Parquet file carries the metadata key `dally-trace`. Unlike other
formats it is read strictly: what is wrong in it is a mistake, not dirt of a traced cluster.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.job import DurationMeans, Ending, Job, Truth, made
from dally.traces.source import Source
from dally.traces.times import number
from dally.traces.trace import Problem, Trace

VERSION = 1
MARK = "# dally-trace"
METADATA_KEY = "dally-trace"
JOB_COLUMNS = ("id", "submit_time", "gpus", "gpu_type", "model", "user", "tenant", "priority", "declared_duration",
               "declared_steps", "deadline", "gpu_fraction", "min_gpus", "max_gpus", "slo", "within", "prefers", "wait",
               "preemptible", "name", "partition", "qos", "nodes", "among", "exclusive", "limit", "after",
               "throttle", "reservation")  # fmt: skip
TRUTH_COLUMNS = ("duration", "steps", "ending", "cancel_at", "failures", "ran_on", "means", "start", "submitted")
COLUMNS = JOB_COLUMNS + TRUTH_COLUMNS
_TOLD = 15  # so many of them come before `Job.work` and `Job.reference`, which are told and not traced
_UNTOLD: tuple[Any, ...] = (None, None)
_TEXT = frozenset({"id", "gpu_type", "model", "user", "tenant", "within", "prefers", "name", "partition", "qos",
                   "among", "after", "reservation"})  # fmt: skip
_WHOLE = frozenset({"gpus", "priority", "min_gpus", "max_gpus", "nodes", "throttle"})
_FLAGS = frozenset({"preemptible", "exclusive"})
_NEEDED = ("id", "submit_time", "gpus")
# older files lack them
_LATER = ("min_gpus", "max_gpus", "slo", "within", "prefers", "wait", "preemptible", "name", "partition", "qos",
          "nodes", "among", "exclusive", "limit", "after", "throttle", "reservation", "start", "submitted")  # fmt: skip
_CHECKED = tuple(COLUMNS.index(name) for name in ("gpus", "gpu_fraction", "duration", "steps", "min_gpus", "max_gpus"))
_NOT_NEGATIVE = tuple(
    COLUMNS.index(name) for name in ("duration", "steps", "declared_duration", "declared_steps", "wait", "limit")
)
_FAILURES, _SLO, _NODES = COLUMNS.index("failures"), COLUMNS.index("slo"), COLUMNS.index("nodes")
# What an empty or absent field stands for.
_DEFAULTS = (*attrgetter(*JOB_COLUMNS)(Job("", 0.0, 1)), *attrgetter(*TRUTH_COLUMNS)(Truth(None)))
_Plan = list[tuple[int, int, bool]]  # column of `COLUMNS`, field of the row, whether it must be there
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0"}
_UNESCAPES = {"\\": "\\", "n": "\n", "r": "\r", "0": "\0", "e": ""}


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write the own format, CSV or Parquet by the ending of `path`; nothing is left half written."""
    file = Path(path)
    if file.suffix.lower() == ".csv":
        data = to_csv(trace).encode("utf-8")
    elif file.suffix.lower() == ".parquet":
        data = _to_parquet(trace)
    else:
        raise UserError(f"{path}: a trace is written as .csv or .parquet, not {file.suffix or 'without ending'!r}")
    part = file.with_name(file.name + ".part")
    try:
        part.write_bytes(data)
        part.replace(file)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None


def _account(trace: Trace) -> dict[str, Any]:
    """What belongs to the trace rather than to a job."""
    return {"name": trace.name, "format": trace.format, "origin": trace.origin, "notes": list(trace.notes),
            "dropped": dict(trace.dropped), "repaired": dict(trace.repaired)}  # fmt: skip


def _restore(trace: Trace, account: Any, shown: str) -> None:
    try:
        trace.name, trace.format = str(account.get("name", trace.name)), str(account.get("format", trace.format))
        trace.origin = None if account.get("origin") is None else str(account["origin"])
        trace.notes = [str(note) for note in account.get("notes", ())]
        trace.dropped, trace.repaired = (
            Counter({str(reason): int(count) for reason, count in account.get(key, {}).items()})
            for key in ("dropped", "repaired")
        )
    except (AttributeError, TypeError, ValueError):
        raise UserError(f"{shown}: its account of the trace is damaged") from None


# ── CSV ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def to_csv(trace: Trace) -> str:
    """The whole trace as text."""
    out = io.StringIO()
    out.write(f"{MARK} {VERSION}\n# {json.dumps(_account(trace), ensure_ascii=True)}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    of_job, of_truth = attrgetter(*JOB_COLUMNS), attrgetter(*TRUTH_COLUMNS)
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        writer.writerow([_shown(value) for value in (*of_job(job), *of_truth(truth))])
    return out.getvalue()


def _shown(value: Any) -> str:
    """A field: None is empty, numbers are exact, text keeps to one line."""
    if value is None:
        return ""
    if isinstance(value, str):
        return "".join(_ESCAPES.get(char, char) for char in value) if value else "\\e"
    if isinstance(value, (Ending, DurationMeans)):
        return str(value.value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return json.dumps(value) if value else ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def _text(field: str) -> str | None:
    if not field:
        return None
    if "\\" not in field:
        return field
    parts, chars = [], iter(field)
    for char in chars:
        parts.append(_UNESCAPES.get(next(chars, ""), "") if char == "\\" else char)
    return "".join(parts)


def version_of(source: Source) -> int | None:
    """The version of an own CSV; None for anything else."""
    first = source.head[:200].split("\n", 1)[0].strip()
    if not first.startswith(MARK):
        return None
    found = number(first.removeprefix(MARK))
    return int(found) if found is not None else 0


def parse_csv(source: Source) -> tuple[Trace, list[Problem]]:
    """The trace and everything wrong with it, row by row."""
    version = version_of(source)
    if version != VERSION:
        raise UserError(f"{source.shown}, line 1: version {version} of the trace format is not known, only {VERSION}")
    trace = Trace(source.stem, "Dally trace", [], [])
    start, above = 0, 0  # where the table begins, and the comment lines above it
    while source.text.startswith("#", start):
        start, above = source.text.find("\n", start) + 1 or len(source.text), above + 1
    lines = csv.reader(io.StringIO(source.text[start:], newline=""))
    plan: _Plan | None = None
    problems: list[Problem] = []
    rows: list[tuple[Job, Truth]] = []
    seen: set[str] = set()
    before = 0
    try:
        for fields in lines:
            line = above + lines.line_num
            if lines.line_num - before > 1:
                over = f"a quotation mark opens a field that goes on over {lines.line_num - before} lines"
                problems.append(Problem(above + before + 1, None, f"{over}: one job is one line", True))
            before = lines.line_num
            if plan is None:
                plan = _columns(source, {name.strip(): index for index, name in enumerate(fields)}, line)
            elif fields:
                parsed = _parse_row(fields, plan, line, seen, problems)
                if parsed is not None:
                    rows.append(parsed)
    except csv.Error as error:
        raise UserError(f"{source.shown}, line {above + lines.line_num}: {error}") from None
    second = source.text.split("\n", 2)[1:2]
    if second and second[0].startswith("# {"):
        try:
            _restore(trace, json.loads(second[0][2:]), source.shown)
        except ValueError:
            raise UserError(f"{source.shown}, line 2: its account of the trace is damaged") from None
    rows.sort(key=lambda pair: pair[0].submit_time)
    trace.jobs, trace.truths = [job for job, _ in rows], [truth for _, truth in rows]
    return trace, problems


def _columns(source: Source, header: dict[str, int], line: int) -> _Plan:
    """Where to find each column, the id first."""
    missing = [name for name in _NEEDED if name not in header]
    unknown = [name for name in header if name not in COLUMNS]
    if missing or unknown:
        what = (
            f"lacks the columns {', '.join(missing)}"
            if missing
            else f"has unknown columns {', '.join(unknown)[:80]!r}"
        )
        raise UserError(f"{source.shown}, line {line}: the header {what}; known are {', '.join(COLUMNS)}")
    return [(slot, header[name], name in _NEEDED) for slot, name in enumerate(COLUMNS) if name in header]


def _parse_row(fields: list[str], plan: _Plan, line: int, seen: set[str],
               problems: list[Problem]) -> tuple[Job, Truth] | None:  # fmt: skip
    values = list(_DEFAULTS)
    before, width = len(problems), len(fields)
    for slot, at, needed in plan:
        field = fields[at] if at < width else ""
        if field or needed:
            try:
                values[slot] = _PARSERS[slot](field)
            except (ValueError, TypeError, OverflowError) as error:
                problems.append(Problem(line, _text(fields[plan[0][1]]), f"{COLUMNS[slot]}: {error}", True))
    if len(problems) > before:
        return None
    return _pair(values, line, seen, problems)


def _pair(values: list[Any], line: int | None, seen: set[str], problems: list[Problem]) -> tuple[Job, Truth] | None:
    """Job and truth from values in the order of `COLUMNS`, unless they contradict each other."""
    wrong = [Problem(line, values[0], reason, True) for reason in _contradictions(values, seen)]
    if wrong:
        problems += wrong
        return None
    seen.add(values[0])
    own, truth = values[: len(JOB_COLUMNS)], values[len(JOB_COLUMNS) :]
    return made(*own[:_TOLD], *_UNTOLD, *own[_TOLD:]), Truth(*truth)


def _value(name: str, field: str) -> Any:
    if name in _TEXT:
        text = _text(field)
        if name == "id" and text is None:
            raise ValueError("is missing")
        return text
    if name == "ending":
        return Ending(field)
    if name == "means":
        return DurationMeans(field)
    if name in _FLAGS:
        if field not in ("true", "false"):
            raise ValueError(f"{field!r} is neither true nor false")
        return field == "true"
    if name == "wait" and field == "inf":
        return math.inf
    if name in ("failures", "ran_on"):
        entries = json.loads(field)
        if name == "failures":
            return tuple(float(entry) for entry in entries)
        return tuple((str(machine), int(gpus)) for machine, gpus in entries)
    value = _float(field)
    if name not in _WHOLE:
        return value
    if not value.is_integer():
        raise ValueError(f"{field!r} is not a whole number")
    return int(field) if field.lstrip("+-").isdigit() else int(value)


def _float(field: str) -> float:
    value = number(field)
    if value is None:
        raise ValueError(f"{field!r} is not a number")
    return value


def _parser(name: str) -> Callable[[str], Any]:
    """`_value` of this column, by the shortest way."""
    if name in _TEXT and name != "id":
        return _text
    plain = name not in (*_TEXT, *_WHOLE, *_FLAGS, "ending", "means", "wait", "failures", "ran_on")
    return _float if plain else partial(_value, name)


_PARSERS = tuple(map(_parser, COLUMNS))


def _contradictions(values: list[Any], seen: set[str]) -> Iterator[str]:
    """What no single field shows."""
    gpus, fraction, duration, steps, fewest, most = (values[at] for at in _CHECKED)
    if values[0] in seen:
        yield "id: used before"
    if gpus < 1:
        yield "gpus: a job needs at least one"
    if not 0 < fraction <= 1:
        yield "gpu_fraction: lies above 0 and up to 1"
    elif fraction < 1 and gpus != 1:
        yield "gpu_fraction: only a job of one GPU can ask for a share"
    if fewest is not None and not 1 <= fewest <= gpus:
        yield f"min_gpus: lies between 1 and gpus, {gpus}"
    if most is not None and most < gpus:
        yield f"max_gpus: is not below gpus, {gpus}"
    if values[_SLO] is not None and values[_SLO] <= 0:
        yield "slo: is a multiple of the run time, above 0"
    if values[_NODES] is not None and (values[_NODES] < 1 or gpus % values[_NODES]):
        yield f"nodes: {gpus} GPUs are not as many on each of {values[_NODES]} machines"
    if duration is None and steps is None:
        yield "duration: neither duration nor steps is given"
    for at in _NOT_NEGATIVE:
        if values[at] is not None and values[at] < 0:
            yield f"{COLUMNS[at]}: is below 0"
    if any(not 0 <= point <= 1 for point in values[_FAILURES]):
        yield "failures: are fractions between 0 and 1"


def complain(source: Source, problems: list[Problem]) -> None:
    """One sentence for the first problem, if there is any."""
    if problems:
        first = problems[0]
        more = f"; {len(problems) - 1} more problems, `dally trace validate` lists them" if len(problems) > 1 else ""
        where = f"line {first.line}" if first.line is not None else f"job {first.job!r}"
        raise UserError(f"{source.shown}, {where}, {first.reason}{more}")


# ── Parquet ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _schema() -> dict[str, Any]:
    import polars as pl

    kinds: dict[str, Any] = dict.fromkeys(COLUMNS, pl.Float64)
    kinds |= dict.fromkeys((*_TEXT, "ending", "means", "ran_on"), pl.String)
    kinds |= dict.fromkeys(_WHOLE, pl.Int64)
    kinds["failures"] = pl.List(pl.Float64)
    kinds |= dict.fromkeys(_FLAGS, pl.Boolean)
    return kinds


def _to_parquet(trace: Trace) -> bytes:
    import polars as pl

    plain: dict[str, Callable[[Any], Any]] = {
        "ending": lambda value: value.value,
        "means": lambda value: value.value,
        "failures": lambda value: list(value) or None,
        "ran_on": lambda value: json.dumps(value) if value else None,
    }
    columns: dict[str, list[Any]] = {}
    for names, objects in ((JOB_COLUMNS, trace.jobs), (TRUTH_COLUMNS, trace.truths)):
        for name in names:
            shape = plain.get(name)
            values = [getattr(entry, name) for entry in objects]
            columns[name] = values if shape is None else [shape(value) for value in values]
    try:
        frame = pl.DataFrame(columns, schema=_schema())
    except (OverflowError, pl.exceptions.PolarsError, TypeError) as error:
        raise UserError(f"{trace.name} cannot be written as Parquet: {str(error).splitlines()[0]}") from None
    out = io.BytesIO()
    metadata = {METADATA_KEY: str(VERSION), f"{METADATA_KEY}-account": json.dumps(_account(trace))}
    frame.write_parquet(out, metadata=metadata)
    return out.getvalue()


def parse_parquet(source: Source) -> tuple[Trace, list[Problem]]:
    """The trace in a Parquet file and everything wrong with it; rows have no lines."""
    import polars as pl

    try:
        metadata = pl.read_parquet_metadata(io.BytesIO(source.data))
        if METADATA_KEY not in metadata:
            raise UserError(f"{source.shown} is a Parquet file but no trace: its metadata has no {METADATA_KEY}")
        if metadata[METADATA_KEY] != str(VERSION):
            raise UserError(
                f"{source.shown}: version {metadata[METADATA_KEY]} of the trace format is not known, only {VERSION}"
            )
        frame = pl.read_parquet(io.BytesIO(source.data))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(f"{source.shown} is a damaged Parquet file: {str(error).splitlines()[0]}") from None
    schema = _schema()
    for name in _LATER:
        if name not in frame.columns:
            usual = _DEFAULTS[COLUMNS.index(name)]
            frame = frame.with_columns(pl.lit(usual, dtype=schema[name]).alias(name))
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise UserError(f"{source.shown} lacks the columns {', '.join(missing)}")
    trace = Trace(source.stem, "Dally trace", [], [])
    problems: list[Problem] = []
    seen: set[str] = set()
    rows: list[tuple[Job, Truth]] = []
    ending, failures, ran_on, means = (COLUMNS.index(name) for name in ("ending", "failures", "ran_on", "means"))
    for row in frame.select(COLUMNS).iter_rows():
        values = list(row)
        if None in values[:3]:
            problems.append(Problem(None, values[0], "id, submit_time or gpus: is missing", True))
            continue
        try:
            values[ending], values[means] = Ending(values[ending]), DurationMeans(values[means])
            values[failures] = tuple(values[failures] or ())
            values[ran_on] = _value("ran_on", values[ran_on]) if values[ran_on] else ()
        except (ValueError, TypeError) as error:
            problems.append(Problem(None, values[0], str(error), True))
            continue
        parsed = _pair(values, None, seen, problems)
        if parsed is not None:
            rows.append(parsed)
    _restore(trace, json.loads(metadata.get(f"{METADATA_KEY}-account", "{}")), source.shown)
    rows.sort(key=lambda pair: pair[0].submit_time)
    trace.jobs, trace.truths = [job for job, _ in rows], [truth for _, truth in rows]
    return trace, problems
