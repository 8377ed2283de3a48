"""What Tiresias' options accept, and that none of them is silently without effect."""

from __future__ import annotations

import pytest

from dally.core.errors import UserError
from dally.policies.options import make_policy
from dally.policies.tiresias import Tiresias
from dally.policies.tiresias.continuous import Continuous
from dally.policies.tiresias.profile import Listed
from dally.policies.tiresias.queues import Queues
from dally.policies.tiresias.released import Released


def rules(text: str) -> Released | Queues | Continuous:
    policy = make_policy(text)
    assert isinstance(policy, Tiresias)
    return policy.rules


def test_the_paper_has_two_queues_and_placement_by_profile() -> None:
    found = rules("tiresias")
    assert isinstance(found, Queues)
    assert found.limits == (3250.0,)
    assert found.placing.lanes is not None


def test_the_release_has_three_queues_and_counts_gpus() -> None:
    found = rules("tiresias[variant=released]")
    assert isinstance(found, Released)
    assert found.limits == (3250.0, 7200.0)


@pytest.mark.parametrize("text", ["tiresias[queues=1]", "tiresias[continuous=true]"])
def test_one_queue_is_the_continuous_index(text: str) -> None:
    assert isinstance(rules(text), Continuous)


def test_the_dally_authors_compared_with_a_continuous_index_and_a_list() -> None:
    found = rules("tiresias[variant=dally-paper]")
    assert isinstance(found, Continuous) and found.service is None
    assert found.placing.lanes is not None
    assert isinstance(found.placing.lanes.packing, Listed)


@pytest.mark.parametrize(("inside", "said"), [
    ("queues=0", "at least one queue"),
    ("queues=5", "5 queues need 4 thresholds"),
    ("thresholds=100/50,queues=3", "each above the one before"),
    ("thresholds=0", "above 0"),
    ("index=gittins,distribution=x.csv", "x.csv"),
    ("distribution=x.csv", "distribution would do nothing here: index=las needs no distribution"),
    ("continuous=true,queues=2", "has no queues"),
    ("continuous=true,promote=2", "promote would do nothing"),
    ("continuous=true,quantum=0", "quantum above 0"),
    ("quantum=60", "quantum would do nothing"),
    ("placement=any,pack_limit=0.2", "pack_limit would do nothing"),
    ("tolerance=0.5", "cannot be below 1"),
    ("variant=released,index=gittins", "needs distribution=FILE"),
    ("variant=released,continuous=true", "no continuous index"),
    ("variant=released,placement=profile", "counts GPUs only"),
    ("variant=released,quantum=60", "quantum would do nothing here: only the continuous index has one"),
    ("variant=released,order=running", "order would do nothing here: variant=released has its own"),
    ("variant=released,learn=false", "learn would do nothing here: only placement=profile looks at the model"),
    ("learn=false,tolerance=1.3", "tolerance would do nothing here: nothing is learned"),
    ("queues=1,thresholds=5", "thresholds would do nothing here: without queues"),
    ("variant=dally-paper,promote=3", "promote would do nothing"),
    ("variant=dally-paper,continuous=true", "continuous would do nothing here: variant=dally-paper is continuous"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_sentence(inside: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_policy(f"tiresias[{inside}]")


def test_the_name_makes_the_same_policy_again() -> None:
    text = "tiresias[index=gittins,queues=3,promote=8,placement=strict]"
    assert make_policy(make_policy(text).name).name == make_policy(text).name == text
