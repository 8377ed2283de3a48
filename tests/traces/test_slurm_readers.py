"""What operators pipe in: `sacct -P` and `sacct --json`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dally.core.errors import UserError
from dally.core.job import DurationMeans, Ending, Job, Truth
from dally.traces import Trace, load_trace
from dally.traces.readers.slurm import gpus_in, node_names


def read(tmp_path: Path, text: str) -> Trace:
    file = tmp_path / "sacct.txt"
    file.write_text(text)
    return load_trace(file)


def by_id(trace: Trace) -> dict[str, tuple[Job, Truth]]:
    return {job.id: (job, truth) for job, truth in zip(trace.jobs, trace.truths, strict=True)}


def test_gpus_are_found_in_every_way_slurm_writes_them() -> None:
    assert gpus_in("billing=16,cpu=16,gres/gpu=4,gres/gpu:a100=4,mem=9G,node=1") == (4, "a100")
    assert gpus_in("cpu=1,gres/gpu:a100=2,gres/gpu:v100=1") == (3, None)
    assert gpus_in("gpu:a100:8(S:0-1)") == (8, "a100")
    assert gpus_in("gres:gpu:2") == (2, None)
    assert gpus_in("gpu:4") == (4, None)
    assert gpus_in("billing=4,cpu=4,gres/gpumem=80G,mem=1G") == (0, None)


def test_node_lists_unfold_with_their_leading_zeros() -> None:
    assert node_names("n[01-03,7],gpu9") == ("n01", "n02", "n03", "n7", "gpu9")
    assert node_names("rack1-n[9-10]-ib") == ("rack1-n9-ib", "rack1-n10-ib")
    assert node_names("None assigned") is None


def test_sacct_text_in_any_column_order_with_steps_arrays_and_hetjobs(tmp_path: Path) -> None:
    rows = (
        "COMPLETED|100|ann|ml|10:00|10:05|10:15|billing=8,gres/gpu=8,node=2|gres/gpu:h100=8|60|n[1-2]|00:10:00",
        "COMPLETED|100.batch|||10:05|10:05|10:15|gres/gpu=8||||00:10:00",
        "CANCELLED by 1000|101_4|bob|ml|10:01|Unknown|10:31||gres/gpu=2|30|None assigned|00:00:00",
        "TIMEOUT|102+0|bob||10:02|10:03|10:33|gres/gpu:a100=3||30|n[1-2]|00:30:00",
        "RUNNING|103|bob||10:02|10:03|Unknown|gres/gpu=1|||n1|1-00:00:30",
        "PENDING|104|bob||10:02|Unknown|Unknown||gres/gpu=1|||00:00:00",
        "COMPLETED|105|bob||10:02|10:03|10:13|cpu=4|cpu=4||n1|00:10:00",
        "PENDING|106_[1-9]|bob||10:02|Unknown|Unknown||gres/gpu=1|||00:00:00",
    )
    dated = [re.sub(r"(?<=\|)(10:\d\d)(?=\|)", r"2024-01-01T\1:00", row) for row in rows]
    head = "State|JobID|User|Account|Submit|Start|End|AllocTRES|ReqTRES|TimelimitRaw|NodeList|Elapsed"
    trace = read(tmp_path, "\n".join([head, *dated]))
    jobs = by_id(trace)
    assert set(jobs) == {"100", "101_4", "102+0", "103"}
    job, truth = jobs["100"]
    assert (job.gpus, job.gpu_type, job.tenant, job.declared_duration) == (8, "h100", "ml", 3600.0)
    assert (truth.duration, truth.ran_on, truth.means) == (600.0, (("n1", 4), ("n2", 4)), DurationMeans.AS_PLACED)
    job, truth = jobs["101_4"]
    assert (truth.cancel_at, truth.duration, truth.ending) == (1860.0, 1800.0, Ending.CANCELLED)
    assert jobs["102+0"][1].ran_on == ()  # 3 GPUs over 2 nodes: nobody knows which has two
    assert jobs["102+0"][1].ending is Ending.FAILED
    assert jobs["103"][1].duration == 86430.0
    assert trace.dropped == {
        "still waiting when the trace ended": 1,
        "no GPUs asked for": 1,
        "an array of jobs that never started": 1,
    }
    assert trace.repaired["still running when the trace ended: run time cut there"] == 1
    assert trace.notes == ["1 job steps (such as 123.batch) belong to their jobs and were passed over"]


def test_a_requeued_job_is_one_job_with_a_failure(tmp_path: Path) -> None:
    head = "JobID|Submit|Start|End|State|ReqGRES|NNodes\n"
    trace = read(tmp_path, head
        + "7|2024-01-01T10:00:00|2024-01-01T10:00:00|2024-01-01T10:01:00|NODE_FAIL|gpu:4|2\n"
        + "7|2024-01-01T10:01:00|2024-01-01T10:02:00|2024-01-01T10:05:00|COMPLETED|gpu:4|2\n")  # fmt: skip
    job, truth = by_id(trace)["7"]
    assert (job.submit_time, job.gpus, truth.duration, truth.failures) == (0.0, 8, 240.0, (0.25,))


def test_sacct_without_gpu_columns_says_what_to_ask_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="without submit, AllocTRES; ask for it with sacct -P -o"):
        read(tmp_path, "JobID|State|Start|End\n1|COMPLETED|a|b\n")


def sacct_job(**changes: Any) -> dict[str, Any]:
    return {
        "job_id": 9, "account": "ml", "user": "ann", "partition": "gpu", "nodes": "n[1-2]",
        "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}},
        "het": {"job_id": 0, "job_offset": None},
        "priority": {"set": True, "infinite": False, "number": 55},
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "time": {"submission": 1000, "start": 1060, "end": 1660, "elapsed": 600,
                 "limit": {"set": True, "infinite": False, "number": 60}},
        "tres": {"allocated": [{"type": "cpu", "name": "", "id": 1, "count": 16},
                               {"type": "gres", "name": "gpu", "id": 1001, "count": 8}],
                 "requested": [{"type": "gres", "name": "gpu:a100", "id": 1002, "count": 8}]},
        **changes,
    }  # fmt: skip


def test_sacct_json_of_new_and_old_shape_reads_the_same(tmp_path: Path) -> None:
    file = tmp_path / "sacct.json"
    old = sacct_job(job_id=8, state={"current": "CANCELLED", "reason": "None"}, priority=7,
                    time={"submission": 1010, "start": 0, "end": 1100, "elapsed": 0, "limit": 30},
                    nodes="None assigned",
                    tres={"allocated": [], "requested": [{"type": "gres", "name": "gpu", "count": 2}]})  # fmt: skip
    array = sacct_job(job_id=70, array={"job_id": 60, "task_id": {"set": True, "infinite": False, "number": 3}})
    het = sacct_job(job_id=71, array={"job_id": 0, "task_id": None}, het={"job_id": 40, "job_offset": 1})
    file.write_text(json.dumps({"meta": {"Slurm": {}}, "jobs": [sacct_job(), old, array, het], "errors": []}))
    trace = load_trace(file)
    jobs = by_id(trace)
    assert set(jobs) == {"9", "8", "60_3", "40+1"}
    job, truth = jobs["9"]
    assert (job.gpus, job.gpu_type, job.priority, job.declared_duration) == (8, "a100", 55, 3600.0)
    assert (truth.duration, truth.ran_on) == (600.0, (("n1", 4), ("n2", 4)))
    job, truth = jobs["8"]
    assert (job.gpus, job.priority, truth.cancel_at, truth.duration) == (2, 7, 100.0, 600.0)  # what others ran, within its limit
    assert trace.origin == "1970-01-01T00:16:40+00:00"
