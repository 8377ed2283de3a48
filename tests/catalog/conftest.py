"""Where the catalog's tests find the reference results kept beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def reference() -> Path:
    """Folder with the reference results; a test that needs it skips where there is none."""
    chosen = os.environ.get("DALLY_REFERENCE")
    base = Path(chosen) if chosen else Path(__file__).parents[2].parent / "shared"
    for folder in (base, base / "reference"):
        if (folder / "tiresias").is_dir():
            return folder
    pytest.skip("the reference results are not beside the repository; set DALLY_REFERENCE")
