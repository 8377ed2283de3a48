"""Reads the JSON job lists Dally was evaluated on (Helios jobs with models, as Lucid names them)."""

from __future__ import annotations

from dally.core.errors import UserError
from dally.core.job import DurationMeans, Ending
from dally.traces.assembly import NO_DURATION, NO_SUBMIT, Assembly, Row
from dally.traces.json_parts import TOP
from dally.traces.readers.reader import Reader
from dally.traces.source import Source
from dally.traces.times import known, moment, number
from dally.traces.trace import Trace

_ENDINGS = {"CANCELLED": Ending.CANCELLED, "FAILED": Ending.FAILED, "TIMEOUT": Ending.FAILED,
            "NODE_FAIL": Ending.FAILED}  # fmt: skip


def _recognises(source: Source) -> bool:
    if source.is_folder or not source.looks_like_json:
        return False
    first = (source.json_begin() or (TOP, None))[1] or {}
    return "job_id" in first and "duration" in first and ("max_parallelism" in first or "gpu_num" in first)


def _read(source: Source) -> Trace:
    assembly = Assembly(source, "Dally JSON")
    begin = source.json_begin()
    if begin is None:
        raise UserError(f"{source.shown} is not Dally JSON: it is not a list of jobs")
    jobs = list(source.json_entries(begin[0]) or ())  # whether any has a time of its own decides for all
    virtual = any(isinstance(job, dict) and "arrival_time" in job for job in jobs)
    one_gpu = 0
    for index, job in enumerate(jobs):
        if not isinstance(job, dict):
            assembly.drop("entry that is not a job")
            continue
        name = known(job.get("job_id")) or f"entry-{index}"
        # `max_parallelism` comes with durations on one GPU: duration = total_iterations × time_per_iteration,
        # and the ideal run time divides it by the GPUs. Lucid's `gpu_num` comes with the run time as it was.
        scaled = "max_parallelism" in job
        asked = assembly.gpus(number(job.get("max_parallelism", job.get("gpu_num"))), None, name)
        if asked is None:
            continue
        if virtual:
            submit = number(job.get("arrival_time"))
        else:
            when = moment(job.get("submit_time"))
            submit, assembly.zoned = (None, assembly.zoned) if when is None else when
        duration = number(job.get("duration"))
        if submit is None:
            assembly.drop(NO_SUBMIT, None, name)
            continue
        if duration is None or duration < 0:
            assembly.drop(NO_DURATION, None, name)
            continue
        one_gpu += scaled
        assembly.rows.append(
            Row(name, submit, asked[0], duration, steps=number(job.get("total_iterations")), gpu_fraction=asked[1],
                model=known(job.get("model")), user=known(job.get("user")), tenant=known(job.get("vc")),
                priority=int(number(job.get("priority")) or 0),
                ending=_ENDINGS.get(str(job.get("state", "")).upper(), Ending.COMPLETED),
                means=DurationMeans.ONE_GPU if scaled else DurationMeans.BEST_PLACEMENT)
        )  # fmt: skip
    if one_gpu:
        assembly.notes.append("durations are run times on one GPU; the ideal run time divides them by the GPUs")
    return assembly.finish(from_first=not virtual, wall_clock=not virtual)


READERS = (Reader("dally-json", "Dally JSON", _recognises, _read),)
