"""Ranks as lines over time, kept in buckets; and the fixed list of reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.core.active import ActiveJob
from dally.core.job import Job
from dally.core.ranking import Rank, Ranking
from dally.core.reasons import Tier, Token

SLOPES = {1: 0.0, 2: -1.0, 4: 2.5}  # by size: jobs of one demand age alike
ranks = st.tuples(st.sampled_from(sorted(SLOPES)), st.integers(-20, 20), st.integers(0, 2), st.integers(0, 1))


def active(number: int, gpus: int) -> ActiveJob:
    return ActiveJob(Job(f"j{number}", 0.0, gpus), number, 0.0)


@given(st.lists(ranks, max_size=30), st.integers(0, 40), st.sets(st.integers(0, 29)))
def test_the_order_at_any_time_is_that_of_sorting_the_lines_anew(
    rows: list[tuple[int, int, int, int]], now: int, gone: set[int]
) -> None:
    ranking = Ranking()
    jobs = [active(i, row[0]) for i, row in enumerate(rows)]
    for member, (gpus, base, then, tie) in zip(jobs, rows, strict=True):
        ranking.add(member, Rank(float(base), SLOPES[gpus], float(then), 0.0, (float(tie),)))
    for index in gone:
        if index < len(jobs):
            ranking.discard(jobs[index])
    left = [i for i in range(len(jobs)) if i not in gone]
    naive = sorted(left, key=lambda i: (rows[i][1] + SLOPES[rows[i][0]] * now, rows[i][2], rows[i][3], i))
    assert [job.number for job in ranking.ordered(now)] == naive
    assert len(ranking) == len(left) == len(list(ranking))
    assert all(len(bucket) for bucket in ranking.buckets.values())  # empty buckets are dropped
    for bucket in ranking.buckets.values():
        keys = [bucket.key(position, now) for position in range(len(bucket))]
        assert keys == sorted(keys)


def test_jobs_of_one_demand_with_different_slopes_are_refused() -> None:
    ranking = Ranking()
    ranking.add(active(0, 2), Rank(0.0, 1.0))
    with pytest.raises(ValueError, match="must age alike"):
        ranking.add(active(1, 2), Rank(0.0, 2.0))


def test_taking_out_a_job_that_is_not_there_changes_nothing() -> None:
    ranking = Ranking()
    ranking.add(active(0, 1), Rank(0.0))
    ranking.discard(active(7, 1))
    assert "j0" in ranking and "j7" not in ranking and len(ranking) == 1


def test_reason_tokens_are_unique_words_ordered_from_structural_to_passing() -> None:
    labels = [token.label for token in Token]
    assert len(set(labels)) == len(labels)
    assert all(label.isalnum() and label[0].isupper() for label in labels)
    tiers = [token.tier.value for token in Token]
    assert tiers == sorted(tiers)
    assert {token.tier for token in Token} == set(Tier)
