"""Policies that packages have registered are found as `importlib.metadata` finds them."""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from dally.policies.registered import GROUP, load, registered


def _by_metadata() -> dict[str, str]:
    return {entry.name: entry.value for entry in metadata.entry_points(group=GROUP)}


def _package(folder: Path, name: str, entries: str) -> None:
    home = folder / f"{name}-1.0.dist-info"
    home.mkdir(parents=True)
    (home / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (home / "entry_points.txt").write_text(entries)


def test_the_policies_of_this_installation_are_those_that_importlib_finds() -> None:
    assert registered() == _by_metadata() and "dally" in registered()


def test_a_package_that_is_added_is_found_and_the_first_of_a_name_counts(tmp_path: Path,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path / "one", "My.Policies", f"[console_scripts]\nx = a:b\n\n[{GROUP}]\npatient = json:dumps\n# none\n")
    _package(tmp_path / "two", "my_policies", f"[{GROUP}]\npatient = json:loads\n")
    for folder in ("two", "one"):
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    assert registered()["patient"] == "json:dumps"
    assert load(registered()["patient"]) is __import__("json").dumps
    assert registered() == _by_metadata()


def test_a_package_in_an_archive_is_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path / "in", "zipped", f"[{GROUP}]\nzipped = json:dumps\n")
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for each in (tmp_path / "in").rglob("*"):
            file.write(each, each.relative_to(tmp_path / "in"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive)])
    assert registered()["zipped"] == "json:dumps"
