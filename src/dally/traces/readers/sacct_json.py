"""Reads what `sacct --json` prints, in the shapes that Slurm 21.08 to 24.11 give it, and what slurmrestd answers: the
accounting's jobs are written alike, the controller's (`squeue --json`) in words of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dally.core.errors import UserError
from dally.traces.assembly import Assembly
from dally.traces.readers.lifecycle import ALIVE
from dally.traces.readers.reader import Reader
from dally.traces.readers.slurm import Record, add_records, gpus_in, gpus_of_command, throttle_of, waits_for
from dally.traces.source import Source
from dally.traces.times import known, number
from dally.traces.trace import Trace

_JOBS = "jobs"


def _recognises(source: Source) -> bool:
    if source.is_folder or not source.looks_like_json:
        return False
    begin = source.json_begin()
    if begin is None or begin[0] != _JOBS:
        return False
    first = begin[1]
    if first is None:
        return any(name == "meta" for _, name, _ in source.json_parts())  # sacct with no job in its window
    return "job_id" in first and (("time" in first and "state" in first) or _is_controllers(first))


def _is_controllers(job: dict[str, Any]) -> bool:
    """Whether it is the controller's word on a job, not the accounting's."""
    return "job_state" in job and "submit_time" in job


def _number(value: Any) -> float | None:
    """A number, bare as older Slurm prints it or as {set, infinite, number}."""
    if isinstance(value, dict):
        return number(value.get("number")) if value.get("set") and not value.get("infinite") else None
    return number(value)


def _state(value: Any) -> str:
    """`"COMPLETED"`, `{"current": "COMPLETED"}` or `{"current": ["CANCELLED", …]}`; the first state counts."""
    if isinstance(value, dict):
        value = value.get("current")
    if isinstance(value, list):
        value = value[0] if value else ""
    return str(value or "").split(" ")[0].upper()


def _tres(entries: Any) -> tuple[float, str | None]:
    """GPUs in a list of {type, name, count}, or in a string of older form."""
    if isinstance(entries, str):
        return gpus_in(entries)
    parts = [
        f"{entry['type']}/{entry.get('name') or ''}={int(_number(entry.get('count')) or 0)}"
        for entry in entries or ()
        if isinstance(entry, dict) and entry.get("type") == "gres"
    ]
    return gpus_in(",".join(parts))


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "sacct --json")
    begin, jobs = source.json_begin(), source.json_entries(_JOBS)
    if jobs is None or begin is None:
        raise UserError(f"{source.shown} is not what sacct --json prints: it has no list of jobs")
    asked_at = _asked_at(source) if begin[1] is not None and _is_controllers(begin[1]) else None
    add_records(assembly, _records(assembly, jobs, asked_at))
    assembly.zoned = True  # the times are seconds since 1970
    return assembly.finish(from_first=True, wall_clock=True)


def _asked_at(source: Source) -> float | None:
    """When the controller was asked: that stands behind the jobs, and is needed for the first of them."""
    return next((_positive(value) for kind, name, value in source.json_parts()
                 if kind == "member" and name == "last_update"), None)  # fmt: skip


def _records(assembly: Assembly, jobs: Iterable[Any], asked_at: float | None) -> Iterator[Record]:
    """`asked_at`: when the controller was asked; jobs that ran then have run until then."""
    for index, job in enumerate(jobs):
        if isinstance(job, dict) and _is_controllers(job):
            yield _controllers(job, index, asked_at)
            continue
        if not isinstance(job, dict) or not isinstance(job.get("time"), dict):
            assembly.drop("entry that is not a job")
            continue
        times, tres = job["time"], job.get("tres")
        tres = tres if isinstance(tres, dict) else {}
        asked, given = _tres(tres.get("requested")), _tres(tres.get("allocated"))
        submit, eligible, start, end = (
            _positive(times.get(key)) for key in ("submission", "eligible", "start", "end")
        )
        nodes = _number(job.get("allocation_nodes")) or 1.0
        minutes = _number(times.get("limit"))
        yield Record(
            _name(job, index), None, _state(job.get("state")), submit, start, end, _number(times.get("elapsed")),
            given[0] or asked[0] or gpus_of_command(known(job.get("submit_line")), nodes) or None,
            gpu_type=asked[1] or given[1],
            limit=minutes * 60 if minutes is not None and minutes > 0 else None,
            nodes=known(job.get("nodes")), user=known(job.get("user")),
            tenant=known(job.get("account")) or known(job.get("partition")),
            priority=int(_number(job.get("priority")) or 0), eligible=eligible,
            suspended=_number(times.get("suspended")) or 0.0,
            name=known(job.get("name")), partition=known(job.get("partition")), qos=known(job.get("qos")),
            node_count=int(_number(job.get("allocation_nodes")) or 0) or None,
            constraint=known(job.get("constraints")), exclusive=_exclusive(job),
            after=known(job.get("dependency")) or waits_for(known(job.get("submit_line"))),
            throttle=throttle_of(known(job.get("submit_line"))), reservation=_reservation(job),
        )  # fmt: skip


def _controllers(job: dict[str, Any], index: int, asked_at: float | None) -> Record:
    """A job as slurmctld knows it: also those that wait or run."""
    submit, eligible, start, end = (_positive(job.get(f"{key}_time")) for key in ("submit", "eligible", "start", "end"))
    state = _state(job.get("job_state"))
    if state in ALIVE:
        end = None  # where its limit would end it
    nodes, tasks = _number(job.get("node_count")) or 1.0, _number(job.get("tasks")) or 1.0
    asked, given, per_node, per_job, per_task, per_socket = (
        gpus_in(str(job.get(f"tres_{key}") or ""))
        for key in ("req_str", "alloc_str", "per_node", "per_job", "per_task", "per_socket")
    )
    sockets = nodes * (_number(job.get("sockets_per_node")) or 1.0)
    had = _had(job.get("gres_detail"))
    minutes = _number(job.get("time_limit"))
    until = asked_at if state in ALIVE else end
    elapsed = max(0.0, until - start) if start is not None and until is not None else None
    return Record(
        _controllers_name(job, index), None, state, submit, start, end, elapsed,
        had[0] or given[0] or asked[0] or per_job[0] or per_node[0] * nodes or per_task[0] * tasks
        or per_socket[0] * sockets or None,
        gpu_type=asked[1] or per_job[1] or per_node[1] or per_task[1] or per_socket[1] or given[1] or had[1],
        limit=minutes * 60 if minutes is not None and minutes > 0 else None, nodes=known(job.get("nodes")),
        user=known(job.get("user_name")), tenant=known(job.get("account")) or known(job.get("partition")),
        priority=int(_number(job.get("priority")) or 0), eligible=eligible,
        name=known(job.get("name")), partition=known(job.get("partition")), qos=known(job.get("qos")),
        node_count=int(nodes), constraint=known(job.get("features")), exclusive=_exclusive(job),
        after=known(job.get("dependency")), throttle=int(_number(job.get("array_max_tasks")) or 0) or None,
        reservation=_reservation(job),
    )  # fmt: skip


def _had(details: Any) -> tuple[float, str | None]:
    """GPUs a job has on its nodes, `["gpu:h100:4(IDX:0-3)", …]`, one entry for each node: what counts where the cluster
    does not account for GPUs, whatever they were asked for by."""
    found = [gpus_in(part) for part in details if isinstance(part, str)] if isinstance(details, list) else []
    kinds = {kind for _, kind in found if kind is not None}
    return sum(count for count, _ in found), kinds.pop() if len(kinds) == 1 else None


def _exclusive(job: dict[str, Any]) -> bool:
    """`exclusive` is a list of flags since 23.11; before, `shared` said "none"."""
    flags = job.get("exclusive")
    return flags is True or (isinstance(flags, list) and "true" in flags) or job.get("shared") in ("none", ["none"])


def _reservation(job: dict[str, Any]) -> str | None:
    """A name, or {id, name} as the accounting has it."""
    found = job.get("reservation", job.get("resv_name"))
    return known(found.get("name") if isinstance(found, dict) else found)


def _controllers_name(job: dict[str, Any], index: int) -> str:
    array, task = _number(job.get("array_job_id")) or 0, _number(job.get("array_task_id"))
    if array > 0 and task is not None:
        return f"{int(array)}_{int(task)}"
    return known(job.get("job_id")) or f"entry-{index}"


def _positive(value: Any) -> float | None:
    """A moment; sacct writes 0 for a time that has not come."""
    when = _number(value)
    return when if when is not None and 0 < when < 1e11 else None


def _name(job: dict[str, Any], index: int) -> str:
    """`123`, `123_4` for a task of an array, `123+1` for a part of a heterogeneous job."""
    array, het = job.get("array"), job.get("het")
    if isinstance(array, dict) and (_number(array.get("job_id")) or 0) > 0:
        task = _number(array.get("task_id"))
        if task is not None:
            return f"{int(_number(array['job_id']) or 0)}_{int(task)}"
    if isinstance(het, dict) and (_number(het.get("job_id")) or 0) > 0:
        return f"{int(_number(het['job_id']) or 0)}+{int(_number(het.get('job_offset')) or 0)}"
    return known(job.get("job_id")) or f"entry-{index}"


READERS = (Reader("sacct-json", "sacct --json", _recognises, _read),)
