"""An engine of this machine that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.live.local.engine import LocalEngine
from dally.live.local.watched import EngineRules


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalEngine]:
    made = LocalEngine(tmp_path / "state", EngineRules(stubborn=1.0))
    yield made
    made.clear()
    made.close()
