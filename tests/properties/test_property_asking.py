"""Asking changes nothing: a run that is asked in vain before every decision, whose policy is replaced by what its memory
says as text, and that tries broken plans, is the same run."""

from __future__ import annotations

import pytest
from disturbed import disturbed
from every_policy import NAMES, cases
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_asking_changes_nothing(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(name))
    plain = case.play().instants
    with disturbed(data.draw(st.integers(0, 99)), asks=2, rebirths=data.draw(st.sampled_from([0.0, 0.3]))):
        assert case.play().instants == plain
