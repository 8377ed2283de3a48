"""Jobs that are made in bulk are the jobs that are made one by one."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.core.job import Job, altered, made


@given(st.text(max_size=5), st.floats(0, 1e6), st.integers(1, 64), st.none() | st.text(max_size=3), st.booleans())
def test_a_job_made_quickly_is_the_same_job(name: str, submit: float, gpus: int, model: str | None, stays: bool) -> None:
    plain = Job(name, submit, gpus, model=model, preemptible=not stays)
    quick = made(name, submit, gpus, model=model, preemptible=not stays)
    assert type(quick) is Job and quick == plain and hash(quick) == hash(plain) and repr(quick) == repr(plain)
    assert pickle.loads(pickle.dumps(quick)) == plain
    assert altered(quick, gpus=gpus + 1, user="u") == replace(plain, gpus=gpus + 1, user="u")


def test_a_job_made_quickly_is_as_frozen_as_any() -> None:
    with pytest.raises(FrozenInstanceError):
        made("a", 0.0, 1).gpus = 2  # type: ignore[misc]
