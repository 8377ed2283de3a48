"""The examples in the pages on traces run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ["traces.md", "synth.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_the_page_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, page, "exec"), {})


def test_the_example_of_the_own_format_reads(tmp_path: Path) -> None:
    from dally.traces import load_trace

    text = (DOCS / "formats" / "dally-trace.md").read_text("utf-8")
    block = re.search(r"((?:^    .*\n)+)", text, re.MULTILINE)
    assert block is not None
    file = tmp_path / "example.csv"
    file.write_text("".join(line[4:] for line in block[1].splitlines(keepends=True)))
    assert [job.gpus for job in load_trace(file).jobs] == [1, 8]


def test_every_format_and_workload_has_its_line_in_the_docs() -> None:
    from dally.traces import formats, workloads

    listed = (DOCS / "formats" / "public-traces.md").read_text("utf-8")
    assert all(f"| `{name}` |" in listed for name, _ in formats())
    synth = (DOCS / "synth.md").read_text("utf-8")
    assert all(f"`{name}`" in synth for name, _ in workloads())
