"""The notebook's cells run one after the other, as a reader would run them; no Jupyter needed."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(ROOT.glob("docs/**/*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_cell_of_a_notebook_runs(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    world: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{path.name}, cell {number}", "exec"), world)
        if isinstance(last, ast.Expr):  # what a notebook would show
            shown = eval(compile(ast.Expression(last.value), f"{path.name}, cell {number}", "eval"), world)
            assert shown is not None
        ran += 1
    assert ran >= 5


def test_notebooks_are_kept_without_output() -> None:
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            assert not cell.get("outputs"), f"{path.name} holds output, which would change with every run"
