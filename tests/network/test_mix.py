"""Models for jobs that name none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dally.catalog import models
from dally.core.errors import UserError
from dally.core.job import Job
from dally.network.mix import assign_models, read_mix


def jobs(count: int, gpus: int = 1, model: str | None = None) -> list[Job]:
    return [Job(f"job{i}", float(i), gpus, model=model) for i in range(count)]


def test_every_job_gets_a_model_of_the_catalog_and_a_sentence_says_so() -> None:
    plain = [job for gpus in (1, 2, 8, 9, 64, 65, 2048) for job in jobs(5, gpus)]
    for duration in (0.0, 60.0, 1e5, 1e7):
        found, note = assign_models(plain, [duration] * len(plain), seed=1)
        assert all(job.model in models() for job in found)
        assert note == "of 35 jobs 35 name no model; they got one from the model mix (built in, seed 1)"


def test_the_same_seed_gives_the_same_models_whoever_else_is_there() -> None:
    many = jobs(200)
    durations: list[float | None] = [600.0] * 200
    found, _ = assign_models(many, durations, seed=7)
    again, _ = assign_models(many[::-1], durations, seed=7)
    assert {job.id: job.model for job in found} == {job.id: job.model for job in again}
    other, _ = assign_models(many, durations, seed=8)
    assert [job.model for job in found] != [job.model for job in other]


def test_weights_are_followed() -> None:
    found, _ = assign_models(jobs(4000), [600.0] * 4000, seed=0)
    counts = Counter(job.model for job in found)
    assert counts["resnet18"] == pytest.approx(4000 * 3 / 15, rel=0.15)
    assert counts["a3c"] == pytest.approx(4000 / 15, rel=0.3)


def test_known_names_stay_and_unknown_ones_are_counted() -> None:
    mixed = [*jobs(3, model="ResNet-50"), *jobs(2, 8, model="secret-net"), *jobs(1, 8)]
    found, note = assign_models(mixed, [None] * 6, seed=0)
    assert [job.model for job in found[:3]] == ["ResNet-50"] * 3
    assert note is not None
    assert "1 name no model" in note
    assert "2 name one that is not in the catalog: secret-net (2)" in note


def test_a_trace_with_models_needs_no_mix() -> None:
    named = jobs(3, model="vgg16")
    assert assign_models(named, [None] * 3, seed=0) == (named, None)


def test_a_mix_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text("mix:\n  all:\n    gpus: [1, null]\n    duration: [0, null]\n    models: {bert-large: 1}\n"
                    "    source: our cluster in May\n")  # fmt: skip
    found, note = assign_models(jobs(2), [5.0, None], 0, read_mix(path))
    assert [job.model for job in found] == ["bert-large"] * 2
    assert note is not None
    assert str(path) in note


@pytest.mark.parametrize(("text", "said"), [
    ("mix:\n  a: {gpus: [1, 2], duration: [0, null], models: {nonet: 1}, source: x}\n", "line 2.*no model 'nonet'"),
    ("mix:\n  a: {gpus: [2, 1], duration: [0, null], models: {vgg16: 1}, source: x}\n", "line 2.*must rise"),
    ("mix:\n  a: {gpus: 1, duration: [0, null], models: {vgg16: 1}, source: x}\n", "must be a list of two"),
    ("mix:\n  a: {gpus: [1, 2], duration: [0, x], models: {vgg16: 1}, source: x}\n", "must be two figures"),
    ("mix:\n  a: {gpus: [1, 2], duration: [0, null], models: {vgg16: 0}, source: x}\n", "add up to nothing"),
    ("mix:\n  a: {gpus: [1, 2], duration: [0, null], source: x}\n", "'models' is missing"),
    ("mix:\n  a: {gpus: [1, 2], duration: [0, null], models: {vgg16: 1}}\n", "'source' is missing"),
    ("mix:\n  a: {gpus: [1, 2], duration: [0, null], models: {vgg16: 1}, source: x, z: 1}\n", "no such field"),
    ("{}\n", "section 'mix' is missing"),
])  # fmt: skip
def test_a_bad_mix_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_mix(path)


def test_a_job_outside_every_class_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text("mix:\n  a: {gpus: [1, 2], duration: [0, null], models: {vgg16: 1}, source: x}\n")
    with pytest.raises(UserError, match="no class fits a job of 8 GPUs"):
        assign_models(jobs(1, 8), [1.0], 0, read_mix(path))
