"""Jobs from files: YAML whose mistakes are named by line, and scripts with #SBATCH lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dally.core.errors import UserError
from dally.live.spec_file import jobs_in, read_jobs
from dally.live.submitting import from_here


@pytest.mark.parametrize(("text", "sentence"), [
    ("command: [a]\ngpus: 2\n---\ncommand: b\ngpus: 1\nplacement:\n  prefered: rack\n",
     "f.yaml, line 7: placement.prefered: there is no such field; did you mean preferred?"),
    ("- command: a\n  gpus: 1\n- command: b\n  gpus: many\n", "f.yaml, line 4: gpus: it must be a whole number, not 'many'"),
    ("command: a\n", "f.yaml, line 1: gpus: it is missing (or nodes together with gpus_per_node)"),
    ("command: a\ngpus: 1\ngpus: 2\n", "f.yaml, line 3: 'gpus' is there twice"),
    ("command: a\ngpus: 1\ntime_limit: 10:30\n",
     "f.yaml, line 3: time_limit: '10:30' is not a time: unknown unit ':30'; write it like 90s, 10m or 1.5h"),
    ("", "f.yaml: there is no job in it"),
    ("# nothing\n---\n", "f.yaml: there is no job in it"),
    ("3\n", "f.yaml, line 1: it must be a mapping of fields to values, not 3"),
    ("a: &x [*x]\n", "f.yaml: it refers to itself, or is nested too deeply"),
    ("? [a]\n: b\n", "f.yaml, line 1: the name of a field must be a text"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_file_line_and_field(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        jobs_in("f.yaml", text)
    assert str(caught.value) == sentence


def test_what_is_not_yaml_is_said_with_its_line() -> None:
    with pytest.raises(UserError, match=r"^f.yaml, line 3: it is not YAML: "):
        jobs_in("f.yaml", "command: a\ngpus: [1\n")


def test_a_short_file_that_unfolds_without_end_is_refused() -> None:
    text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))  # fmt: skip
    with pytest.raises(UserError, match="more than 100000 values"):
        jobs_in("f.yaml", text)


def test_several_documents_and_lists_are_several_jobs_in_order() -> None:
    text = "command: a\ngpus: 1\n---\n- {command: b, gpus: 2}\n- {command: c, gpus: 3}\n"
    assert [(spec.command, spec.gpus) for spec in jobs_in("f", text)] == [(["a"], 1), (["b"], 2), (["c"], 3)]


def test_options_win_over_the_file_field_by_field() -> None:
    text = "command: a\nnodes: 2\ngpus_per_node: 4\nenvironment: {A: 1, B: 2}\n"
    (spec,) = jobs_in("f", text, {"gpus": 3, "environment": {"B": "x"}})
    assert (spec.total_gpus, spec.nodes, spec.environment) == (3, None, {"A": "1", "B": "x"})


def test_a_submission_takes_along_the_folder_and_the_variables_that_say_which_python_is_meant() -> None:
    plain = {"command": ["python"], "gpus": 1, "output": "out.txt", "profile": "p.yaml",
             "checkpoint": {"directory": "c"}, "environment": {"A": "1"}}  # fmt: skip
    found = from_here(plain, "/home/me", {"PATH": "/venv/bin", "SECRET": "x", "DALLY_API_TOKEN": "y"})
    assert found == {**plain, "directory": "/home/me", "output": "/home/me/out.txt", "profile": "/home/me/p.yaml",
                     "checkpoint": {"directory": "/home/me/c"}, "environment": {"PATH": "/venv/bin", "A": "1"}}  # fmt: skip


SCRIPT = """#!/bin/bash
# trains
#SBATCH --job-name=bert -N 2
#SBATCH --gres=gpu:v100:4
#SBATCH --ntasks-per-node 4
#SBATCH -t 1-12:30:00 --partition=vision
#SBATCH --array=0-3
#SBATCH --dependency=afterok:12:13,afterany:5
#SBATCH --signal=B:USR1@120
#SBATCH --switches=1@10:00
#SBATCH --mail-type=END --export=A=1
#SBATCH --nice=5 -H -o out-%j.txt

python train.py "$@"
#SBATCH --this-is-too-late
"""


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.sh"
    path.write_text(text)
    return path


def test_sbatch_lines_say_what_a_job_of_ours_says(tmp_path: Path) -> None:
    read = read_jobs(script(tmp_path, SCRIPT), ["--epochs", "3"])
    (spec,) = read.specs
    assert spec.command == ["/bin/bash", "-c", SCRIPT, "job.sh", "--epochs", "3"]
    assert (spec.name, spec.nodes, spec.gpus_per_node, spec.gpu_type, spec.processes) == ("bert", 2, 4, "v100", "gpu")
    assert (spec.time_limit, spec.queue, spec.array) == (131400.0, "vision", "0-3")
    assert (spec.after, spec.after_ok) == (["5"], ["12", "13"])
    assert spec.checkpoint is not None and (spec.checkpoint.signal, spec.checkpoint.grace) == ("USR1", 120.0)
    assert spec.placement is not None and (spec.placement.preferred, spec.placement.wait) == ("rack", 600.0)
    assert (spec.environment, spec.priority, spec.hold, spec.output) == ({"A": "1"}, -5, True, "out-%j.txt")
    assert [note.partition(": ")[2] for note in read.notes] == ["--mail-type is left out: no mail is sent"]


@pytest.mark.parametrize(("line", "expected"), [
    ("--gpus=8", {"gpus": 8}),
    ("-G a100:8", {"gpus": 8, "gpu_type": "a100"}),
    ("--gpus=8 --nodes=1", {"gpus": 8, "placement": {"required": "machine"}}),
    ("--gres=gpu", {"nodes": 1, "gpus_per_node": 1}),
    ("--gpus-per-node=4 -N2", {"nodes": 2, "gpus_per_node": 4}),
    ("--gpus=1 --time=30", {"gpus": 1, "time_limit": 1800.0}),
    ("--gpus=1 --time=30:15", {"gpus": 1, "time_limit": 1815.0}),
    ("--gpus=1 --time=2:00:00", {"gpus": 1, "time_limit": 7200.0}),
    ("--gpus=1 --time=1-12", {"gpus": 1, "time_limit": 129600.0}),
    ("--gpus=1 --requeue", {"gpus": 1, "retries": 3}),
    ("--gpus=1 --no-requeue", {"gpus": 1, "retries": 0}),
    ("--gpus=1 --chdir=/tmp --priority=7", {"gpus": 1, "directory": "/tmp", "priority": 7}),
    ('--gpus=1 --job-name="two words" # and a remark', {"gpus": 1, "name": "two words"}),
    ("--gpus=1 --switches=1", {"gpus": 1, "placement": {"preferred": "rack", "wait": "forever"}}),
])  # fmt: skip
def test_each_option_becomes_a_field(tmp_path: Path, line: str, expected: dict[str, Any]) -> None:
    (spec,) = read_jobs(script(tmp_path, f"#!/bin/sh\n#SBATCH {line}\ntrue\n")).specs
    found = spec.plain()
    assert {name: value for name, value in found.items() if name != "command"} == {"name": "job.sh", **expected}


@pytest.mark.parametrize(("line", "sentence"), [
    ("--bogus=1", "--bogus: this option is not known here; remove the line, or say it in our own words (docs/formats/job.md)"),
    ("-Z", "'-Z' is no option of sbatch"),
    ("word", "'word' is no option of sbatch"),
    ("--gpus", "--gpus: it needs a value"),
    ("--gpus=0", "--gpus: '0' is no number of GPUs; write N or TYPE:N"),
    ("--gres=fpga:1", "--gres: 'fpga:1' is not here; write gpu:N or gpu:TYPE:N"),
    ("--time=soon", "--time: 'soon' is no time; write 30 (minutes), 2:00:00 or 1-12:00:00"),
    ("--nodes=1-4", "--nodes: '1-4': a range of nodes is not here; write one number"),
    ("--dependency=singleton", "--dependency: 'singleton': only after, afterany and afterok of all the jobs that are named are here"),
    ("--signal=FOO@1 --gpus=1", "checkpoint.signal: it must be one of TERM, INT, HUP, USR1, USR2, QUIT, ALRM, not 'FOO'"),
    ("--array=9-1 --gpus=1", "array: '9-1' is not an array: '9-1' counts nothing"),
    ("--export=NO_SUCH_VARIABLE_HERE", "--export: there is no variable NO_SUCH_VARIABLE_HERE here"),
    ("--job-name='x", "No closing quotation"),
])  # fmt: skip
def test_what_is_unknown_or_wrong_is_refused_with_its_line(tmp_path: Path, line: str, sentence: str) -> None:
    path = script(tmp_path, f"#!/bin/sh\n#SBATCH {line}\ntrue\n")
    with pytest.raises(UserError) as caught:
        read_jobs(path)
    assert str(caught.value) == f"{path}, line 2: {sentence}"


def test_a_script_that_asks_for_no_gpus_says_so_and_takes_them_from_the_options(tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/bash\ntrue\n")
    with pytest.raises(UserError, match="it asks for no GPUs"):
        read_jobs(path)
    assert read_jobs(path, over={"gpus": 2}).specs[0].gpus == 2


def test_a_script_needs_an_interpreter(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 1: a script begins with #!"):
        read_jobs(script(tmp_path, "echo hi\n"), over={"gpus": 1})


def test_a_script_of_an_interpreter_that_takes_no_text_is_run_where_it_is(tmp_path: Path) -> None:
    path = script(tmp_path, "#!/usr/bin/env perl\nprint 1;\n")
    assert read_jobs(path, ["x"], over={"gpus": 1}).specs[0].command == ["/usr/bin/env", "perl", str(path), "x"]


def test_srun_in_a_script_of_several_gpus_is_warned_of(tmp_path: Path) -> None:
    read = read_jobs(script(tmp_path, "#!/bin/bash\n#SBATCH --gpus=2\nsrun python x.py\n"))
    assert any("srun is not here" in note for note in read.notes)
