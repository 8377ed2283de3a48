"""numpy without threads, and figures that do not depend on how many it has."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from dally.simulator.threads import ONE_THREAD, import_numpy, inner


@pytest.mark.parametrize("length", [0, 1, 9_999, 10_000])
def test_an_inner_product_is_numpys_where_that_is_not_shared_out(length: int) -> None:
    chance = np.random.default_rng(1)
    first, second = chance.random(length), chance.integers(0, 640, length)
    assert inner(first, second) == float(first @ second)


def test_a_long_one_is_the_same_with_any_number_of_threads() -> None:
    code = ("import numpy as np; from dally.simulator.threads import inner; c = np.random.default_rng(1); "
            "print(repr(inner(c.random(123_457), c.random(123_457))))")  # fmt: skip
    said = {subprocess.run([sys.executable, "-c", code], env={**os.environ, ONE_THREAD: threads}, capture_output=True,
                           text=True, check=True).stdout for threads in ("1", "2", "4")}  # fmt: skip
    assert len(said) == 1


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ONE_THREAD, raising=False)
    import_numpy()
    assert ONE_THREAD not in os.environ
    monkeypatch.setenv(ONE_THREAD, "3")
    import_numpy()
    assert os.environ[ONE_THREAD] == "3"
