"""Drawn command lines and spoiled files end in good order: the everyday handful, and two thousand among the slow tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.fuzz import Score, fuzz


def told(score: Score) -> str:
    return "\n\n".join(f"{' '.join(each.call.words)}\n{each.what}\n{each.details}" for each in score.findings)


def test_a_few_dozen_calls_end_in_good_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    score = fuzz(60, 20261116, seconds=10)
    assert not score.findings, told(score)
    assert score.codes.keys() >= {0, 2} and score.counted, "it tries what works and what does not"


@pytest.mark.slow
def test_two_thousand_calls_end_in_good_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    score = fuzz(2_000, 18, seconds=400)
    assert not score.findings, told(score)
