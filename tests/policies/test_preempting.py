"""Preemption as a choice: free, worth what it costs, or never; what it costs is what was seen."""

from __future__ import annotations

import pytest

from builders import Flat, Timed, cluster, job, play, seeded_trace
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.policy import View
from dally.core.prices import Prices
from dally.policies.options import describe_options, load_policy_class, make_policy

CHOOSE = ["dally", "dally[timers=auto]", "las", "smallest", "srtf", "tiresias", "tiresias[continuous=true]",
          "tiresias[index=gittins]"]  # fmt: skip


def with_option(policy: str, choice: str) -> str:
    name, _, rest = policy.removesuffix("]").partition("[")
    return f"{name}[{rest + ',' if rest else ''}preempt={choice}]"


@pytest.mark.parametrize("policy", CHOOSE)
def test_where_nobody_is_preempted_nobody_leaves_its_gpus_before_its_end_and_everybody_ends(policy: str) -> None:
    jobs = seeded_trace(5, jobs=60, sizes=(1, 1, 2, 3, 4, 8), span=1500, longest=1500)
    played = play(jobs, cluster(2, 2, 4), with_option(policy, "never"), network="level-penalty", cost=Flat(2, 3))
    assert {row.outcome for row in played.run.ledger.rows} == {"finished"}
    assert not played.of(pl.Preempt) and not played.of(pl.Migrate)
    assert all(action.lease is None for _, action in played.of(pl.Start))  # type: ignore[union-attr]


def test_every_policy_that_ranks_running_jobs_has_the_choice() -> None:
    chosen = {policy.partition("[")[0] for policy in CHOOSE}
    for name in sorted(chosen):
        assert "preempt" in {each.name for each in describe_options(load_policy_class(name))}
        assert make_policy(name).preempts and not make_policy(f"{name}[preempt=never]").preempts


def test_what_a_preemption_costs_is_learned_from_what_happened() -> None:
    prices: list[float] = []

    def look(view: View, now: float) -> None:
        prices.append(view.price(view.job("a")))

    plans = Timed({0.0: [pl.Start("a", cluster_slice(0b11))], 50.0: [pl.Preempt("a")],
                   100.0: [pl.Start("a", cluster_slice(0b11))], 150.0: []}, look)  # fmt: skip
    play([job("a", 2, 100), job("tick", 9, 1, 150)], cluster(1, 2), plans, cost=Flat(4, 3))
    assert prices[0] == 0.0  # nobody has been preempted yet
    assert prices[-1] == 7.0


def cluster_slice(mask: int) -> object:
    from dally.core.placement import Placement

    return Placement.of([(0, mask)])


def test_prices_are_those_of_the_same_model_and_size_else_of_all_and_read_back_the_same() -> None:
    small, large, other = (Job("s", 0, 1, model="bert"), Job("l", 0, 8, model="bert"), Job("o", 0, 2))
    prices = Prices()
    prices.left(small, 2.0)
    prices.came_back(small, 3.0)
    prices.left(large, 40.0)
    assert prices.of(small) == 5.0
    assert prices.of(large) == 43.0  # nobody of its size has come back yet
    assert prices.of(other) == pytest.approx(0.8 * 2 + 0.2 * 40 + 3)
    again = Prices()
    again.load(prices.save())
    assert again.save() == prices.save() and again.of(other) == prices.of(other)


def test_where_it_is_costly_a_job_works_ten_times_the_price_before_it_can_lose_its_gpus_again() -> None:
    # each new job has had less service than the one that runs
    jobs = [job(f"j{i}", 2, 4000, 10.0 * i) for i in range(4)]
    cost = Flat(20, 30)
    free = play(jobs, cluster(1, 2), "las[quantum=60s]", cost=cost)
    costly = play(jobs, cluster(1, 2), "las[quantum=60s,preempt=costly]", cost=cost)
    assert len(costly.of(pl.Preempt)) < len(free.of(pl.Preempt)) / 4
    assert sum(costly.jcts().values()) < sum(free.jcts().values())  # type: ignore[arg-type]
    leases = [action.lease for _, action in costly.of(pl.Start)]  # type: ignore[union-attr]
    assert leases[0] == 60.0 and max(leases) >= 500.0


def test_the_released_simulator_has_no_such_choice() -> None:
    from dally.core.errors import UserError

    with pytest.raises(UserError, match="what was released"):
        make_policy("tiresias[variant=released,preempt=never]")
