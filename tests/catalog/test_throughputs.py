"""Reading Gavel's throughputs.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dally.catalog.throughputs import read_throughputs
from dally.core.errors import UserError

ONE = "('ResNet-18 (batch size 16)', 1)"
TWO = "('LM (batch size 5)', 1)"


def written(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "throughputs.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def test_rates_are_found_by_any_name_of_the_gpu(tmp_path: Path) -> None:
    table = read_throughputs(written(tmp_path, {"v100": {ONE: {"null": 40.0}}, "k80": {ONE: {"null": 0}}}))
    assert table.rate("ResNet-18 (batch size 16)", 1, "V100") == 40.0
    assert table.rate("ResNet-18 (batch size 16)", 1, "v100") == 40.0
    assert table.rate("ResNet-18 (batch size 16)", 1, "K80") == 0.0
    assert table.rate("ResNet-18 (batch size 16)", 2, "V100") is None
    assert table.rate(None, 1, "V100") is None


def test_a_pair_is_found_from_either_side(tmp_path: Path) -> None:
    cells = {"null": 40.0, TWO: [30.0, 5.0]}
    table = read_throughputs(written(tmp_path, {"v100": {ONE: cells, TWO: {"null": 9.0}}}))
    assert table.pair("ResNet-18 (batch size 16)", "LM (batch size 5)", 1, "V100") == (30.0, 5.0)
    assert table.pair("LM (batch size 5)", "ResNet-18 (batch size 16)", 1, "V100") == (5.0, 30.0)
    assert table.pair("LM (batch size 5)", "LM (batch size 5)", 1, "V100") is None


def test_rates_of_spread_gangs_stand_apart_and_fall_back_to_those_near_each_other(tmp_path: Path) -> None:
    document = {"v100": {ONE: {"null": 40.0}, TWO: {"null": 8.0}}, "v100_unconsolidated": {ONE: {"null": 25.0}}}
    table = read_throughputs(written(tmp_path, document))
    assert table.rate("ResNet-18 (batch size 16)", 1, "V100", consolidated=False) == 25.0
    assert table.rate("LM (batch size 5)", 1, "V100", consolidated=False) == 8.0


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", r"line 1: it is not JSON"),
        ([], r"object of GPU types"),
        ({"v100": 3}, r"GPU type 'v100': it must be an object of job types"),
        ({"v100": {"ResNet": {"null": 1}}}, r"'ResNet' is not a job type"),
        ({"v100": {ONE: {}}}, r"under \"null\""),
        ({"v100": {ONE: {"null": -1}}}, r"alone: -1 is not a number of steps"),
        ({"v100": {ONE: {"null": 1, TWO: [1]}}}, r"two rates"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path: Path, document: Any, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        read_throughputs(written(tmp_path, document))
    assert "throughputs.json" in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.json: cannot be read"):
        read_throughputs(tmp_path / "nowhere.json")
