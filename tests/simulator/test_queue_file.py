"""Queues as people write them, and a simulation with them from the file to the figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.cli.main import cli as main
from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.core.queues import Queue
from dally.simulator.digests import _SAYS_NOTHING, trace_digest
from dally.simulator.queue_file import read_queues
from dally.simulator.scenario import Scenario
from dally.traces.trace import Trace

TEXT = "queues:\n  vision: {weight: 2, max_gpus: 64}\n  speech:\n  default:\n    max_jobs_per_user: 3\n"


def write(folder: Path, text: str) -> str:
    path = folder / "queues.yaml"
    path.write_text(text)
    return str(path)


def test_queues_are_read_in_the_order_given_with_their_defaults(tmp_path: Path) -> None:
    assert read_queues(write(tmp_path, TEXT)) == (
        Queue("vision", 2.0, 64), Queue("speech"), Queue("default", max_jobs_per_user=3))  # fmt: skip


@pytest.mark.parametrize(("text", "said"), [
    ("queues:\n  a: {weight: 1}\n  b:\n    wight: 2\n", r"line 4, queue 'b', wight: there is no such field; a queue has weight,"),
    ("queues:\n  a: {weight: 0}\n", "line 2, queue 'a', weight: input should be greater than 0"),
    ("queues:\n  a: {max_gpus: many}\n", "line 2, queue 'a', max_gpus: input should be a valid integer"),
    ("queues:\n  a: 7\n", "line 2, queue 'a': input should be a valid dictionary"),
    ("queues: {}\n", "there is no queue in it"),
    ("queues: [a]\n", "it needs a mapping `queues`"),
    ("a: {weight: 1}\n", "unknown field 'a'"),
    ("queues: {a: {weight: [}}\n", "it is not YAML"),
    ("queues: {1: {weight: 1}}\n", "1 is no name for a queue"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_in_a_sentence_that_says_where(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_queues(write(tmp_path, text))


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_queues(str(tmp_path / "none.yaml"))


def test_a_scenario_without_queues_is_written_down_as_ever() -> None:
    assert "queues" not in Scenario(trace="synth:helios", cluster="1x8").as_dict()


def test_the_digest_of_a_trace_changes_only_with_jobs_that_say_where_they_want_to_be() -> None:
    def digest(job: Job) -> str:
        return trace_digest(Trace("t", "none", [job], [Truth(1.0)]))

    plain = Job("a", 0.0, 1)
    written = repr((plain, Truth(1.0)))
    assert all(nothing in written for nothing in _SAYS_NOTHING)
    said = (replace(plain, within="rack"), replace(plain, preemptible=False), replace(plain, nodes=1))
    assert len({digest(job) for job in (plain, *said)}) == 4


def test_a_simulation_with_queues_has_figures_by_queue_and_its_journal_executes_again(tmp_path: Path) -> None:
    jobs = ["# dally-trace 1", "id,submit_time,gpus,duration,tenant,user"]
    jobs += [f"{queue}{i},{i},{1 + i % 4},{60 + 7 * i},{queue},u{i % 3}" for queue in ("vision", "speech", "other") for i in range(12)]
    (tmp_path / "jobs.csv").write_text("\n".join(jobs) + "\n")
    queues = write(tmp_path, "queues:\n  vision: {weight: 3}\n  speech: {max_gpus: 4}\n")
    common = ["--trace", str(tmp_path / "jobs.csv"), "--cluster", "1x2x4", "--queues", queues, "--quiet", "--network", "ideal"]
    ran = CliRunner().invoke(main, ["simulate", *common, "--policy", "srtf", "--out", str(tmp_path / "out"), "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.output)
    found = found[0] if isinstance(found, list) else found
    assert {name: row["jobs"] for name, row in found["queues"].items()} == {"vision": 12, "speech": 12, "default": 12}
    assert found["queues"]["vision"]["avg_jct"] < found["queues"]["speech"]["avg_jct"]
    checked = CliRunner().invoke(main, ["rerun", str(tmp_path / "out")])
    assert checked.exit_code == 0, checked.output
    told = CliRunner().invoke(main, ["explain", "speech9", str(tmp_path / "out")])
    assert "WaitingForQuota: queue speech uses" in told.output and "let in by its queue" in told.output
    compared = CliRunner().invoke(main, ["compare", *common, "--policies", "fifo,gandiva", "--json"])
    assert compared.exit_code == 0, compared.output
