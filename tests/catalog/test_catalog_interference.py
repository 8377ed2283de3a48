"""How packed jobs slow each other: the published pairs, measured pairs from files, memory, and Gavel's measurements."""

from __future__ import annotations

import json
import math
import os
import statistics
from pathlib import Path

import pytest

from dally.catalog.interference import CatalogInterference, slowdown, use_of
from dally.catalog.measured_pairs import read_gavel, read_interference, read_pairs
from dally.core.errors import UserError
from dally.core.job import Job


def job(model: str | None, name: str = "j") -> Job:
    return Job(name, 0.0, 1, model=model)


def test_two_language_models_slow_each_other_by_nineteen_per_cent() -> None:
    found = CatalogInterference()
    assert found.slowdown(job("lstm"), [job("lstm")], "P100") == pytest.approx(1.19)


def test_resnet50_beside_a_language_model_hardly_suffers_and_the_language_model_does() -> None:
    found = CatalogInterference()
    assert 1.0 < found.slowdown(job("resnet50"), [job("lstm")], "P100") < 1.15
    assert found.slowdown(job("lstm"), [job("resnet50")], "P100") > 2


def test_nobody_beside_it_slows_nobody_and_one_more_never_helps() -> None:
    assert slowdown(0.7, []) == 1.0
    for own in (0.1, 0.5, 0.9, 1.0):
        for a in (0.1, 0.4, 0.8, 1.0):
            assert slowdown(own, [a]) >= 1.0
            assert slowdown(own, [a, 0.3]) >= slowdown(own, [a]) - 1e-12


def test_two_jobs_that_keep_the_gpu_busy_gain_nothing_together() -> None:
    assert slowdown(1.0, [1.0]) == pytest.approx(2.0)


def test_memory_that_does_not_fit_is_refused_in_a_sentence() -> None:
    found = CatalogInterference()
    assert found.fits([job("lstm", "a"), job("lstm", "b")], "P100") is None
    assert found.fits([job("vgg16", "a"), job("resnet50", "b")], "P100") == (
        "a and b need 19.1 GB together and a P100 has 16.0 GB")  # fmt: skip
    assert "nobody knows how much memory job j needs" in str(found.fits([job(None), job("lstm")], "P100"))
    assert "does not know how much memory a GPU of type abacus" in str(found.fits([job("lstm")], "abacus"))


def test_a_model_nobody_knows_might_keep_its_gpu_busy_all_the_time() -> None:
    assert use_of("no such model") == use_of(None) == (1.0, None)


def test_measured_pairs_win_over_the_formula_where_there_are_any(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("model_a,model_b,gpu_type,slowdown_a,slowdown_b\nLM,ResNet-50,V100,1.5,1.25\nlstm,resnet50,,1.6,1.3\n")
    found = read_interference(path)
    assert found.slowdown(job("lstm"), [job("resnet50")], "v100") == 1.5  # other spellings of the same names
    assert found.slowdown(job("resnet50"), [job("lstm")], "V100") == 1.25
    assert found.slowdown(job("resnet50"), [job("lstm")], "P100") == 1.3  # said of every type
    assert found.slowdown(job("lstm"), [job("lstm")], "V100") == pytest.approx(1.19)
    assert found.slowdown(job("lstm"), [job("resnet50"), job("resnet50")], "V100") == pytest.approx(2.0)


@pytest.mark.parametrize(("text", "told"), [
    ("model_a,model_b\nx,y\n", "have the columns"),
    ("model_a,model_b,slowdown_a,slowdown_b\n", "at least one row"),
    ("model_a,model_b,slowdown_a,slowdown_b\n,y,1,1\n", "line 2, model_a"),
    ("model_a,model_b,slowdown_a,slowdown_b\nx,y,0.5,1\n", "line 2, slowdown_a: '0.5' is not a slowdown"),
    ("model_a,model_b,slowdown_a,slowdown_b\nx,y,1,fast\n", "line 2, slowdown_b"),
    ("model_a,model_b,slowdown_a,slowdown_b\nx,x,1,2\n", "slow each other alike"),
    ("model_a,model_b,slowdown_a,slowdown_b\nx,y,1,2\ny,x,3,1\n", "line 3: this pair is there before"),
])  # fmt: skip
def test_a_broken_file_of_pairs_is_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=told):
        read_pairs(path)


def test_gavels_throughputs_are_read_as_pairs(tmp_path: Path) -> None:
    path = tmp_path / "throughputs.json"
    alone = {"('LM (batch size 80)', 1)": {"null": 10.0, "('A3C', 1)": [5.0, 4.0], "('CycleGAN', 1)": [0.0, 0.0]},
             "('A3C', 1)": {"null": 4.0, "('LM (batch size 80)', 1)": [4.0, 5.0]}}  # fmt: skip
    path.write_text(json.dumps({"v100": alone, "v100_unconsolidated": alone}))
    found = read_interference(path)
    assert found.slowdown(job("LM (batch size 80)"), [job("A3C")], "V100") == 2.0
    assert found.slowdown(job("A3C"), [job("LM (batch size 80)")], "V100") == 1.0
    assert len(read_gavel(path)) == 2  # what did not run together is not a measurement
    path.write_text("[1, 2]")
    with pytest.raises(UserError, match="throughputs as Gavel writes it"):
        read_gavel(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_gavel(tmp_path / "none.json")


def ranks(values: list[float]) -> list[float]:
    order = sorted(values)
    first = {v: order.index(v) for v in set(values)}
    return [first[v] + (order.count(v) - 1) / 2 for v in values]


@pytest.mark.reference
def test_on_a_p100_the_formula_orders_gavels_measured_pairs() -> None:
    chosen = os.environ.get("DALLY_REFERENCE")
    base = Path(chosen) if chosen else Path(__file__).parents[2].parent / "shared"
    paths = [p for p in (base / "gavel", base / "reference" / "gavel") if (p / "throughputs.json").is_file()]
    if not paths:
        pytest.skip("the reference results are not beside the repository; set DALLY_REFERENCE")
    pairs = {key[:2]: value for key, value in read_gavel(paths[0] / "throughputs.json").items() if key[2] == "P100"}
    formula = [slowdown(use_of(a).utilization, [use_of(b).utilization]) for a, b in pairs]
    measured = list(pairs.values())
    x, y = ranks(formula), ranks(measured)
    assert statistics.correlation(x, y) > 0.6
    assert statistics.median(abs(math.log(f / m)) for f, m in zip(formula, measured, strict=True)) < 0.3
