"""Asking changes nothing: a run that is asked in vain before every decision, whose policy is replaced by what its memory
says as text, and that tries broken plans, is the same run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from disturbed import disturbed
from every_policy import NAMES, Case, cases
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Flat, play
from dally.simulator.faults import StartRules


def journal_of(case: Case, starts: StartRules) -> object:
    return play(case.jobs, case.topology, case.policy, network=case.network, cost=Flat(*case.cost), faults=case.faults(),
                starts=starts, instants=30_000).instants  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_asking_changes_nothing(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(name))
    starts = data.draw(st.sampled_from([StartRules(), StartRules(2.0), StartRules(3.0, 0.3, 1)]))
    plain = journal_of(case, starts)
    with disturbed(data.draw(st.integers(0, 99)), asks=2, rebirths=data.draw(st.sampled_from([0.0, 0.3]))):
        assert journal_of(replace(case), starts) == plain
