"""Bad input ends in one clear sentence and exit code 2, never in a traceback."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.cli.conftest import Dally

TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"

BROKEN_TRACES: dict[str, tuple[str, bytes]] = {
    "empty file": ("a.csv", b""),
    "only a header": ("a.csv", TIRESIAS.encode()),
    "header of something else": ("a.csv", b"name,age\nanna,3\n"),
    "binary junk": ("a.bin", bytes(range(256)) * 20),
    "truncated JSON": ("a.json", b'[{"jobid": "a", "attempts": [{"start_ti'),
    "JSON of something else": ("a.json", b'{"hello": "world"}'),
    "prose": ("a.txt", b"Dear reader,\nthis is not a trace.\n"),
    "no job with a GPU": ("a.csv", (TIRESIAS + "0,0,0,1,vgg,5,1\n1,-3,0,1,vgg,5,1\n").encode()),
    "letters where a number belongs": ("a.csv", (TIRESIAS + "0,one,zero,1,vgg,five,1\n").encode()),
    "a damaged gzip": ("a.csv.gz", gzip.compress(TIRESIAS.encode())[:20]),
    "more GPUs than there can be": ("a.csv", (TIRESIAS + f"0,{10**19},0,1,vgg,5,1\n").encode()),
    "a field without an end": ("a.csv", (TIRESIAS + f"0,1,0,1,{'x' * 200_000},5,1\n").encode()),
    "a damaged zip": ("a.zip", b"PK\x03\x04" + bytes(range(200))),
    "an own trace of a later version": ("a.csv", b"# dally-trace 99\nid,submit_time\n1,2\n"),
}

BROKEN_COMMANDS: dict[str, list[str]] = {
    "unknown command": ["simulat"],
    "no trace": ["simulate", "--cluster", "4x8", "--policy", "fifo"],
    "trace that is not there": ["simulate", "-t", "nowhere.csv", "-c", "4x8", "-p", "fifo"],
    "unknown policy": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "magic"],
    "unknown option of a policy": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo[bacfill=true]"],
    "wrong value of an option": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo[backfill=perhaps]"],
    "brackets that do not close": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo[backfill=true"],
    "cluster of nothing": ["simulate", "-t", "jobs.csv", "-c", "0x8", "-p", "fifo"],
    "unknown cluster": ["simulate", "-t", "jobs.csv", "-c", "my-cluster", "-p", "fifo"],
    "unknown network": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "-n", "carrier-pigeon"],
    "network faster outside": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "-n", "level-penalty[rack=0.5]"],
    "negative preemption cost": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--preemption-cost=-3s"],
    "cost without sense": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--preemption-cost", "cheap"],
    "slices of another kind": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--slices", "thick"],
    "interference from nowhere": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--interference", "nowhere.csv"],
    "negative noise": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--measurement-noise", "-1"],
    "gandiva's cost with a wrong option": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--preemption-cost",
                                           "gandiva[x=1]"],
    "unknown synthesiser": ["simulate", "-t", "synth:moon", "-c", "4x8", "-p", "fifo"],
    "load of a batch": ["simulate", "-t", "synth:dally-batch", "-c", "4x8", "-p", "fifo", "--load", "0.9"],
    "window that ends before it begins": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--window", "90%..10%"],
    "window without an end": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--window", "1d"],
    "window in which nobody comes": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--window", "5d..6d"],
    "resampling of what is drawn anyway": ["simulate", "-t", "synth:philly", "-c", "4x8", "-p", "fifo", "--resample"],
    "scenario that is not there": ["simulate", "--scenario", "nowhere.yaml", "-p", "fifo"],
    "no jobs": ["simulate", "-t", "synth:philly", "--jobs", "0", "-c", "4x8", "-p", "fifo"],
    "outages on machines that are not there": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--outages", "out.csv"],
    "the same policy twice": ["compare", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo,fifo"],
    "an empty place in the list": ["compare", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo,,las"],
    "explain of a job nobody knows": ["explain", "42", "nowhere"],
    "a time that is none": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--mtbf", "soon"],
    "out is a file": ["simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "fifo", "--out", "jobs.csv"],
}


def check_one_clear_line(result: object) -> None:
    code, errors = result.returncode, result.stderr  # type: ignore[attr-defined]
    lines = errors.strip().splitlines()
    assert code == 2, errors
    assert len(lines) == 1, errors
    assert lines[0].startswith("dally: ") and 20 < len(lines[0]) < 400
    assert "Traceback" not in errors


@pytest.mark.parametrize("what", BROKEN_TRACES)
def test_a_broken_trace_gets_one_clear_sentence(what: str, dally: Dally, tmp_path: Path) -> None:
    name, content = BROKEN_TRACES[what]
    (tmp_path / name).write_bytes(content)
    result = dally("simulate", "--trace", name, "--cluster", "4x8", "--policy", "fifo")
    check_one_clear_line(result)
    assert name in result.stderr


@pytest.mark.parametrize("what", BROKEN_COMMANDS)
def test_a_broken_command_line_gets_one_clear_sentence(what: str, dally: Dally, tmp_path: Path, small_trace: Path) -> None:
    (tmp_path / "out.csv").write_text("machine,down,up\nnobody,10,20\n")
    check_one_clear_line(dally(*BROKEN_COMMANDS[what]))


def test_the_error_about_an_option_names_the_valid_ones(dally: Dally, small_trace: Path) -> None:
    errors = dally("simulate", "-t", "jobs.csv", "-c", "4x8", "-p", "srtf[gpu=1]").stderr
    assert "gpu_time" in errors and "placement" in errors
