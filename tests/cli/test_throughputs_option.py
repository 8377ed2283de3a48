"""`--throughputs`: traces in steps run under every policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Dally

ROW = "{model}\tcmd\tdir\t--steps\t1\t{steps}\t{gpus}\t1\t-1\t{arrival}\n"


@pytest.fixture
def files(tmp_path: Path) -> None:
    rows = [ROW.format(model="a", steps=900 * (i + 1), gpus=1 + i % 2, arrival=100 * i) for i in range(6)]
    (tmp_path / "jobs.trace").write_text("".join(rows))
    rates = {f"('a', {gpus})": {"null": 1.0 * gpus} for gpus in (1, 2)}
    slow = {name: {"null": 0.3} for name in rates}
    (tmp_path / "throughputs.json").write_text(json.dumps({"v100": rates, "k80": slow}))


@pytest.mark.parametrize("policies", ["fifo,srtf,las,tiresias,gavel,gavel[variant=released]"])
def test_a_trace_in_steps_runs_under_every_policy(dally: Dally, files: None, policies: str) -> None:
    done = dally("compare", "-t", "jobs.trace", "--throughputs", "throughputs.json", "-c", "v100=2,k80=2", "-p", policies,
                 "--workers", "1", "--json", "-q")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [run["finished"] for run in json.loads(done.stdout)] == [6] * 6


def test_a_table_that_is_not_there_is_one_sentence(dally: Dally, files: None) -> None:
    done = dally("simulate", "-t", "jobs.trace", "-c", "v100=2,k80=2", "-p", "fifo", "--throughputs", "no.json")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("throughputs no.json: cannot be read: No such file or directory")
