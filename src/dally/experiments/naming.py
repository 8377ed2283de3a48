"""What runs and their folders are called: all that a run needs that is not written down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from dally.core.errors import UserError
from dally.simulator.experiment import as_policy
from dally.simulator.sweep import AnyPolicy


def unique_names(policies: Sequence[AnyPolicy]) -> list[str]:
    """The policies' names in their shortest form; each is made once, so that bad ones are refused before any runs."""
    if not policies:
        raise UserError("no policy is given")
    names = [as_policy(policy).name for policy in policies]
    if len(set(names)) < len(names):
        raise UserError(f"a policy is named twice: {', '.join(names)}")
    return names


def folders_of(out: Path | None, names: Sequence[str], many: bool) -> list[Path | None]:
    """Where each run leaves its files: the folder itself for one run, a folder per policy for several."""
    if out is None:
        return [None] * len(names)
    folders = [out / slug(name) if many else out for name in names]
    for folder in folders:
        make_folder(folder, out)
    return list(folders)


def make_folder(folder: Path, out: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: the folder cannot be made: {error.strerror}") from error


def slug(name: str) -> str:
    """A policy's name as a folder name."""
    return re.sub(r"[^\w.=-]+", "_", name).strip("_")
