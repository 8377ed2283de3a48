"""The built-in data files as they are kept, parsed: the same as what YAML says, and only as long as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dally.catalog.entries import Entry, read_sections
from dally.catalog.parsed import DATA, KEPT, Node, parse, parsed
from dally.catalog.store import SECTIONS

FILES = sorted(DATA.glob("*.yaml"))


def seen(node: Any) -> object:
    """All that is looked at of a node; a key's line is not."""
    tag = node.tag.rpartition(":")[2]
    if node.id == "mapping":
        return node.start_mark.line, {key.value: seen(value) for key, value in node.value}
    if node.id == "sequence":
        return node.start_mark.line, [seen(item) for item in node.value]
    return node.start_mark.line, tag, node.value


def test_what_is_kept_is_what_the_files_say() -> None:
    assert json.loads(KEPT.read_text()) == parse(), "`python -m dally.catalog.parsed` writes it anew"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_node_is_the_one_that_yaml_finds(path: Path) -> None:
    text = path.read_text()
    kept = parsed(path, text)
    assert kept is not None
    assert seen(kept) == seen(yaml.compose(text, Loader=yaml.SafeLoader))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_that_was_edited_is_read_itself(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    assert parsed(path, text + "\n") is None
    assert parsed(tmp_path / path.name, text) is None


def test_entries_are_the_same_either_way(tmp_path: Path) -> None:
    def plain(sections: dict[str, dict[str, Entry]]) -> object:
        return {(section, name): (entry.line, {key: entry.value(key) for key in entry.nodes})
                for section, entries in sections.items() for name, entry in entries.items()}  # fmt: skip

    for path in FILES:
        (tmp_path / path.name).write_text(path.read_text())
        known = (*SECTIONS, "mix")
        built_in = read_sections(path, known)
        assert all(isinstance(node, Node) for each in built_in.values() for entry in each.values() for node in entry.nodes.values())
        assert plain(built_in) == plain(read_sections(tmp_path / path.name, known))
