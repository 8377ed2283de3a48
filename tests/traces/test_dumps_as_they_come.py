"""Dumps as operators and other projects really write them: delimiters, headers, dates, slices, zips, milliseconds."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
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


def test_a_job_that_runs_and_does_not_say_how_long_has_run_until_the_last_thing_the_dump_knows(tmp_path: Path) -> None:
    trace = read(tmp_path, dump(changed(JobID="1"), changed(JobID="2", State="RUNNING", End="Unknown", Elapsed="")))
    assert [truth.duration for truth in trace.truths] == [600.0, 600.0]  # the first ended last
    assert trace.repaired == {"still running when the trace ended: run time cut there": 1}


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
    assert gpus_of_command("sbatch --gpus-per-socket=2 --sockets-per-node 2 x.sh", 3) == 12
    assert gpus_of_command("sbatch --gpus 4 job.sh", 1) == 4
    assert gpus_of_command("sbatch --gpus=a100:2,v100:3 job.sh", 1) == 5
    assert gpus_of_command("sbatch -N2 --gpus-per-node=h100:8 job.sh", 2) == 16
    assert gpus_of_command("sbatch -n 3 --gpus-per-task 2 job.sh", 1) == 6
    assert gpus_of_command("sbatch --gres=gpu:a100:4 job.sh", 2) == 8
    assert gpus_of_command("sbatch -G2 job.sh", 1) == 2
    assert gpus_of_command("sbatch job.sh --gpusx 4", 1) == 0
    assert gpus_of_command(None, 1) == 0


def test_node_lists_with_two_brackets_unfold() -> None:
    assert node_names("r1i[0-1]n[0-1]") == ("r1i0n0", "r1i0n1", "r1i1n0", "r1i1n1")
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
    assert [truth.duration for truth in both.truths] == [60.0, 60.0] and not both.dropped  # until the other's end
    alone = read(tmp_path, json.dumps({"jobs": [{**runs, "start_time": is_set(2_000_000)}, job]}), "alone.json")
    assert len(alone) == 1 and alone.dropped == {"no end time": 1}  # nothing is known of any time after its start


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
    broken = "".join(rows[:4]) + '4,1,4,",1\n5,1,5#1,vgg16,60,0\n'
    (tmp_path / "broken.csv").write_text(head + broken)
    assert sum(load_trace(tmp_path / "broken.csv").dropped.values()) == 2


def test_two_records_that_break_off_one_after_the_other_are_two(tmp_path: Path) -> None:
    text = dump(ROW) + "8|train|2026-01-02T10:00:00|gr\n9|train|2026-01-02T10:00:00|gr\n"
    assert read(tmp_path, text).dropped == {"row with too few fields": 2}


def test_swf_lines_may_end_as_on_any_machine(tmp_path: Path) -> None:
    rows = [f"{i} {60 * i} 5 100 1 -1 -1 1 600 -1 1 0 1 -1 1 1 -1 -1" for i in (1, 2, 3)]
    for end in ("\n", "\r\n", "\r"):
        trace = read(tmp_path, end.join([rows[0], "; UnixStartTime: 1700000000", *rows[1:], ""]), "a.swf")
        assert [job.id for job in trace.jobs] == ["1", "2", "3"] and trace.origin == "2023-11-14T22:13:20+00:00"


def padded(*rows: tuple[str, ...], **wide: int) -> str:
    """As sacct prints without -P: a line of dashes, values right-aligned, what is longer cut with a plus."""
    widths = [wide.get(name, 19) for name in HEAD]

    def line(values: tuple[str, ...]) -> str:
        return " ".join((value if len(value) <= width else value[: width - 1] + "+").rjust(width)
                        for value, width in zip(values, widths, strict=True)) + " "  # fmt: skip

    return "\n".join([line(HEAD), " ".join("-" * width for width in widths), *map(line, rows)]) + "\n"


def test_padded_columns_are_read_by_their_line_of_dashes(tmp_path: Path) -> None:
    rows = (ROW, changed(JobID="8", State="CANCELLED by 1234"), changed(JobID="8.batch"),
            changed(JobID="9", State="OUT_OF_MEMORY", JobName="two words"))  # fmt: skip
    trace = read(tmp_path, padded(*rows, State=10, AllocTRES=40))
    assert [(job.id, job.gpus, job.gpu_type, job.name) for job in trace.jobs] == [
        ("7", 4, "h100", "train"), ("8", 4, "h100", "train"), ("9", 4, "h100", "two words")]  # fmt: skip
    assert [truth.ending for truth in trace.truths] == [Ending.COMPLETED, Ending.CANCELLED, Ending.FAILED]
    assert trace.notes == ["1 job steps (such as 123.batch) belong to their jobs and were passed over",
                           "its columns are padded with blanks, and longer names are cut: two may look like one"]  # fmt: skip


def test_gpus_that_a_padded_column_cuts_off_are_said(tmp_path: Path) -> None:
    trace = read(tmp_path, padded(changed(AllocTRES="billing=32,gres/gpu=4"), changed(JobID="8", AllocTRES="gres/gpu=4"),
                                  AllocTRES=12))  # fmt: skip
    assert [job.id for job in trace.jobs] == ["8"]
    assert trace.dropped == {"its GPUs are cut off at the end of a padded column: ask sacct for -P, or AllocTRES%200": 1}


def test_padded_columns_are_counted_in_bytes_as_sacct_does(tmp_path: Path) -> None:
    text = padded(changed(User="zoë"))
    assert read(tmp_path, text.replace(" zoë", "zoë", 1)).jobs[0].user == "zoë"


def test_a_dump_of_steps_alone_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has 2 job steps \(such as 123.batch\) and not the jobs they belong to"):
        read(tmp_path, dump(changed(JobID="7.batch"), changed(JobID="7.0")))


def test_a_line_that_is_not_utf8_spoils_no_other_line(tmp_path: Path) -> None:
    rows = [dump(changed(User="jürg")).encode("latin-1"), (dump(changed(JobID="8", User="zoë")).split("\n", 1)[1]).encode()]
    assert [job.user for job in read(tmp_path, b"".join(rows)).jobs] == ["jürg", "zoë"]


def test_a_dump_is_read_line_by_line_and_as_often_as_need_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also through a pipe, also packed; the whole text is never asked for."""
    from dally.traces.source import Source

    text = dump(*(changed(JobID=str(i), Submit="02/01/2026 10:00:00") for i in range(3000)), changed(JobID="x", Submit="31/01/2026 10:00:00"))
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    monkeypatch.setattr(Source, "text", property(lambda self: pytest.fail("the whole text")))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=lambda: pipe.write_text(text))
    writing.start()
    for path in (plain, packed, "-", pipe):
        assert len(load_trace(path)) == 3001
    writing.join()


def test_what_never_ends_is_not_kept_until_the_disk_is_full() -> None:
    with pytest.raises(UserError, match="/dev/zero is not a trace: it is a binary file"):
        load_trace("/dev/zero")


def test_numbers_that_sacct_shortens_are_thousands_of_bytes_kind() -> None:
    assert gpus_in("billing=1.2K,gres/gpu=1K,node=128") == (1024, None)


def test_a_running_job_of_the_controller_has_run_until_it_was_asked(tmp_path: Path) -> None:
    """Without TRES for GPUs: what it has on its nodes counts, then what it asked for by task or socket."""
    job = {"job_id": 5, "job_state": ["RUNNING"], "submit_time": 1700000000, "start_time": 1700000100, "end_time": 1700009999,
           "nodes": "n1", "node_count": {"set": True, "number": 1}, "tasks": {"set": True, "number": 2}, "user_name": "ann",
           "sockets_per_node": {"set": True, "number": 2}, "tres_alloc_str": "cpu=2,node=1"}  # fmt: skip
    jobs = [job | {"gres_detail": ["gpu:h100:3(IDX:0-2)"], "tres_per_task": "gres/gpu=2"},
            job | {"job_id": 6, "tres_per_task": "gres/gpu=2"}, job | {"job_id": 7, "tres_per_socket": "gres/gpu:a100:1"}]  # fmt: skip
    trace = read(tmp_path, json.dumps({"jobs": jobs, "last_update": {"set": True, "number": 1700000400}}), "jobs.json")
    assert [(job.id, job.gpus, job.gpu_type) for job in trace.jobs] == [("5", 3, "h100"), ("6", 4, None), ("7", 2, "a100")]
    assert {truth.duration for truth in trace.truths} == {300.0}


@pytest.mark.parametrize(("state", "ending"), [("LAUNCH_FAILED", Ending.FAILED), ("RECONFIG_FAIL", Ending.FAILED)])
def test_states_of_newer_slurms_are_known(tmp_path: Path, state: str, ending: Ending) -> None:
    trace = read(tmp_path, dump(changed(State=state)))
    assert trace.truths[0].ending is ending and not trace.repaired
