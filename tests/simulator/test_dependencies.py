"""Jobs that wait for others: they arrive when these have come so far in the simulation, not when they had in a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders import Spec, cluster, job, play, trace
from dally.core import events as ev
from dally.core.job import Ending
from dally.simulator.dependencies import NEVER, UNKNOWN, WAITED, linked
from dally.traces import load_trace


def after(spec: Spec, what: str, *, start: float | None = None, submitted: float | None = None, **more: object) -> Spec:
    return Spec(replace(spec.job, after=what, **more), replace(spec.truth, start=start, submitted=submitted))  # type: ignore[arg-type]


def arrivals(*specs: Spec, policy: str = "fifo") -> dict[str, float]:
    made = linked(trace(specs))
    played = play([Spec(*pair) for pair in zip(made.jobs, made.truths, strict=True)], cluster(8), policy)
    return {entry.job.id: time for time, entry in played.of(ev.Arrived)}  # type: ignore[union-attr]


def test_a_job_arrives_when_what_it_waits_for_has_begun_or_ended() -> None:
    found = arrivals(job("1", 1, 100), after(job("2", 1, 10, 5), "afterany:1"), after(job("3", 1, 10, 6), "after:1+2"),
                     after(job("4", 1, 10, 7), "afterok:1,afterok:2"), after(job("5", 1, 10, 8), "afterok:2?after:1"),
                     job("6", 1, 10, 9))  # fmt: skip
    assert found == {"1": 0, "2": 100, "3": 120, "4": 110, "5": 8, "6": 9}


def test_a_job_that_waited_counts_from_when_it_could_start() -> None:
    made = linked(trace([job("1", 1, 100), after(job("2", 8, 10, 5), "afterany:1"), job("3", 8, 50, 50)]))
    played = play([Spec(*pair) for pair in zip(made.jobs, made.truths, strict=True)], cluster(8), "fifo")
    arrived = {entry.job.id: entry.job for _, entry in played.of(ev.Arrived)}  # type: ignore[union-attr]
    assert arrived["2"].submit_time == 100 and arrived["3"].submit_time == 50


def test_arrays_names_and_tasks_one_by_one() -> None:
    found = arrivals(job("7_0", 1, 10), job("7_1", 1, 30), after(job("8", 1, 5, 1), "afterany:7"),
                     after(job("9_1", 1, 5, 2), "aftercorr:7"), after(job("9_0", 1, 5, 3), "aftercorr:7_*"),
                     job("10", 1, 50, 4), after(job("11", 1, 9, 5), "singleton"),
                     after(job("12", 1, 9, 6), "singleton"))  # fmt: skip
    assert found["8"] == 30 and found["9_1"] == 30 and found["9_0"] == 10
    assert found["11"] == 54 and found["12"] == 63  # nobody names jobs or users here: all are alike


def test_who_could_never_start_and_did_not_is_left_out_and_who_did_run_is_not() -> None:
    failed = replace(job("1", 1, 10).truth, ending=Ending.FAILED)
    specs = [Spec(job("1", 1, 10).job, failed), after(job("2", 1, 5, 1), "afterok:1"),
             after(job("3", 1, 5, 2), "afternotok:1"), after(job("4", 1, 5, 3), "afterok:1", start=40.0),
             after(job("5", 1, 5, 4), "afterok:999")]  # fmt: skip
    made = linked(trace(specs))
    assert [each.id for each in made.jobs] == ["1", "3", "4", "5"]
    said = "\n".join(made.notes)
    assert f"1 jobs: {NEVER}" in said and f"2 jobs: {WAITED}" in said and f"1 jobs: {UNKNOWN}" in said


def test_what_else_held_a_job_back_in_the_record_holds_it_back_here() -> None:
    first = Spec(job("1", 1, 100).job, replace(job("1", 1, 100).truth, start=0.0))
    soon = after(job("2", 1, 5, 101), "afterok:1", start=101.0, submitted=10.0)
    held = after(job("3", 1, 5, 900), "afterok:1", start=900.0, submitted=10.0)  # `--begin`, or a hold
    assert [each.submit_time for each in linked(trace([first, soon, held])).jobs] == [0.0, 10.0, 900.0]


def test_a_job_that_waits_for_itself_or_for_a_later_one_does_not_wait_for_ever() -> None:
    assert arrivals(after(job("1", 1, 10), "afterok:2"), after(job("2", 1, 10, 1), "afterok:2")) == {"1": 0, "2": 1}


def test_command_lines_of_a_dump_say_what_jobs_waited_for(tmp_path: Path) -> None:
    head = "JobID|User|Partition|Submit|Eligible|Start|End|State|AllocTRES|Reservation|SubmitLine\n"
    times = "2026-03-02T10:00:00|2026-03-02T10:00:00|2026-03-02T10:00:00|2026-03-02T11:00:00|COMPLETED|gres/gpu=1"
    later = "2026-03-02T10:05:00|2026-03-02T11:00:02|2026-03-02T11:10:00|2026-03-02T11:30:00|COMPLETED|gres/gpu=1"
    (tmp_path / "jobs.txt").write_text(
        head + f"1|a|gpu|{times}||sbatch train.sh\n2|a|gpu|{later}||sbatch -d afterok:1 eval.sh\n"
        f"3_1|a|gpu|{later}|maint|sbatch --array=0-9%4 --dependency=singleton x.sh\n")
    read = load_trace(tmp_path / "jobs.txt")
    assert [each.after for each in read.jobs] == [None, "afterok:1", "singleton"]
    assert read.jobs[2].throttle == 4 and read.jobs[2].reservation == "maint" and read.jobs[1].throttle is None
    made = linked(read)
    assert made.jobs[1].submit_time == 300.0 and made.jobs[1].after == "afterany:1"
