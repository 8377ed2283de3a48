"""The lower bound is computed unless somebody does without; digests and figures of many jobs are what they were of few."""

from __future__ import annotations

import hashlib

import pytest

import dally
from dally.simulator.digests import _SAYS_NOTHING, trace_digest
from dally.simulator.scenario import Scenario
from dally.traces import synthesise

ASKED = {"trace": "synth:helios", "jobs": 60, "load": 1.1, "cluster": "1x2x8", "seed": 3}


def test_without_the_bound_all_other_figures_stay() -> None:
    whole, without = (dally.simulate("srtf", **ASKED, bound=bound) for bound in (None, False))
    assert whole.figures["lower_bound"]["avg_jct"] > 0
    assert without.figures["lower_bound"]["avg_jct"] is None and without.figures["avg_jct_over_bound"] is None
    changed = {name for name, value in whole.figures.items() if without.figures[name] != value}
    assert changed <= {"lower_bound", "avg_jct_over_bound", "makespan_over_bound", "cpu_seconds", "jobs_per_cpu_second"}


@pytest.mark.parametrize("bound", [True, False])
def test_the_choice_is_part_of_the_command_that_makes_it_again(bound: bool) -> None:
    assert ("--bound" if bound else "--no-bound") in Scenario.of({**ASKED, "bound": bound}).arguments()
    assert "bound" not in Scenario.of(ASKED).as_dict()  # scenarios written before say the same as ever


def test_the_digest_of_a_trace_is_that_of_its_jobs_as_python_shows_them() -> None:
    trace = synthesise("dally-poisson", jobs=40, seed=2)
    whole = hashlib.sha256()
    for pair in zip(trace.jobs, trace.truths, strict=True):
        text = repr(pair)
        for nothing in reversed(_SAYS_NOTHING):
            text = text.replace(nothing, "")
        whole.update(text.encode())
    assert trace_digest(trace) == whole.hexdigest()
