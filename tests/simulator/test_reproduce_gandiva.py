"""The reproduction of Gandiva's figures: its workload is what it says, and what is measured is counted right."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import cluster, job, play
from dally.simulator.reproduce import gandiva as paper
from dally.simulator.reproduce.useful_work import UsefulWork
from dally.traces.synth import offered_load


@pytest.mark.parametrize("mix", paper.MIXES)
def test_the_workload_offers_the_load_asked_for_with_models_of_the_catalog(mix: str) -> None:
    from dally.catalog import find_model

    trace = paper.workload(300, 1, 180, 1.7, mix)
    assert offered_load(trace, 180) == pytest.approx(1.7, rel=0.01)
    assert all(find_model(each.model or "").utilization > 0 for each in trace.jobs)
    assert trace.jobs == paper.workload(300, 1, 180, 1.7, mix).jobs != paper.workload(300, 2, 180, 1.7, mix).jobs


def test_mini_batches_and_useful_work_are_counted_from_the_journal() -> None:
    tree = cluster(4)
    specs = [job("a", 4, 400), job("b", 4, 400, 10), job("short", 4, 50, 5000)]
    played = play(specs, tree, "gandiva[packing=false]")
    seen = UsefulWork(tree, 600.0)
    for now, entry in played.entries:
        seen.see(now, entry)
    first = paper.Outcome("gandiva", played.run, seen).first_hundred()
    # alone for 10 s, then every second turn, 100 ms of 60 s lost with each; a mini-batch takes a second
    assert first["a"] == pytest.approx(10 + 2 * 90, rel=0.01)
    assert first["b"] == pytest.approx(200, rel=0.01)
    assert "short" not in first
    assert seen.throughput() == pytest.approx(4, rel=0.01)  # all four GPUs did useful work until the window ended
    assert seen.share_apart() == 0.0


def test_gangs_that_are_apart_are_counted_over_time() -> None:
    tree = cluster(2, 4)
    played = play([job("x", 3, 100), job("y", 3, 1000), job("gang", 2, 900, 0.0)], tree, "gandiva[packing=false]")
    seen = UsefulWork(tree, 1000.0)
    for now, entry in played.entries:
        seen.see(now, entry)
    assert seen.actions["Migrate"] == 1
    # till 100 s three gangs of which one is apart, then two of which none is
    assert seen.share_apart(100.0) == pytest.approx(1 / 3, rel=0.01)
    assert seen.share_apart(900.0, 200.0) == 0.0


def test_searching_with_turns_and_stops_is_faster_than_one_after_the_other() -> None:
    found = paper.search(4, 0)
    assert found.exclusive == pytest.approx(4 * paper.FULL, rel=0.01)
    assert found.gandiva < found.exclusive_with_stops < found.exclusive
    ranks = [each.id for each in paper.search_trace(64, 0, stops=True).jobs]
    assert len(set(ranks)) == 64


def test_a_comparison_is_the_same_for_the_same_seed() -> None:
    texts = []
    for _ in range(2):
        _, (exclusive, shared) = paper.compare(150, 3, 4.0, "light", (paper.EXCLUSIVE, paper.GANDIVA))
        texts.append((shared.seen.useful, exclusive.seen.useful, paper.feedback_gain(shared, exclusive)))
    assert texts[0] == texts[1]
    assert paper.feedback_gain(exclusive, exclusive) == 1.0
    assert paper.spread([2.0]) == "2.00" and paper.spread([1.0, 3.0], 1) == "2.0 (1.0–3.0)"


def test_the_command_prints_published_beside_measured_and_writes_reports(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from dally.cli.reproduce import command

    done = CliRunner().invoke(command, ["gandiva", "--jobs", "60", "--draws", "1", "--quiet", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "+26 %" in done.output and "4.5 × sooner" in done.output and "up to an order of magnitude" in done.output
    assert {path.name for path in tmp_path.iterdir()} == {"gandiva-catalog.html", "gandiva-light.html", "provenance.json"}
