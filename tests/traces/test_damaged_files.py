"""Damaged copies of good files: whatever happens to the bytes, a reader gives a trace or one sentence."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dally.core.errors import UserError
from dally.traces import load_trace

SAMPLES = [
    "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,0,606,vgg19,164,30\n1,8,3,1,a,9,2\n",
    "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n",
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1,u,v,8,1,1,CANCELLED,2020-06-09 10:00:00,,2020-06-09 10:15:00,600,3\n",
    "name,num_gpu,gpu_milli,gpu_spec,pod_phase,creation_time,deletion_time,scheduled_time\np,1,460,a|b,Running,1,9,2\n",
    "j1,worker,2.0,Terminated,100.0,400.0,600.0,29.3,50.0,V100\n",
    "R (batch size 1)\tpython3\tx\t--n\t1\t925\t4\t1\t-1.0\t0\n",
    "; v\n1 0 10 300 16 -1 -1 32 600 -1 1 3 4 -1 2 -1 -1 -1\n",
    "JobID|Submit|Start|End|State|AllocTRES|NodeList\n7|2024-01-01T10:00:00|2024-01-01T10:00:00|2024-01-01T10:01:00"
    "|COMPLETED|gres/gpu=4|n[1-2]\n",
    '# dally-trace 1\n# {"name": "x", "notes": [], "dropped": {"a": 1}}\n'
    "id,submit_time,gpus,duration,failures,ran_on\na,1,2,3,[0.5],\n",
    json.dumps([{"status": "Pass", "vc": "v", "jobid": "j", "user": "u", "submitted_time": "2017-10-07 01:00:00",
                 "attempts": [{"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 02:00:00",
                               "detail": [{"ip": "m", "gpus": ["gpu0"]}]}]}]),
    json.dumps([{"job_id": "1", "duration": "5", "max_parallelism": "4", "arrival_time": "3", "priority": "1"}]),
    json.dumps({"meta": {}, "jobs": [{"job_id": 9, "state": {"current": ["COMPLETED"]}, "nodes": "n[1-2]",
                                      "time": {"submission": 1, "start": 2, "end": 3, "limit": {"set": True}},
                                      "array": {"job_id": 0}, "tres": {"allocated": [
                                          {"type": "gres", "name": "gpu", "count": 4}]}}]}),
]  # fmt: skip
SPLICES = ["", "0", "-1", "nan", "inf", "1e400", "null", "[]", "{}", '"', ",", "|", "\t", "\n", "\0", "é", "#",
           "9" * 40, "9" * 400, "9" * 5000, "1970-01-01", "9999-12-31 23:59:59+00:00", "true"]  # fmt: skip


def attempt(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    try:
        trace = load_trace(file)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert trace.jobs
        assert len(trace.jobs) == len(trace.truths)
        assert all(job.gpus >= 1 for job in trace.jobs)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sample=st.sampled_from(SAMPLES), start=st.floats(0, 1), length=st.integers(0, 25), splice=st.sampled_from(SPLICES)
)
def test_a_spliced_file_reads_or_says_why_not(
    tmp_path: Path, sample: str, start: float, length: int, splice: str
) -> None:
    at = int(start * len(sample))
    attempt(tmp_path / "spliced", (sample[:at] + splice + sample[at + length :]).encode())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_arbitrary_bytes_read_or_say_why_not(tmp_path: Path, data: bytes) -> None:
    attempt(tmp_path / "noise", data)


def test_every_sample_reads_whole(tmp_path: Path) -> None:
    for index, sample in enumerate(SAMPLES):
        file = tmp_path / f"sample-{index}"
        file.write_text(sample)
        if "CANCELLED" in sample:
            continue  # its only job never ran: rightly refused
        assert len(load_trace(file)) >= 1, sample
