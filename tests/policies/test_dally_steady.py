"""Leases that are extended without a round of offers: what comes of it is what a round would have come to."""

from __future__ import annotations

import hashlib
import random

import pytest

from dally.core.journal_text import JournalText
from dally.policies.dally.offers import _to_billionths
from dally.policies.dally.steady import Steady
from dally.simulator.scenario import Scenario

pytestmark = pytest.mark.pure  # a method is replaced


def digest(world: dict[str, object], policy: str) -> str:
    experiment = Scenario.of(world).prepare()
    found, text = hashlib.sha256(), JournalText(experiment.topology)
    experiment.run(policy, listeners=(lambda instant: found.update(text.encode(instant).encode()),))
    return found.hexdigest()


@pytest.mark.parametrize("seed, cluster, load, options, more", [
    (1, "2x4x4", 1.0, "", {}), (2, "2x2x8", 0.8, ",lease=600", {"mtbf": "20h"}),
    pytest.param(3, "v100=16,p100=16", 1.3, ",lease=120,window=4", {}, marks=pytest.mark.slow), (5, "2x4x4", 0.8, ",lease=300", {"preemption_cost": "30s"}),
])  # fmt: skip
def test_a_round_that_would_end_like_the_last_one_need_not_be_held(
    seed: int, cluster: str, load: float, options: str, more: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = {"trace": "synth:philly", "cluster": cluster, "jobs": 100, "load": load, "seed": seed, **more}
    policy, again, used = f"dally[timers=auto{options}]", Steady.plan_again, []

    def counted(*words: object) -> object:
        used.append(again(*words))  # type: ignore[arg-type]
        return used[-1]

    monkeypatch.setattr(Steady, "plan_again", counted)
    found = digest(world, policy)
    assert any(plan is not None for plan in used), "nothing was tested"
    monkeypatch.setattr(Steady, "holds", lambda *_: False)
    assert digest(world, policy) == found


def test_a_sensitivity_is_rounded_as_by_way_of_decimal_digits() -> None:
    chance = random.Random(0)
    values = [0.0, 1.0, 1e-10, 5e-10, 1.5e-9, 1e3, 2e3, -0.25, float("inf"), *(chance.random() for _ in range(20_000))]
    values += [chance.randrange(4_000_000_000) / 2e9 for _ in range(5_000)]  # half-way, as far as floats can be
    values += [chance.uniform(0, 900) for _ in range(5_000)]
    assert [_to_billionths(value).hex() for value in values] == [round(value, 9).hex() for value in values]
