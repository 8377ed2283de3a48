"""The main commands from outside: what they print, what they write, and that it is always the same."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.conftest import Dally

KEYS = {"policy", "jobs", "finished", "failed", "avg_jct", "median_jct", "p95_jct", "p99_jct", "makespan", "avg_queueing",
        "p95_queueing", "comm_share", "comm_seconds", "gpu_utilization", "preemptions", "migrations", "lost_gpu_seconds",
        "events", "lower_bound"}  # fmt: skip
COLUMNS = ["job_id", "submit_time", "start_time", "end_time", "jct", "queueing", "running", "gpus", "placement_level",
           "preemptions"]  # fmt: skip


def test_json_has_every_promised_figure(dally: Dally, small_trace: Path) -> None:
    result = dally("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "srtf", "--json")
    figures = json.loads(result.stdout)
    assert figures.keys() >= KEYS
    assert figures["jobs"] == figures["finished"] == 20
    assert 0 < figures["lower_bound"]["avg_jct"] <= figures["avg_jct"]
    assert 0 < figures["lower_bound"]["makespan"] <= figures["makespan"]


def test_out_holds_summary_jobs_journal_and_report(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    result = dally("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "las", "--out", "out")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "out/summary.json").read_text())["policy"] == "las"
    with (tmp_path / "out/jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    assert list(rows[0])[: len(COLUMNS)] == COLUMNS
    assert (tmp_path / "out/journal.jsonl.gz").stat().st_size > 100
    assert "<html" in (tmp_path / "out/report.html").read_text()[:1000]


def test_the_same_run_in_two_processes_writes_the_same_journal_byte_for_byte(dally: Dally, tmp_path: Path) -> None:
    for out, salt in (("a", "1"), ("b", "2")):
        result = dally("simulate", "-t", "synth:helios", "--jobs", "300", "--load", "1.2", "-c", "2x4x8", "-p", "las",
                       "--mtbf", "5d", "--seed", "7", "--out", out, PYTHONHASHSEED=salt)  # fmt: skip
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "a/journal.jsonl.gz").read_bytes() == (tmp_path / "b/journal.jsonl.gz").read_bytes()


def test_compare_runs_policies_side_by_side_and_writes_one_report(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    result = dally("compare", "-t", "jobs.csv", "-c", "2x4", "-p", "fifo,srtf[gpu_time=true]", "--out", "out", "--json")
    assert [run["policy"] for run in json.loads(result.stdout)] == ["fifo", "srtf[gpu_time=true]"]
    assert (tmp_path / "out/report.html").exists()
    assert (tmp_path / "out/fifo/jobs.csv").exists()


def test_explain_tells_a_jobs_story_with_its_reasons(dally: Dally, small_trace: Path) -> None:
    dally("simulate", "-t", "jobs.csv", "-c", "1x8", "-p", "fifo", "--out", "out")
    story = dally("explain", "7", "out").stdout
    assert "submitted: 8 GPUs, resnet50" in story
    assert "waits, " in story and "starts on 8 GPUs" in story and story.rstrip().endswith("finished")


def test_help_shows_examples_and_every_command_answers_it(dally: Dally) -> None:
    from dally.cli.main import COMMANDS

    for name in COMMANDS:
        text = dally(name, "--help").stdout
        assert f"dally {name}" in text.split("Usage:")[1]
        assert text.count("dally ") >= 2, f"{name} --help shows no example"


def test_output_that_cannot_be_written_is_one_sentence(small_trace: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dally.cli.main", "simulate", "-t", str(small_trace), "-c", "4x8", "-p", "fifo",
               "--quiet"]  # fmt: skip
    for more in ([], ["--json"]):
        with Path("/dev/full").open("w") as full:
            made = subprocess.run([*command, *more], stdout=full, stderr=subprocess.PIPE, text=True)
        assert (made.returncode, made.stderr) == (2, "dally: No space left on device\n")
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True)
    assert (closed.returncode, closed.stderr.count("\n")) == (2, 1)


def test_jobs_that_fail_faster_than_they_can_be_done_end_the_run(dally: Dally, small_trace: Path) -> None:
    made = dally("simulate", "-t", str(small_trace), "-c", "1x1x8", "-p", "fifo", "--job-mtbf", "1s", "--retries", "1000000",
                 "--quiet")  # fmt: skip
    assert made.returncode == 1 and "gets nowhere" in made.stderr


def test_ctrl_c_ends_cleanly_with_what_was_computed_so_far(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dally.cli.main", "simulate", "-t", "synth:philly", "--jobs", "100000", "--load", "0.9",
         "--window", "all", "-c", "4x8x8", "-p", "fifo", "--json", "--out", "out"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # a test run in the background of a shell ignores SIGINT, and its children would too
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip
    journal = tmp_path / "out.part/journal.jsonl.gz"
    while process.poll() is None and not (journal.exists() and journal.stat().st_size > 50_000):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=300)
    figures = json.loads(out)
    assert figures["complete"] is False and 0 < figures["finished"] < 100_000
    assert process.returncode == 130 and "Traceback" not in errors
    assert "interrupted: 0 of 1 policies finished; fifo is partial" in errors and "what there is is in" in errors
    assert (tmp_path / "out.part/jobs.csv").exists() and not (tmp_path / "out").exists()
