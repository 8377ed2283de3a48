"""Throughputs completed from a few measurements."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from dally.policies.gavel.estimator import Estimator, complete, spread

REFERENCE = Path(os.environ.get("DALLY_REFERENCE", Path(__file__).parents[4] / "shared"))


def test_a_matrix_of_products_is_completed_exactly_enough() -> None:
    rows, columns = np.array([1.0, 3.0, 10.0, 40.0, 7.0]), np.array([1.0, 2.0, 5.0])
    true = np.outer(rows, columns)
    partial = true.copy()
    partial[1, 2] = partial[3, 0] = partial[4, 1] = np.nan
    assert complete(partial) == pytest.approx(true, rel=0.02)


def test_known_entries_stay_as_they_are() -> None:
    matrix = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 11.0]])
    filled = complete(matrix)
    assert filled[np.isfinite(matrix)].tolist() == [1.0, 2.0, 3.0, 5.0, 11.0]
    assert filled[1, 1] == pytest.approx(6.3, rel=0.15)


def test_a_measurement_counts_half_against_the_value_before() -> None:
    learned = Estimator()
    learned.observe("a", (1, 0), 10.0)
    learned.observe("a", (1, 0), 20.0)
    assert learned.rates("a", ((1, 0),)) == (15.0,)
    learned.observe("a", (1, 1), math.inf)
    learned.observe("a", (1, 1), 0.0)
    assert not learned.estimates("a", ((1, 1),))[0].measured


def test_an_estimate_says_how_sure_it_is() -> None:
    learned = Estimator()
    for i in range(12):
        for column, speed in enumerate((1.0, 2.0, 6.0)):
            learned.observe(f"type {i}", (1, column), (i + 1) * speed * (1.0 + 0.1 * ((i + column) % 3)))
    learned.observe("new", (1, 0), 4.0)
    measured, guessed = learned.estimates("new", ((1, 0), (1, 2)))
    assert measured.measured and measured.low == measured.high == 4.0
    assert guessed.low < guessed.rate < guessed.high
    assert guessed.low < 24.0 < guessed.high


def test_nothing_measured_means_all_alike() -> None:
    assert Estimator().rates("anything", ((1, 0), (1, 1), (1, 2))) == (1.0, 1.0, 1.0)


def test_what_was_measured_is_all_an_estimator_knows() -> None:
    learned = Estimator()
    for i in range(9):
        learned.observe(f"type {i % 4}", (2 ** (i % 3), (i * 5) % 3), 1.0 + i)
    said = learned.measured
    assert learned.measured is said, "the same as long as nothing changes"
    again, ways = Estimator(said), tuple((gpus, column) for gpus in (1, 2, 4) for column in range(3))
    for kind in ("type 0", "type 3", "never seen", None):
        assert again.rates(kind, ways) == learned.rates(kind, ways)
    learned.observe("type 0", (1, 0), 77.0)
    assert learned.measured is not said


@pytest.mark.reference
@pytest.mark.parametrize(("hidden", "most"), [(0.3, 0.2), (0.5, 0.25), (0.7, 0.35)])
def test_hidden_rates_of_the_reference_table_are_found_again(hidden: float, most: float) -> None:
    path = REFERENCE / "reference/gavel/throughputs.json"
    if not path.is_file():
        pytest.skip("the reference results kept beside the repository are not there")
    from dally.catalog.throughputs import read_throughputs

    table = read_throughputs(path)
    models = dict.fromkeys(model for model, _ in table.job_types)
    ways = [(gpus, kind) for gpus in (1, 2, 4, 8) for kind in ("V100", "P100", "K80")]
    rates = np.array([[table.rate(model, *way) or np.nan for way in ways] for model in models])
    chance = np.random.default_rng(1)
    partial = np.where(chance.random(rates.shape) < hidden, np.nan, rates)
    for row in np.flatnonzero(np.isnan(partial).all(axis=1)):  # every job type was measured somewhere
        first = np.flatnonzero(np.isfinite(rates[row]))[0]
        partial[row, first] = rates[row, first]
    lost = np.isnan(partial) & np.isfinite(rates)
    error = np.abs(complete(partial)[lost] / rates[lost] - 1.0)
    print(f"{lost.sum()} of {np.isfinite(rates).sum()} hidden: median error {np.median(error):.1%}")
    assert np.median(error) < most
    assert 0.05 < spread(partial) < 1.5
