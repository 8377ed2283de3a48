"""A lane remembers whom it has passed over: it must not pass over anybody else for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dally.core.active import ActiveJob
from dally.core.job import Job
from dally.core.plan import Demand
from dally.core.ranking import Entry
from dally.policies.dally.lanes import Lane

STAGES = 3


def entry(number: int, first: float) -> Entry:
    job = ActiveJob(Job(f"j{number}", 0.0, 1), number, float(number % 7))
    return (first, 0.0, (job.last_change,), number, job)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=25),
       st.lists(st.tuples(st.sampled_from(("take", "plan", "ripen", "drop")), st.integers(0, STAGES - 1),
                          st.integers(0, 12)), max_size=60))  # fmt: skip
def test_the_first_is_the_least_who_has_starved_enough_and_is_not_passed_over(
    firsts: list[int], steps: list[tuple[str, int, int]]
) -> None:
    lane, here, stages = Lane(Demand(1, None), STAGES), {}, {}
    for number, first in enumerate(firsts):
        made = entry(number, float(first))
        lane.add(made)
        here[made[4].id], stages[made[4].id] = made, 0
    taken: set[str] = set()
    for what, stage, when in steps:
        if what == "plan":
            taken = set()
        elif what == "ripen":
            thresholds = (float(when % 5), float(when))
            lane.ripen(10.0, thresholds if thresholds[0] <= thresholds[1] else thresholds[::-1])
            starved = sorted(thresholds)
            stages = {name: sum(one[4].last_change + s <= 10.0 for s in starved) for name, one in here.items()}
        elif what == "drop" and here:
            gone = sorted(here)[when % len(here)]
            lane.drop(here.pop(gone))
        found = lane.first(stage, taken)
        left = [one for name, one in here.items() if name not in taken and stages[name] >= stage]
        assert found == min(left, default=None)
        if what == "take" and found is not None:
            taken.add(found[4].id)
