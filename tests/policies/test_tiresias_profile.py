"""The profile: who must be consolidated, and how PACKLIMIT follows what past jobs showed."""

from __future__ import annotations

import pytest

from dally.core.job import Job
from dally.policies.tiresias.profile import Listed, Profile

SKEWS = {"flat": 0.05, "middling": 0.3, "steep": 0.7}


def profile(limit: float = 0.4, *, learns: bool = True, tolerance: float = 1.1) -> Profile:
    return Profile(limit, learns=learns, tolerance=tolerance, skew_of=SKEWS.get)


def gang(model: str | None, gpus: int = 4) -> Job:
    return Job(f"a {model}", 0.0, gpus, model=model)


def test_skew_above_the_limit_is_consolidated_and_the_evidence_is_said() -> None:
    picky, because = profile().verdict(gang("steep"))
    assert picky
    assert "70%" in because and "40%" in because


def test_an_unknown_model_counts_as_not_skewed_and_that_is_said() -> None:
    picky, because = profile().verdict(gang("mystery"))
    assert not picky
    assert "mystery" in because and "not in the catalog" in because
    assert not profile().verdict(gang(None)).picky


def test_catalog_models_are_where_the_paper_puts_them() -> None:
    known = Profile(0.4, learns=False, tolerance=1.1)
    assert all(known.verdict(gang(name)).picky for name in ("vgg16", "vgg19", "alexnet"))
    assert not any(known.verdict(gang(name)).picky for name in ("resnet50", "inception3", "googlenet"))


def test_a_flat_model_that_suffers_on_several_machines_pulls_the_limit_down() -> None:
    known = profile()
    known.verdict(gang("middling"))
    known.observe(gang("middling"), 1, 0.0)
    assert known.observe(gang("middling"), 2, 0.4)
    assert known.limit < SKEWS["middling"]
    picky, because = known.verdict(gang("middling"))
    assert picky
    assert "1.67 times slower" in because


def test_a_steep_model_that_does_not_suffer_pushes_the_limit_up() -> None:
    known = profile()
    known.observe(gang("steep"), 2, 0.01)
    assert known.limit > SKEWS["steep"]


def test_observations_that_agree_with_the_default_leave_it_alone() -> None:
    known = profile()
    known.observe(gang("steep"), 2, 0.5)
    known.observe(gang("flat"), 2, 0.01)
    assert known.limit == known.default


def test_slowness_inside_one_machine_is_not_held_against_spreading() -> None:
    known = profile()
    known.observe(gang("flat"), 1, 0.5)
    known.observe(gang("flat"), 3, 0.5)
    assert known.evidence()["flat"].slowdown == pytest.approx(1.0)
    assert not known.verdict(gang("flat")).picky


def test_contradictory_evidence_costs_least() -> None:
    known = profile()
    known.observe(gang("flat"), 2, 0.12)  # hurt a little
    known.observe(gang("middling"), 2, 0.0)
    known.observe(gang("steep"), 2, 0.6)
    assert known.limit == known.default  # one small error is less than consolidating the middling one as well


def test_jobs_of_one_gpu_and_a_profile_that_does_not_learn_teach_nothing() -> None:
    known = profile()
    assert not known.observe(gang("flat", 1), 1, 0.5)
    fixed = profile(learns=False)
    assert not fixed.observe(gang("flat"), 2, 0.9)
    assert fixed.limit == fixed.default
    assert not known.evidence() and not fixed.evidence()


@pytest.mark.parametrize(("model", "picky"), [
    ("ResNet50", False), ("resnet-18", False), ("BERT", False), ("bert-large", False), ("VGG11", True), (None, True),
    ("MobileNetV3", True), ("ResNet152", True),
])  # fmt: skip
def test_the_dally_authors_list(model: str | None, picky: bool) -> None:
    assert Listed().verdict(gang(model)).picky is picky
