"""Reads Alibaba PAI 2020 (NSDI'22): a folder of tables without headers, or its task table alone."""

from __future__ import annotations

import math
from pathlib import Path

from dally.core.errors import UserError
from dally.core.job import Ending
from dally.core.records import dataclass
from dally.traces.assembly import (
    NO_END,
    NO_GPUS,
    NO_START,
    REVERSED,
    ROUNDED_UP,
    SHARE,
    SHORT_ROW,
    STILL_RUNNING,
    Assembly,
    Row,
)
from dally.traces.readers.lifecycle import STILL_WAITING
from dally.traces.readers.reader import Reader
from dally.traces.source import Source, Table, open_source
from dally.traces.times import known, number
from dally.traces.trace import Trace

# The tables come without header lines; these are their published headers, used when no .header file is beside them.
_HEADERS = {
    "pai_task_table": ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu",
                       "plan_mem", "plan_gpu", "gpu_type"),
    "pai_job_table": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "pai_group_tag_table": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
}  # fmt: skip
_TASKS, _JOBS, _TAGS = _HEADERS
_STATES = {"Terminated", "Failed", "Running", "Waiting"}


@dataclass(slots=True)
class _Tasks:
    """What the tasks of one job add up to."""

    line: int
    gpus: int = 0
    share: float = 1.0
    fractional: bool = False
    rounded: bool = False
    start: float = math.inf
    end: float = -math.inf
    reversed: bool = False
    open: bool = False  # a task started and has no end
    failed: bool = False
    waiting: bool = False
    user: str | None = None


def _recognises(source: Source) -> bool:
    if source.is_folder:
        return source.path is not None and _find(source.path, _TASKS) is not None
    if source.looks_like_json:
        return False
    lines = source.head_lines(2)
    if {"job_name", "inst_num", "plan_gpu"} <= set(source.header()):
        return True
    fields = lines[0].split(",") if lines else []
    return len(fields) == len(_HEADERS[_TASKS]) and fields[3] in _STATES and number(fields[6] or "0") is not None


def _find(folder: Path, table: str) -> Path | None:
    return next((file for ending in (".csv", ".csv.gz") if (file := folder / f"{table}{ending}").is_file()), None)


def _table(source: Source, name: str) -> Table:
    """The table under its own header line, its .header file, or the published header."""
    published = _HEADERS[name]
    if published[0] in source.header():
        return source.table()
    beside = source.path.parent / f"{name}.header" if source.path is not None else None
    if beside is not None and beside.is_file():
        published = tuple(column.strip().lower() for column in beside.read_text("utf-8").strip().split(","))
    return source.table(published)


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "Alibaba PAI 2020")
    folder = source.path if source.is_folder else None
    tasks_file = _find(folder, _TASKS) if folder is not None else None
    if folder is not None and tasks_file is None:
        raise UserError(f"{source.shown} is a folder without pai_task_table.csv")
    tasks_source = source if tasks_file is None else open_source(tasks_file)
    tasks, last = _add_up(assembly, _table(tasks_source, _TASKS))
    jobs_file = _find(folder, _JOBS) if folder is not None else None
    jobs = _job_table(jobs_file) if jobs_file is not None else {}
    if not jobs:
        assembly.notes.append("no pai_job_table.csv: the first task's start stands for the submission")
    tags_file = _find(folder, _TAGS) if folder is not None else None
    tags = _tag_table(tags_file) if tags_file is not None else {}
    for name, task in tasks.items():
        instance, user, submit, end = jobs.get(name, (None, None, None, None))
        row = _row(assembly, name, task, submit, end, last)
        if row is not None:
            row.user = user or task.user
            row.gpu_type, row.model = tags.get(instance or "", (None, None))
            assembly.rows.append(row)
    return assembly.finish(from_first=True)


def _add_up(assembly: Assembly, table: Table) -> tuple[dict[str, _Tasks], float]:
    """Tasks by job, and the last moment the table knows of."""
    ident, instances, status, start, end, plan = table.needed(
        "job_name", "inst_num", "status", "start_time", "end_time", "plan_gpu"
    )
    user = table.column("user")
    width = 1 + max(ident, instances, status, start, end, plan)
    jobs: dict[str, _Tasks] = {}
    last = 0.0
    for line, fields in table.rows():
        if len(fields) < width:
            assembly.drop(SHORT_ROW, line)
            continue
        task = jobs.get(fields[ident])
        if task is None:
            task = jobs[fields[ident]] = _Tasks(line)
        percent = number(fields[plan])
        if percent is None or percent <= 0:
            continue  # parameter servers and evaluators on CPUs are part of the job but take no GPU
        each = math.ceil(percent / 100 - 1e-9)
        count = max(1, math.ceil(number(fields[instances]) or 1.0))
        task.gpus += each * count
        if percent < 100:
            task.fractional, task.share = True, percent / 100
        elif each * 100 - percent > 1e-6:
            task.rounded = True
        task.failed |= fields[status] == "Failed"
        task.waiting |= fields[status] == "Waiting"
        if user is not None and user < len(fields):
            task.user = known(fields[user])
        began, ended = number(fields[start]), number(fields[end])
        if began is not None and began > 0:
            task.start, last = min(task.start, began), max(last, began)
            if ended is None or ended <= 0:
                task.open = True
            elif ended < began:
                task.reversed = True
            else:
                task.end = max(task.end, ended)
        if ended is not None:
            last = max(last, ended)
    return jobs, last


def _row(assembly: Assembly, name: str, task: _Tasks, submit: float | None, job_end: float | None,
         last: float) -> Row | None:  # fmt: skip
    if task.gpus == 0:
        assembly.drop(NO_GPUS, task.line, name)
        return None
    ending, duration, cancel_at = (Ending.FAILED if task.failed else Ending.COMPLETED), None, None
    if math.isinf(task.start):
        if task.waiting or submit is None or job_end is None:
            assembly.drop(STILL_WAITING if task.waiting else NO_START, task.line, name)
            return None
        ending, cancel_at = Ending.CANCELLED, max(submit, job_end)
    elif task.open:
        # A failed task without an end gives no run time; one that runs on is cut at the end of the trace.
        if task.failed and math.isinf(task.end):
            assembly.drop(NO_END, task.line, name)
            return None
        if not task.failed:
            assembly.repair(STILL_RUNNING, task.line, name)
            duration = last - task.start
        else:
            duration = task.end - task.start
    elif math.isinf(task.end):
        assembly.drop(REVERSED if task.reversed else NO_END, task.line, name)
        return None
    else:
        duration = task.end - task.start
    if task.fractional:
        assembly.repair(SHARE, task.line, name)
    if task.rounded:
        assembly.repair(ROUNDED_UP, task.line, name)
    if submit is None or submit > task.start:
        submit = task.start
    return Row(name, submit, task.gpus, duration, task.line, ending=ending, cancel_at=cancel_at,
               gpu_fraction=task.share if task.gpus == 1 else 1.0)  # fmt: skip


def _job_table(file: Path) -> dict[str, tuple[str | None, str | None, float | None, float | None]]:
    """Job → (instance id, user, submission, end)."""
    table = _table(open_source(file), _JOBS)
    ident, inst, user, start, end = table.needed("job_name", "inst_id", "user", "start_time", "end_time")
    width = 1 + max(ident, inst, user, start, end)
    return {
        fields[ident]: (fields[inst], known(fields[user]), number(fields[start]), number(fields[end]))
        for _, fields in table.rows()
        if len(fields) >= width
    }


def _tag_table(file: Path) -> dict[str, tuple[str | None, str | None]]:
    """Instance id → (GPU type asked for, workload), where the submitter or the authors named one."""
    table = _table(open_source(file), _TAGS)
    inst, spec, workload = table.needed("inst_id", "gpu_type_spec", "workload")
    width = 1 + max(inst, spec, workload)
    return {
        fields[inst]: (known(fields[spec]), known(fields[workload]))
        for _, fields in table.rows()
        if len(fields) >= width
    }


READERS = (Reader("pai", "Alibaba PAI 2020", _recognises, _read),)
