"""The reproduction of Tiresias' comparison: its workload is what it says, and its gains are ratios of JCTs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dally.simulator.reproduce import tiresias as paper
from dally.traces.synth import offered_load


@pytest.mark.parametrize("setting", [paper.TESTBED, paper.QUICK])
@pytest.mark.parametrize("load", [0.5, 2.0])
def test_the_workload_offers_the_load_asked_for(setting: paper.Setting, load: float) -> None:
    trace = paper.workload(setting, 1, 400, load)
    assert len(trace) == setting.jobs
    assert offered_load(trace, 400) == pytest.approx(load, rel=0.01)


def test_the_same_seed_draws_the_same_jobs_and_another_does_not() -> None:
    first, again, other = (paper.workload(paper.TESTBED, seed, 60, 1.0) for seed in (1, 1, 2))
    assert first.jobs == again.jobs and first.truths == again.truths
    assert first.jobs != other.jobs


def test_every_model_of_the_workload_is_in_the_catalog() -> None:
    from dally.catalog import find_model

    assert all(find_model(name).skew > 0 for name in paper.MODELS)


def test_gains_are_ratios_of_completion_times() -> None:
    setting = replace(paper.TESTBED, jobs=60, network="ideal")
    _, runs = paper.compare(setting, 0, 4.0, workers=1)
    fifo, las = runs[0], runs[paper.POLICIES.index(paper.LAS)]
    mean = {run.policy: sum(row.jct or 0.0 for row in run.ledger.rows) / 60 for run in (fifo, las)}
    found = paper.gain(las, fifo)
    assert found.average == pytest.approx(mean[fifo.policy] / mean[las.policy])
    assert found.average > 1.1
    assert paper.gain(fifo, fifo) == paper.Gain(1.0, 1.0, 1.0)


def test_a_spread_names_the_least_and_the_most() -> None:
    assert paper.spread([2.0]) == "2.00 ×"
    assert paper.spread([1.0, 3.0]) == "2.00 × (1.00–3.00)"


def test_gandiva_is_compared_with_and_its_figure_is_published_for_the_simulation_only() -> None:
    def texts(setting: paper.Setting) -> set[str]:
        return {said.text for said in setting.published if said.against in (paper.GANDIVA, paper.TURNS)}

    assert {paper.GANDIVA, paper.TURNS} <= set(paper.POLICIES)
    assert texts(paper.SIMULATION) == {"2 ×"} and texts(paper.TESTBED) == {"–"}
    assert set(paper.TITLES) == set(paper.POLICIES)
