"""What is tried on groups is undone to the last detail, orders included, whatever was tried."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import at
from dally.core.placement import Placement
from dally.core.sharing import Groups, Share

# GPUs of two machines that overlap nowhere: what a cluster's groups always are
PLACES = (at((0, 0b0011)), at((0, 0b0100)), at((0, 0b1000), (1, 0b0001)), at((1, 0b0110)), at((1, 0b1000)))
JOBS = tuple("abcdefgh")

steps = st.lists(st.tuples(st.sampled_from(["enter", "leave", "move", "reshare"]), st.sampled_from(JOBS),
                           st.integers(0, len(PLACES) - 1), st.integers(0, 7), st.sampled_from([1.0, 2.0])),
                 max_size=25)  # fmt: skip


def do(groups: Groups, step: tuple[str, str, int, int, float]) -> None:
    """The step if it is possible now, else nothing."""
    what, job, place, beside, weight = step
    placement = PLACES[place]
    if what == "enter" and job not in groups:
        groups.enter(job, placement, share_at(groups, placement, beside, weight))
    elif what == "leave" and job in groups:
        groups.leave(job)
    elif what == "move" and job in groups:
        groups.leave(job)
        groups.enter(job, placement, share_at(groups, placement, beside, weight))
    elif what == "reshare" and job in groups:
        others = [other for other in groups.of(job).members if other != job]
        groups.reshare(job, Share(weight, others[beside % len(others)] if others and beside % 2 else None))


def share_at(groups: Groups, placement: Placement, beside: int, weight: float) -> Share:
    there = groups.at(placement)
    members = list(there.members) if there is not None else []
    return Share(weight, members[beside % len(members)] if members and beside % 2 else None)


def picture(groups: Groups) -> object:
    """Everything anybody can see of it, in order; the very same groups, not equal ones."""
    return (
        [(id(group), group.placement, [list(turn) for turn in group.turns],
          [(member, group.share(member)) for member in group.members]) for group in groups],
        [[id(group) for group in groups.on(machine)] for machine in (0, 1)],
        [groups.residents(machine) for machine in (0, 1)],
        {job: id(groups.of(job)) for job in JOBS if job in groups},
        [id(groups.at(placement)) if groups.at(placement) is not None else None for placement in PLACES],
    )  # fmt: skip


@given(before=steps, trials=st.lists(steps, max_size=3), after=steps)
@settings(max_examples=5 * settings().max_examples)
def test_after_a_trial_everything_is_as_it_was(
    before: list[tuple[str, str, int, int, float]], trials: list[list[tuple[str, str, int, int, float]]],
    after: list[tuple[str, str, int, int, float]],
) -> None:  # fmt: skip
    tried, left_alone = Groups(), Groups()
    for step in before:
        do(tried, step)
        do(left_alone, step)
    for trial in trials:
        seen = picture(tried)
        with tried.trial() as groups:
            for step in trial:
                do(groups, step)
        assert picture(tried) == seen
    for step in after:  # and it goes on as one that was never tried on
        do(tried, step)
        do(left_alone, step)
    assert turns(tried) == turns(left_alone)


def turns(groups: Groups) -> object:
    return ([(g.placement, g.turns, list(g.members)) for g in groups],
            [[g.placement for g in groups.on(machine)] for machine in (0, 1)])  # fmt: skip


def test_what_is_tried_is_seen_inside_and_a_failure_undoes_it_too() -> None:
    groups = Groups()
    groups.enter("a", PLACES[0])
    try:
        with groups.trial():
            groups.leave("a")
            groups.enter("b", PLACES[0])
            assert "b" in groups and "a" not in groups
            raise LookupError
    except LookupError:
        pass
    assert "a" in groups and "b" not in groups and [list(g.members) for g in groups] == [["a"]]
