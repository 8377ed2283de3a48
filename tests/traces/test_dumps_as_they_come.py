"""Dumps as operators and other projects really write them: delimiters, headers, dates, slices, zips, milliseconds."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from dally.core.errors import UserError
from dally.core.job import Ending
from dally.traces import Trace, load_trace
from dally.traces.readers.slurm import gpus_in, gpus_of_command, node_names

HEAD = ("JobID", "JobName", "Submit", "Eligible", "Start", "End", "State", "AllocTRES", "Elapsed", "Suspended", "User")
ROW = ("7", "train", "2026-01-02T10:00:00", "2026-01-02T10:00:00", "2026-01-02T10:05:00", "2026-01-02T10:15:00",
       "COMPLETED", "gres/gpu=4,gres/gpu:h100=4", "00:10:00", "00:00:00", "ann")  # fmt: skip


def read(tmp_path: Path, text: str | bytes, name: str = "dump.txt") -> Trace:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_trace(file)


def dump(*rows: tuple[str, ...], delimiter: str = "|", head: tuple[str, ...] = HEAD) -> str:
    return "\n".join(delimiter.join(row) for row in (head, *rows)) + "\n"


def changed(**fields: str) -> tuple[str, ...]:
    return tuple(fields.get(name, value) for name, value in zip(HEAD, ROW, strict=True))


@pytest.mark.parametrize("delimiter", ["|", "|#", ",", ";", "\t", "^", "::"])
def test_any_delimiter_is_found_between_the_names_of_the_header(tmp_path: Path, delimiter: str) -> None:
    row = changed(AllocTRES="gres/gpu=4")
    trace = read(tmp_path, dump(row, delimiter=delimiter))
    assert [(job.id, job.gpus, job.user) for job in trace.jobs] == [("7", 4, "ann")]
    assert trace.truths[0].duration == 600.0


def test_quotation_marks_are_letters_and_swallow_no_rows(tmp_path: Path) -> None:
    trace = read(tmp_path, dump(changed(JobName='"fast'), changed(JobID="8"), changed(JobID="9", JobName='a"b"')))
    assert [job.id for job in trace.jobs] == ["7", "8", "9"] and not trace.dropped


def test_a_line_break_inside_a_field_does_not_end_its_record(tmp_path: Path) -> None:
    trace = read(tmp_path, dump(changed(JobName="first\nsecond\nthird"), changed(JobID="8")))
    assert [job.id for job in trace.jobs] == ["7", "8"] and not trace.dropped


def test_a_record_that_breaks_off_is_dropped_and_the_next_is_kept(tmp_path: Path) -> None:
    text = dump(changed(JobID="8"), ROW).replace("8|train|2026-01-02T10:00:00|", "8|train\n", 1)
    cut = read(tmp_path, "\n".join(line for line in text.splitlines() if not line.startswith("2026")) + "\n")
    assert [job.id for job in cut.jobs] == ["7"]
    assert cut.dropped == {"row with too few fields": 1}


def test_without_a_header_only_xdmods_order_is_known(tmp_path: Path) -> None:
    xdmod = ("41|41|c|gpu|q|acc|grp|1|ann|2|2026-01-02T10:00:00|2026-01-02T10:00:00|2026-01-02T10:05:00|"
             "2026-01-02T10:15:00|00:10:00|0:0|COMPLETED|1|8|8|1G|gres/gpu=2|gres/gpu=2|01:00:00|n1|train\n")  # fmt: skip
    trace = read(tmp_path, xdmod)
    job = trace.jobs[0]
    assert (job.id, job.gpus, job.user, job.tenant, job.declared_duration) == ("41", 2, "ann", "acc", 3600.0)
    with pytest.raises(UserError, match="without its header line; leave out --noheader"):
        read(tmp_path, dump(ROW).split("\n", 1)[1])


@pytest.mark.parametrize(
    ("submit", "later"),
    [
        ("2026/01/31-10:00:00", "2026/01/31-10:05:00"),
        ("2026/1/31 10:00:00", "2026/1/31 10:05:00"),
        ("01/31/2026 10:00:00", "01/31/2026 10:05:00"),
        ("31/01/26 10:00:00", "31/01/26 10:05:00"),
        ("1769853600", "1769853900"),
    ],
)
def test_dates_in_the_formats_people_set(tmp_path: Path, submit: str, later: str) -> None:
    head = ("JobID", "Submit", "Start", "End", "State", "AllocTRES", "ElapsedRaw")
    trace = read(tmp_path, dump(("1", submit, submit, later, "COMPLETED", "gres/gpu=1", "300"), head=head))
    assert trace.truths[0].duration == 300.0
    assert trace.origin is not None and trace.origin.startswith("2026-01-31T10:00:00")


def test_dates_that_do_not_tell_day_from_month_are_said(tmp_path: Path) -> None:
    head = ("JobID", "Submit", "Start", "End", "State", "AllocTRES")
    trace = read(tmp_path, dump(("1", *["03/04/2026 10:00:00"] * 2, "03/04/2026 11:00:00", "COMPLETED", "gres/gpu=1"),
                                head=head))  # fmt: skip
    assert any("month/day" in note for note in trace.notes)
    assert trace.origin is not None and trace.origin.startswith("2026-03-04")


def test_a_job_arrives_when_it_could_first_start(tmp_path: Path) -> None:
    trace = read(tmp_path, dump(changed(JobID="1"), changed(Eligible="2026-01-02T10:04:00")))
    assert [job.submit_time for job in trace.jobs] == [0.0, 240.0]
    assert sum(trace.repaired.values()) == 1


def test_suspension_and_the_change_of_clocks_do_not_count_as_running(tmp_path: Path) -> None:
    trace = read(tmp_path, dump(changed(JobID="1", End="2026-01-02T10:25:00", Suspended="00:10:00"),
                                changed(JobID="2", End="2026-01-02T11:15:00")))  # fmt: skip
    assert [truth.duration for truth in trace.truths] == [600.0, 600.0]


def test_a_state_that_nobody_knows_is_said(tmp_path: Path) -> None:
    trace = read(tmp_path, dump(changed(State="FOO")))
    assert trace.repaired == {"its state is none that is known: taken as completed": 1}


def test_the_type_of_the_allocated_gpus_is_kept(tmp_path: Path) -> None:
    assert read(tmp_path, dump(ROW)).jobs[0].gpu_type == "h100"


def test_slices_of_a_gpu_are_no_whole_ones(tmp_path: Path) -> None:
    assert gpus_in("gres/gpu=1,gres/gpu:a100_1g.5gb=1") == (pytest.approx(1 / 7), "a100")
    assert gpus_in("gres/gpu:3g.20gb=2") == (pytest.approx(6 / 7), None)
    assert gpus_in("gres/gpu=3,gres/gpu:a100=2,gres/gpu:a100_7g.80gb=1") == (pytest.approx(3.0), "a100")
    trace = read(tmp_path, dump(changed(AllocTRES="gres/gpu=1,gres/gpu:1g.5gb=1")))
    assert (trace.jobs[0].gpus, trace.jobs[0].gpu_fraction) == (1, pytest.approx(1 / 7))
    assert trace.repaired == {"a share of a GPU: given a whole one": 1}


def test_gpus_are_read_from_the_command_where_nobody_accounts_for_them() -> None:
    assert gpus_of_command("sbatch --gpus 4 job.sh", 1) == 4
    assert gpus_of_command("sbatch --gpus=a100:2,v100:3 job.sh", 1) == 5
    assert gpus_of_command("sbatch -N2 --gpus-per-node=h100:8 job.sh", 2) == 16
    assert gpus_of_command("sbatch -n 3 --gpus-per-task 2 job.sh", 1) == 6
    assert gpus_of_command("sbatch --gres=gpu:a100:4 job.sh", 2) == 8
    assert gpus_of_command("sbatch -G2 job.sh", 1) == 2
    assert gpus_of_command("sbatch job.sh --gpusx 4", 1) == 0
    assert gpus_of_command(None, 1) == 0


def test_node_lists_with_two_brackets_unfold() -> None:
    assert node_names("r1i[0-1]n[0-1]") == ["r1i0n0", "r1i0n1", "r1i1n0", "r1i1n1"]
    assert node_names("n[1-]") is None


def test_jobs_of_slurms_controller_are_read_as_slurmrestd_gives_them(tmp_path: Path) -> None:
    def is_set(number: float) -> dict[str, object]:
        return {"set": True, "infinite": False, "number": number}

    job = {"job_id": 9, "job_state": ["TIMEOUT"], "submit_time": is_set(1_000_000), "eligible_time": is_set(1_000_000),
           "start_time": is_set(1_000_010), "end_time": is_set(1_000_070), "time_limit": is_set(1), "nodes": "g1",
           "node_count": is_set(1), "user_name": "ann", "account": "ml", "priority": is_set(5),
           "tres_req_str": "cpu=1,gres/gpu=2", "tres_alloc_str": "cpu=1,gres/gpu=2,gres/gpu:a100=2"}  # fmt: skip
    runs = {**job, "job_id": 10, "job_state": ["RUNNING"], "end_time": is_set(9_000_000), "tres_per_node": "gres/gpu:1"}
    trace = read(tmp_path, json.dumps({"jobs": [job], "meta": {}}), "jobs.json")
    assert (trace.jobs[0].gpus, trace.jobs[0].gpu_type, trace.jobs[0].user) == (2, "a100", "ann")
    assert (trace.truths[0].duration, trace.truths[0].ending) == (60.0, Ending.FAILED)
    both = read(tmp_path, json.dumps({"jobs": [job, runs]}), "both.json")
    assert len(both) == 1 and both.dropped == {"no end time": 1}


def test_muris_milliseconds_are_seconds(tmp_path: Path) -> None:
    trace = read(tmp_path, "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
                 "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n"
                 "0,16,0,100,vgg16,16,33200,0,332,83,68,110,0\n1,1,27000,10,a2c,64,5170,0,517,514,14,0,1\n")  # fmt: skip
    assert [(job.submit_time, truth.duration) for job, truth in zip(trace.jobs, trace.truths, strict=True)] == [
        (0.0, 33.2), (27.0, pytest.approx(5.17))]  # fmt: skip
    assert any("milliseconds" in note for note in trace.notes)


def test_deadlines_of_elasticflow_are_kept(tmp_path: Path) -> None:
    trace = read(tmp_path, "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
                 "0,100,2011,cifar10,5000,4096,1,4000\n1,200,10,ncf,150,8,8,66\n")  # fmt: skip
    assert [job.deadline for job in trace.jobs] == [5000.0, None]
    assert trace.truths[0].steps == 2011


def test_gavels_seven_columns(tmp_path: Path) -> None:
    trace = read(tmp_path, "LM (batch size 5)\tcd %s && python3 main.py\t-step\t1\t95121\t6.0\t2\n", "a.trace")
    assert (trace.format, trace.jobs[0].submit_time, trace.jobs[0].gpus, trace.truths[0].steps) == (
        "Gavel trace", 6.0, 2, 95121)  # fmt: skip


def test_swf_with_semicolons_and_names(tmp_path: Path) -> None:
    trace = read(tmp_path, "1001;0;-1;15;12;-1;-1;-1;420;-1;-1;user5;account2;-1;normal;normal;;-1;\n", "a.swf")
    assert (trace.format, trace.jobs[0].gpus, trace.jobs[0].user, trace.truths[0].duration) == (
        "SWF", 12, "user5", 15.0)  # fmt: skip


def zipped(**files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def test_a_zip_of_one_file_is_that_file(tmp_path: Path) -> None:
    assert len(read(tmp_path, zipped(a=dump(ROW)), "a.txt.zip")) == 1
    with pytest.raises(UserError, match="zip of 2 files"):
        read(tmp_path, zipped(a=dump(ROW), b="x"), "b.zip")
    whole = zipped(a=dump(ROW))
    with pytest.raises(UserError, match="damaged zip"):
        read(tmp_path, whole[: len(whole) // 2], "c.zip")


def test_a_lone_quotation_mark_swallows_no_rows_and_a_pair_may_hold_a_line_break(tmp_path: Path) -> None:
    head = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
    rows = [f"{i},1,{i},1,vgg16,60,0\n" for i in range(6)]
    (tmp_path / "lone.csv").write_text(head + "".join(rows).replace("2,1,2,1,vgg16,60,0", '2,1,2,1,vgg16,60,"'))
    trace = load_trace(tmp_path / "lone.csv")
    assert [job.id for job in trace.jobs] == ["0", "1", "2", "3", "4", "5"]
    (tmp_path / "pair.csv").write_text(head + "".join(rows).replace("2,1,2,1,vgg16", '2,1,2,1,"vgg\n16"'))
    assert [job.model for job in load_trace(tmp_path / "pair.csv").jobs][2] == "vgg\n16"
