"""The examples of docs/catalog.md are true."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from dally.catalog import fabrics, find_model, gpus, machines, models, use_directories
from dally.catalog.timing import step_compute_time

PAGE = Path(__file__).parents[2] / "docs" / "catalog.md"


def test_the_python_examples_of_the_page_print_what_they_say() -> None:
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted >= 5 and results.failed == 0


def test_the_yaml_example_of_the_page_is_a_valid_catalog_file(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "page.yaml").write_text(block, encoding="utf-8")
    use_directories([tmp_path])
    try:
        assert find_model("prod-llm").parameters == pytest.approx(3.4e9, rel=0.02)
        assert find_model("measured-net").memory_bytes() == 7.5e9
        for section in (models(), gpus(), machines(), fabrics()):
            assert all(thing.source for thing in section.values())
        assert step_compute_time(find_model("our-3b"), gpus()["RTX4090"]) > 0
    finally:
        use_directories([])


def test_the_table_of_the_page_lists_every_model_with_its_parameters() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, model in models().items():
        family = re.sub(r"(?<=vgg|net)\d+$|-(?:large|l16|13b|70b)$", "", name)
        assert f"`{name}`" in page or family in page, name
        if not re.match(r"vgg1[36]|resnet(34|50|101)$", name):  # inside a range of the table
            assert f"{model.parameters:,}" in page, name
