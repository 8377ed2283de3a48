"""What a person sees of a step: placements as written, sensitivity, the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fabrics import cluster, place

from dally.cli.network import command
from dally.core.errors import UserError
from dally.network.analytic import Analytic
from dally.network.explain import explain_step, parse_placement
from dally.network.sensitivity import sensitivity, shape_text

TOPOLOGY = cluster()


@pytest.mark.parametrize(("text", "gpus", "expected"), [
    (None, 8, [(0, 8)]),
    (None, 12, [(0, 8), (1, 4)]),
    (None, 40, [(0, 8), (1, 8), (2, 8), (3, 8), (4, 8)]),
    ("4+4", None, [(0, 4), (1, 4)]),
    ("3+5", 8, [(0, 3), (1, 5)]),
    ("4+4|8", 16, [(0, 4), (1, 4), (3, 8)]),
    ("rack0/m1:4,rack1/m0:4", None, [(1, 4), (3, 4)]),
])  # fmt: skip
def test_placements_are_read_as_people_write_them(text, gpus, expected) -> None:
    assert parse_placement(text, TOPOLOGY, gpus) == place(*expected)


@pytest.mark.parametrize(("text", "gpus", "said"), [
    ("9", None, "no rack left in cluster '3x3x8' has machines for 9"),
    ("4+4+4+4", None, "has machines for 4\\+4\\+4\\+4"),
    ("4|4|4|4", None, "no rack left"),
    ("0+4", None, "at least one GPU"),
    ("4+4", 9, "has 8 GPUs, not 9"),
    ("rack9/m0:4", None, "has no machine 'rack9/m0'"),
    ("rack0/m0:9", None, "has 8 GPUs, not 9"),
    ("rack0/m0:4,rack0/m0:2", None, "is there twice"),
    ("here", None, "neither counts such as 4\\+4 nor MACHINE:GPUS"),
    (None, 1000, "has 72 GPUs, not 1000"),
    (None, None, "give the number of GPUs"),
])  # fmt: skip
def test_a_wrong_placement_is_refused_in_one_sentence(text, gpus, said) -> None:
    with pytest.raises(UserError, match=said):
        parse_placement(text, TOPOLOGY, gpus)


def test_sensitivity_compares_every_level_with_one_machine() -> None:
    rows = sensitivity(Analytic(TOPOLOGY), "vgg16", 8)
    assert [(row.level, row.shape) for row in rows] == [("machine", "8"), ("rack", "4+4"), ("cluster", "4|4")]
    assert rows[0].ratio == 1.0
    assert 1.0 < rows[1].ratio < rows[2].ratio
    assert not any(row.imagined for row in rows)


def test_a_gang_larger_than_a_machine_is_compared_with_an_imagined_one() -> None:
    rows = sensitivity(Analytic(TOPOLOGY), "vgg16", 20)
    assert rows[0].imagined
    assert [row.shape for row in rows] == ["20", "8+8+4", "8+2|8+2"]


def test_a_report_says_what_the_step_is_made_of() -> None:
    network = Analytic(cluster(nic=1.25e9, islands=True))
    report = explain_step(network, "bert-large", place((0, 3), (1, 5)))
    assert report.placement == "5+3"
    assert "bert-large on 8 × V100 (5+3, data 8)" in report.sentence
    assert report.timeline[-1].end == pytest.approx(report.profile.alone)
    assert {row[0] for row in report.phases()} == {"compute", "network"}
    assert [row[0] for row in report.bytes_rows()] == ["island", "machine", "rack", "cluster"]
    assert [row[0] for row in report.sensitivity_rows()] == ["machine", "rack", "cluster"]
    with pytest.raises(UserError, match="there is no model"):
        explain_step(network, "nonet", place((0, 3)))


def test_the_shape_of_a_placement_is_written_like_a_placement() -> None:
    network = Analytic(TOPOLOGY)
    assert shape_text(network.shapes.of(place((0, 3), (1, 5), (4, 2))), 0) == "5+3|2"


def test_the_command_prints_figures_and_draws_a_timeline(tmp_path: Path) -> None:
    page = tmp_path / "step.html"
    arguments = ["step", "--model", "resnet50", "--placement", "4+4", "--levels", "--json", "--plot", str(page)]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["placement"] == "4+4"
    assert figures["step_seconds"] == pytest.approx(figures["compute_seconds"] + figures["exposed_seconds"])
    assert "plotly" in page.read_text(encoding="utf-8").lower()
    table = CliRunner().invoke(command, ["step", "-m", "resnet50", "-g", "8", "--levels"])
    assert "Network sensitivity" in table.output


def test_the_check_fails_beyond_its_tolerance(tmp_path: Path) -> None:
    header = ("topology_per_dim,npus_per_dim,bw_GiBps_per_dim,latency_ns_per_dim,collective_alg_per_dim,"
              "collective_optimization,preferred_dataset_splits,active_chunks_per_dim,num_queues_per_dim,"
              "endpoint_delay_ns,local_mem_bw_GBps,message_bytes,backend,finish_ns\n")  # fmt: skip
    row = "Switch,4,100,500,ring,localBWAware,1,1,1,10,1600,1048576,unaware,"
    table = tmp_path / "runs.csv"
    table.write_text(f"{header}{row}1\n")
    assert CliRunner().invoke(command, ["check", str(table)]).exit_code == 1
    table.write_text(f"{header}{row}21000\n")
    passed = CliRunner().invoke(command, ["check", str(table), "--tolerance", "0.5"])
    assert passed.exit_code == 0, passed.output
    assert "1 rows of collectives" in passed.output
