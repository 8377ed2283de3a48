"""Readers of public CSV traces on small dirty samples."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dally.core.job import DurationMeans, Ending
from dally.traces import Trace, load_trace


def read(tmp_path: Path, text: str, name: str = "trace.csv") -> Trace:
    file = tmp_path / name
    file.write_text(text, "utf-8")
    return load_trace(file)


def test_tiresias_keeps_its_own_clock_and_its_integers_exact(tmp_path: Path) -> None:
    trace = read(tmp_path, "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
                           "7,4,90,606,vgg19,164,30\n8,1,30,133,alexnet,123456789,0\n9,0,40,1,vgg11,5,0\n")  # fmt: skip
    assert trace.format == "Tiresias CSV"
    assert [(job.id, job.submit_time, job.gpus, job.model) for job in trace.jobs] == [
        ("8", 30.0, 1, "alexnet"), ("7", 90.0, 4, "vgg19")]  # fmt: skip
    assert [(truth.duration, truth.steps) for truth in trace.truths] == [(123456789.0, 133.0), (164.0, 606.0)]
    assert trace.dropped == {"no GPUs asked for": 1}


def test_tiresias_columns_may_come_in_any_order_and_with_a_byte_order_mark(tmp_path: Path) -> None:
    trace = read(tmp_path, "\ufeffduration,model_name,num_gpu,job_id,submit_time\r\n10,vgg11,2,a,5\r\n")
    assert (trace.jobs[0].id, trace.jobs[0].gpus, trace.truths[0].duration) == ("a", 2, 10.0)


def test_flat_philly_counts_from_the_first_kept_submission(tmp_path: Path) -> None:
    trace = read(tmp_path, "timestamp,duration,num_gpus,gpu_time,cluster\n"
                           "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
                           "2017-10-09 07:00:00,,8,0,aa\n"
                           "2017-10-09 07:00:55,5.0,0,0,aa\n"
                           ",5.0,1,0,aa\n"
                           "2017-10-09 07:00:55,7.5,4,30,bb\n"
                           "2017-10-09\n")  # fmt: skip
    assert [(job.id, job.submit_time, job.gpus, job.tenant) for job in trace.jobs] == [
        ("4", 0.0, 4, "bb"), ("0", 60.0, 1, "11cb48")]  # fmt: skip
    assert trace.origin == "2017-10-09T07:00:55"
    assert trace.dropped == {
        "run time missing or unreadable": 1,
        "no GPUs asked for": 1,
        "submission time missing or unreadable": 1,
        "row with too few fields": 1,
    }


HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"


def test_helios_rows_of_every_kind_are_kept_repaired_or_dropped_with_a_reason(tmp_path: Path) -> None:
    day = "2020-06-09 "
    trace = read(tmp_path, HELIOS + "".join(f"{row}\n" for row in (
        f"1,u1,vcA,8,1,1,COMPLETED,{day}10:00:00,{day}10:05:00,{day}10:15:00,600,300",
        f"2,u1,vcA,8,1,1,FAILED,{day}10:00:00,{day}10:10:00,{day}10:09:00,,600",          # reversed, no run time
        f"3,u1,vcA,8,1,1,FAILED,{day}10:00:00,{day}10:10:00,{day}10:09:00,50,600",        # reversed, run time stated
        f"4,u2,vcB,0,1,1,COMPLETED,{day}10:00:00,{day}10:10:00,{day}10:19:00,540,600",    # a CPU job
        f"5,u2,vcB,8,1,1,CANCELLED,{day}10:00:00,,{day}11:00:00,0,0",                     # gave up in the queue
        f"6,u2,vcB,8,1,1,CANCELLED,{day}10:00:00,None,None,0,0",                          # … nobody knows when
        f"7,u2,vcB,1,1,1,TIMEOUT,{day}10:20:00,{day}10:10:00,{day}10:30:00,1200,0",       # started too early
        f"1,u1,vcA,8,1,1,COMPLETED,{day}10:00:00,{day}10:05:00,{day}10:15:00,600,300",    # the same row again
        f"1,u3,vcA,2,1,1,COMPLETED,{day}12:00:00,{day}12:05:00,{day}12:15:00,600,300",    # another job, same id
        f"8,u3,vcA,1,1,1,COMPLETED,{day}12:00:00,{day}12:05:00,{day}12:05:00,0,300",      # no run time at all
        f"9,u3,vcA,two,1,1,COMPLETED,{day}12:00:00,{day}12:05:00,{day}12:05:00,0,300",
    )))  # fmt: skip
    assert trace.dropped == {
        "ended before it started": 1,
        "no GPUs asked for": 1,
        "never started, and no time of cancellation known": 1,
        "the same job twice": 1,
        "GPU count missing or not a number": 1,
    }
    assert trace.repaired == {
        "ended before it started: its stated run time is used": 1,
        "started before it was submitted: submission moved to the start": 1,
        "job id used before: a number added": 1,
        "ran for no time: given one second": 1,
        "cancelled before it started: the median run time of its GPU demand stands for its own": 1,
    }
    truths = {job.id: truth for job, truth in zip(trace.jobs, trace.truths, strict=True)}
    assert set(truths) == {"1", "3", "5", "7", "1#2", "8"}
    assert truths["1"].duration == 600.0
    assert (truths["5"].cancel_at, truths["5"].ending) == (3600.0, Ending.CANCELLED)
    assert truths["5"].duration == 325.0  # between the 600 s and the 50 s of the other jobs of 8 GPUs
    assert (truths["7"].ending, truths["8"].duration) == (Ending.FAILED, 1.0)


def test_acme_offsets_are_honoured_and_its_duration_column_is_not_trusted(tmp_path: Path) -> None:
    header = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
    east, utc = "2023-03-01 00:{}+08:00", "2023-02-28 16:{}+00:00"
    times = ",".join
    trace = read(tmp_path, header
        + f"b,u,1,8,1,Other,COMPLETED,{times(map(east.format, ('10:00', '11:00', '21:00')))},660,60,1\n"
        + f"a,u,8,64,9,Other,FAILED,{times(map(utc.format, ('00:00', '00:10', '00:18')))},18,10,1\n")  # fmt: skip
    assert trace.format == "Acme CSV"
    assert [(job.id, job.submit_time) for job in trace.jobs] == [("a", 0.0), ("b", 600.0)]
    assert [truth.duration for truth in trace.truths] == [8.0, 600.0]  # run time, without the queue
    assert trace.origin == "2023-02-28T16:00:00+00:00"


def test_openb_shares_get_a_whole_gpu_and_pending_pods_are_cancelled_in_the_queue(tmp_path: Path) -> None:
    trace = read(tmp_path,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,1,1,1,460,,LS,Running,10,1000,15\n"
        "p1,1,1,0,0,,LS,Running,0,500,0\n"
        "p2,1,1,8,1000,V100M32,BE,Failed,20,120,20\n"
        "p3,1,1,1,1000,V100M16|V100M32,BE,Pending,30,90,\n"
        "p4,1,1,1,1000,,BE,Pending,30,,\n")  # fmt: skip
    jobs = {job.id: job for job in trace.jobs}
    truths = {job.id: truth for job, truth in zip(trace.jobs, trace.truths, strict=True)}
    assert set(jobs) == {"p0", "p2", "p3"}
    assert (jobs["p0"].gpus, jobs["p0"].gpu_fraction, truths["p0"].duration) == (1, 0.46, 985.0)
    assert (jobs["p2"].gpu_type, truths["p2"].ending) == ("V100M32", Ending.FAILED)
    assert (jobs["p3"].gpu_type, truths["p3"].cancel_at) == (None, 80.0)
    assert trace.repaired["a share of a GPU: given a whole one"] == 1
    assert trace.repaired["still running when the trace ended: run time cut there"] == 1
    assert trace.dropped == {"no GPUs asked for": 1, "never started, and no time of cancellation known": 1}


TASKS = (
    "j1,worker,2.0,Terminated,100.0,400.0,600.0,29.3,100.0,V100\n"
    "j1,ps,1.0,Terminated,90.0,400.0,600.0,29.3,,MISC\n"  # on CPUs: no GPU, no run time
    "j2,tensorflow,1.0,Failed,150.0,250.0,600.0,29.3,50.0,MISC\n"
    "j3,worker,1.0,Terminated,160.0,170.0,600.0,29.3,250.0,T4\n"
    "j4,worker,1.0,Terminated,160.0,170.0,600.0,29.3,,T4\n"
    "j5,worker,1.0,Running,200.0,,600.0,29.3,100.0,T4\n"
    "j6,worker,1.0,Failed,,,600.0,29.3,100.0,T4\n"
    "j7,worker,1.0,Terminated,300.0,200.0,600.0,29.3,100.0,T4\n"
)


def test_a_pai_folder_joins_jobs_tasks_and_tags(tmp_path: Path) -> None:
    (tmp_path / "pai_task_table.csv").write_text(TASKS)
    (tmp_path / "pai_task_table.header").write_text(
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n")  # fmt: skip
    (tmp_path / "pai_job_table.csv.gz").write_bytes(gzip.compress(
        b"j1,i1,alice,Terminated,50.0,400.0\nj2,i2,bob,Failed,140.0,250.0\nj3,i3,bob,Terminated,155.0,170.0\n"
        b"j5,i5,bob,Running,190.0,\nj6,i6,bob,Failed,210.0,260.0\n"))  # fmt: skip
    (tmp_path / "pai_group_tag_table.csv").write_text("i1,alice,V100,g,bert\n")
    trace = load_trace(tmp_path)
    jobs = {job.id: job for job in trace.jobs}
    truths = {job.id: truth for job, truth in zip(trace.jobs, trace.truths, strict=True)}
    assert (jobs["j1"].submit_time, jobs["j1"].gpus, jobs["j1"].user) == (0.0, 2, "alice")
    assert (jobs["j1"].gpu_type, jobs["j1"].model, truths["j1"].duration) == ("V100", "bert", 310.0 - 10.0)
    assert (jobs["j2"].gpu_fraction, truths["j2"].ending) == (0.5, Ending.FAILED)
    assert jobs["j3"].gpus == 3
    assert truths["j5"].duration == 200.0  # cut at 400, the last moment in the tables
    assert truths["j6"].cancel_at == 210.0
    assert trace.dropped == {"no GPUs asked for": 1, "ended before it started": 1}
    assert trace.repaired["a fractional number of GPUs: rounded up"] == 1


def test_the_pai_task_table_alone_takes_the_start_for_the_submission(tmp_path: Path) -> None:
    trace = read(tmp_path, TASKS, "pai_task_table.csv")
    assert trace.format == "Alibaba PAI 2020"
    assert any("stands for the submission" in note for note in trace.notes)
    assert trace.jobs[0].id == "j1"


def test_gavel_traces_keep_steps_rows_and_arrivals(tmp_path: Path) -> None:
    row = "ResNet-18 (batch size 128)\tpython3 main.py --x=%s\tcifar10\t--num_steps\t1\t{}\t{}\t1\t{}\t{}\n"
    trace = read(tmp_path, row.format(925982, 4, "-1.000000", 0) + row.format(100, 1, 7200, 36.5)
                 + row.format(100, 1, "1.2", 40) + row.format(0, 1, -1, 50), "x.trace")  # fmt: skip
    assert [(job.id, job.gpus, job.submit_time, job.deadline) for job in trace.jobs] == [
        ("0", 4, 0.0, None), ("1", 1, 36.5, 7236.5), ("2", 1, 40.0, None)]  # fmt: skip
    assert (trace.truths[0].duration, trace.truths[0].steps) == (None, 925982.0)
    assert trace.jobs[0].model == "ResNet-18 (batch size 128)"
    assert trace.dropped == {"number of steps missing or not above 0": 1}
    assert sum(trace.repaired.values()) == 1  # the SLO that is a multiple


def test_swf_takes_processors_for_gpus_and_says_so(tmp_path: Path) -> None:
    def line(*fields: int) -> str:
        return " ".join(str(field) for field in fields) + "\n"

    trace = read(tmp_path, "; Version: 2.2\n; UnixStartTime: 1500000000\n\n"
        + line(1, 0, 10, 300, 16, -1, -1, 32, 600, -1, 1, 3, 4, -1, 2, -1, -1, -1)
        + line(2, 50, 70, -1, -1, -1, -1, 8, 900, -1, 5, 3, 4, -1, 2, -1, -1, -1)
        + line(3, 60, -1, -1, -1, -1, -1, 8, -1, -1, 5, 3, 4, -1, 2, -1, -1, -1)
        + line(4, 60, 5, 30, 8, -1, -1, 8, -1, -1, 2, 3, 4, -1, 2, -1, -1, -1)
        + line(5, 61, 5, 30, -1, -1, -1, -1, -1, -1, 0, 3, 4, -1, 2, -1, -1, -1), "log.swf")  # fmt: skip
    assert [(job.id, job.gpus, job.declared_duration) for job in trace.jobs] == [("1", 16, 600.0), ("2", 8, 900.0)]
    assert (trace.truths[1].cancel_at, trace.truths[1].duration) == (120.0, 300.0)  # what others ran, within its limit
    assert sum(trace.dropped.values()) == 3
    assert any("taken as one GPU" in note for note in trace.notes)
    assert trace.origin == "2017-07-14T02:40:00+00:00"


def test_gzip_is_unpacked_whatever_the_file_is_called(tmp_path: Path) -> None:
    file = tmp_path / "jobs"
    file.write_bytes(gzip.compress(b"job_id,num_gpu,submit_time,iterations,model_name,duration\n0,1,0,5,vgg,9\n"))
    assert len(load_trace(file)) == 1


def test_standard_input_is_read_for_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys
    from types import SimpleNamespace

    data = b"job_id,num_gpu,submit_time,iterations,model_name,duration\n0,1,0,5,vgg,9\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert load_trace("-").jobs[0].id == "0"


def test_durations_of_plain_traces_mean_the_best_placement(tmp_path: Path) -> None:
    trace = read(tmp_path, "job_id,num_gpu,submit_time,iterations,model_name,duration\n0,1,0,5,vgg,9\n")
    assert trace.truths[0].means is DurationMeans.BEST_PLACEMENT
