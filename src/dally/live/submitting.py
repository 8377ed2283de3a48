"""What a submission takes along from where it is made: the folder, and the variables that say which Python is meant."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

SENT = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH")


def from_here(plain: Mapping[str, Any], folder: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """A specification as it is meant in this folder: paths are whole, and `python` is the one of this shell."""
    found = dict(plain)
    directory = os.path.join(folder, found.get("directory") or "")  # noqa: PTH118 - a text, joined as it was meant
    found["directory"] = os.path.normpath(directory)
    if isinstance(found.get("output"), str):
        found["output"] = os.path.join(found["directory"], found["output"])  # noqa: PTH118
    if isinstance(found.get("profile"), str) and found["profile"].endswith((".yaml", ".yml")):
        found["profile"] = os.path.join(folder, found["profile"])  # noqa: PTH118
    checkpoint = found.get("checkpoint")
    if isinstance(checkpoint, dict) and isinstance(checkpoint.get("directory"), str):
        there = os.path.join(found["directory"], checkpoint["directory"])  # noqa: PTH118
        found["checkpoint"] = {**checkpoint, "directory": there}
    own = found.get("environment")
    if own is None or isinstance(own, dict):
        sent = {name: variables[name] for name in SENT if variables.get(name)}
        found["environment"] = {**sent, **(own or {})}
    return found
