"""Whether the inner loops run compiled (`make compiled`), and whether their sources are still what was compiled."""

from __future__ import annotations

import os

RECORD = "compiled.json"  # beside this file in a compiled build: the digest of every source that was compiled


def is_compiled() -> bool:
    import dally.core.scheduler as inner

    return not str(inner.__file__).endswith(".py")


def edited(package: str | None = None) -> list[str]:
    """Sources that were changed after they were compiled, so that what runs is not what they say; none where nothing is
    compiled."""
    folder = os.path.dirname(__file__) if package is None else package  # noqa: PTH120 (asked before every command)
    record = f"{folder}/{RECORD}"
    if not os.path.exists(record):  # noqa: PTH110
        return []
    import json
    from pathlib import Path

    written: dict[str, str] = json.loads(Path(record).read_text())
    return [name for name, digest in written.items() if digest_of(f"{folder}/{name}") != digest]


def digest_of(source: str) -> str | None:
    import hashlib
    from pathlib import Path

    try:
        return hashlib.sha256(Path(source).read_bytes()).hexdigest()
    except OSError:
        return None
