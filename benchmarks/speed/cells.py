"""Cells: one measurement each, in a process of its own, kept as a line of JSON: a long list is done bit by bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Cell = dict[str, Any]  # what is measured: plain values
Row = dict[str, Any]  # the cell and what was found

PURE, COMPILED = "pure", "compiled"
SCRIPT = Path(__file__).parent.parent / "scoreboard.py"
_CELL = ("kind", "policy", "trace", "jobs", "cluster", "load", "network", "seed", "warm", "build", "pending", "gangs")


def key(cell: Cell) -> str:
    """Two measurements of the same have the same one."""
    return json.dumps({name: cell[name] for name in _CELL if cell.get(name) is not None}, sort_keys=True)


class Kept:
    """Rows in a file, the last of a cell counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self.rows[key(row)] = row

    def of(self, cells: Iterable[Cell]) -> list[Row]:
        return [row for cell in cells if (row := self.rows.get(key(cell))) is not None]

    def add(self, row: Row) -> None:
        self.rows[key(row)] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, sort_keys=True) + "\n")


def measure(cells: Iterable[Cell], kept: Kept, *, again: bool, limit: float, philly: str | None) -> Iterator[Row]:
    """Every cell that is not there yet, one process after the other."""
    for cell in cells:
        if not again and key(cell) in kept.rows:
            continue
        row = {**cell, **_asked(cell, limit, philly)}
        kept.add(row)
        yield row


def _asked(cell: Cell, limit: float, philly: str | None) -> Row:
    # whoever has Dally installed has its bytecode, too: a shell that writes none would measure the compiler
    without = ("DALLY_PURE", "DALLY_COMPILED", "PYTHONDONTWRITEBYTECODE")
    own = {name: value for name, value in os.environ.items() if name not in without}
    own["DALLY_PURE" if cell["build"] == PURE else "DALLY_COMPILED"] = "1"
    asked = {**cell, "limit": limit, "philly": philly}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--cell", json.dumps(asked)], capture_output=True, text=True, check=False, env=own
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return {"failed": f"exit code {done.returncode}: {last}"}
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found
