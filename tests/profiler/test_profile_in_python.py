"""`dally.profiler.profile(step, data)`: three lines for loops that no hook can see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dally.catalog import find_model
from dally.core.errors import UserError
from dally.profiler import profile, write_profile

pytestmark = pytest.mark.torch


def training() -> tuple[Any, Any, list[Any]]:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    return model, step, [(torch.randn(8, 64), torch.randint(0, 10, (8,))) for _ in range(20)]


def test_a_loop_of_ones_own_gives_a_profile_that_is_a_model(tmp_path: Path) -> None:
    model, step, batches = training()
    found = profile(step, batches, model=model, name="mine", steps=3, warmup=2, repeats=2, anatomy=2)
    assert set(found.runs) == {"one", "all", "cold", "cached"} and found.batch == 8
    assert found.model is not None and [row.parameters for row in found.model.layers] == [64 * 128 + 128, 128 * 10 + 10]
    write_profile(found, tmp_path / "mine.yaml")
    assert find_model(str(tmp_path / "mine.yaml")).name == "mine"


def test_data_that_end_too_early_are_said() -> None:
    model, step, batches = training()
    found = profile(step, batches[:9], model=model, steps=3, warmup=2, repeats=4, anatomy=0)
    assert any("ended before all windows" in note for note in found.notes)
    assert len(found.runs["cold"].windows) == 2 and len(found.runs["all"].windows) == 4


def test_no_data_at_all_is_one_sentence() -> None:
    _, step, _ = training()
    with pytest.raises(UserError, match="nothing could be measured"):
        profile(step, [], steps=2, warmup=1, repeats=1)
