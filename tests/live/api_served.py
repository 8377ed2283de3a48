"""A fake service behind the real API, as fixtures: test modules take them by `pytest_plugins = ["api_served"]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_serving import served
from fake_service import FakeService

from dally.live.tokens import TokenFile


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "tokens.json")


@pytest.fixture
def url(service: FakeService, tokens: TokenFile) -> Iterator[str]:
    with served(service, tokens) as found:
        yield found
