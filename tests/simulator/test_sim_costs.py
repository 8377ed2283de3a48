"""Prices of preemption by text."""

from __future__ import annotations

import pytest

from dally.catalog import find_model
from dally.core.errors import UserError
from dally.core.job import Job
from dally.simulator.costs import STORAGE_BANDWIDTH, UNKNOWN_MODEL_BYTES, MigrationCost, make_cost, switch_cost

NAMELESS = Job("a", 0.0, 1)


@pytest.mark.parametrize(("text", "price"), [("0", 0), ("30s", 30), ("1m", 60), ("2.5", 2.5)])
def test_a_time_is_paid_when_the_job_comes_back(text: str, price: float) -> None:
    cost = make_cost(text)
    assert (cost.save(NAMELESS), cost.restore(NAMELESS)) == (0, price)


def test_by_model_it_is_paid_once_to_save_and_once_to_load() -> None:
    bert = Job("b", 0.0, 1, model="bert")
    cost = make_cost("model")
    seconds = find_model("bert").checkpoint_bytes / STORAGE_BANDWIDTH
    assert (cost.save(bert), cost.restore(bert)) == (seconds, seconds)
    faster = make_cost("model[storage=8 GB/s]")
    assert faster.save(bert) == pytest.approx(seconds / 4)


def test_after_dallys_authors_gpus_come_back_a_second_later_for_each_of_them() -> None:
    eight = Job("d", 0.0, 8)
    cost = make_cost("original")
    assert (cost.save(eight), cost.restore(eight)) == (8, 0)


def test_after_gandiva_a_migration_is_a_line_through_one_and_eight_gpus_and_suspending_has_its_own_price() -> None:
    cost = make_cost("gandiva")
    assert isinstance(cost, MigrationCost)
    assert (cost.save(NAMELESS), cost.restore(NAMELESS), switch_cost(cost)) == (0.1, 0.1, 0.1)
    assert [cost.migrate(NAMELESS, gpus) for gpus in (1, 8)] == [1.5, 35.0]
    assert cost.migrate(NAMELESS, 16) == pytest.approx(35 + 8 * 33.5 / 7)
    assert switch_cost(make_cost("gandiva[suspend=50ms]")) == 0.05
    assert switch_cost(make_cost("30s")) == 0.1
    assert not isinstance(make_cost("model"), MigrationCost)


@pytest.mark.parametrize("model", [None, "a model nobody knows"])
def test_an_unknown_model_is_taken_to_be_of_the_assumed_size(model: str | None) -> None:
    assert make_cost("model").save(Job("c", 0.0, 1, model=model)) == UNKNOWN_MODEL_BYTES / STORAGE_BANDWIDTH


@pytest.mark.parametrize("text", ["", "free", "-5s", "model[", "model[]", "model[disk=5GB/s]",
                                  "model[storage=5]", "model[storage=0 GB/s]", "model[storage=-1 GB/s]",
                                  "30s[x=1]", "nan", "gandiva[", "gandiva[x=1]", "gandiva[suspend=-1s]"])  # fmt: skip
def test_what_is_no_price_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UserError) as caught:
        make_cost(text)
    assert "\n" not in str(caught.value)
