"""The Gittins index: against its definition, and the released simulator's own version of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.core.errors import UserError
from dally.policies.tiresias.gittins import Distribution, ReleasedIndex, read_distribution
from dally.policies.tiresias.memory import Service
from dally.policies.tiresias.remembered import PaperMemory

samples = st.lists(st.integers(1, 40).map(float) | st.floats(0.5, 1e4), min_size=1, max_size=25)


def by_definition(totals: list[float], attained: float, limit: float) -> float:
    """P(S ≤ limit | S > a) / E[min(S, limit) − a | S > a]."""
    left = [total for total in totals if total > attained]
    spent = sum(min(total, limit) - attained for total in left)
    return sum(total <= limit for total in left) / spent if left else 0.0


@given(samples, st.floats(0, 60), st.floats(0.1, 100))
def test_the_index_of_a_queue_is_chance_over_expected_service(
    totals: list[float], attained: float, delta: float
) -> None:
    expected = by_definition(totals, attained, attained + delta)
    assert Distribution(totals).until(attained, attained + delta) == pytest.approx(expected, rel=1e-6)


@given(samples, st.floats(0, 60))
def test_the_continuous_index_is_the_best_over_every_delta(totals: list[float], attained: float) -> None:
    expected = max((by_definition(totals, attained, end) for end in totals if end > attained), default=0.0)
    assert Distribution(totals).supremum(attained) == pytest.approx(expected, rel=1e-6)


@given(samples, st.floats(0, 60), st.floats(0.1, 1e4))
def test_no_single_delta_beats_the_supremum(totals: list[float], attained: float, delta: float) -> None:
    known = Distribution(totals)
    assert known.until(attained, attained + delta) <= known.supremum(attained) * (1 + 1e-6)


def test_a_job_that_has_had_more_than_anybody_before_has_index_zero() -> None:
    known = Distribution([10.0, 20.0])
    assert known.supremum(20.0) == known.until(25.0, 100.0) == 0.0


def test_what_is_learned_counts_from_the_next_fit_on() -> None:
    service, memory = Service(None), PaperMemory()
    memory.totals["a"] = 10.0
    assert service.known.supremum(0.0) == 0.0
    assert service.fit(memory)
    assert service.known.supremum(0.0) == pytest.approx(1 / 10)


def test_fitting_again_is_wanted_a_logarithmic_number_of_times() -> None:
    service, memory = Service(None), PaperMemory()
    fits = 0
    for total in range(1, 2001):
        memory.totals[f"j{total}"] = float(total)
        fits += service.fit(memory)
    assert fits < 80
    assert len(service.known.samples) > 2000 / 1.2


def test_whoever_begins_with_a_memory_knows_what_was_fitted_and_not_what_came_after() -> None:
    service, memory = Service(None), PaperMemory()
    for total in range(100, 0, -1):
        memory.totals[f"j{total}"] = float(total)
        service.fit(memory)
    assert len(memory.totals) > memory.fitted
    again = Service(None)
    again.attach(memory)
    assert again.known.samples == service.known.samples


def test_the_released_index_is_rounded_half_away_from_zero() -> None:
    # 64 equal samples and a larger one: 63 of 65… the chance 1/64 = 0.015625 must become 0.01563
    index = ReleasedIndex([1.0] + [5000.0] * 63)
    # one of 64 ends within 3250; expected service (1 + 63 × 3250) // 64 = 3199
    assert index(0.0) == round(0.01563 * 1_000_000 / 3199, 4)


def test_the_released_index_is_constant_up_to_the_next_sample() -> None:
    index = ReleasedIndex([100.0, 200.0, 9000.0])
    assert index(0.0) == index(99.0) != index(100.0)
    assert index.next_change(0.0) == 100.0
    assert index.next_change(100.0) == 200.0
    assert index.next_change(9000.0) is None
    assert index(9000.0) == 0.0


@pytest.mark.parametrize(("text", "said"), [
    ("seconds\n3\n", "line 1"), ("duration\n3\nx\n", "line 3"), ("duration\n-1\n", "line 2"), ("duration\n", "no dur"),
])  # fmt: skip
def test_a_bad_distribution_is_refused_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "d.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_distribution(path)


def test_a_missing_distribution_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.csv"):
        read_distribution(tmp_path / "gone.csv")
