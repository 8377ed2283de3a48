"""Clusters from CSV tables: Tiresias' cluster description and the node list of Alibaba's 2023 trace (openb)."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

from dally.catalog.clusters.assembly import MOST_GPUS, Planned
from dally.catalog.clusters.insides import inside_of, usual_machine
from dally.catalog.clusters.shorthand import MOST_MACHINES
from dally.core.errors import UserError

TIRESIAS = ("num_switch", "num_node_p_switch", "num_gpu_p_node")
OPENB = ("sn", "gpu", "model")


def read_rows(path: Path, text: str) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Column names in lower case, and the rows with their line numbers; `#` comments and blank lines left out."""
    reader = csv.reader(text.lstrip("\ufeff").splitlines())
    header: list[str] = []
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        for fields in reader:
            if not any(field.strip() for field in fields) or fields[0].lstrip().startswith("#"):
                continue
            if not header:
                header = [field.strip().lower() for field in fields]
                continue
            if len(fields) != len(header):
                raise UserError(
                    f"{path}, line {reader.line_num}: {len(fields)} fields where the header has {len(header)}"
                )
            rows.append((reader.line_num, dict(zip(header, (f.strip() for f in fields), strict=True))))
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}") from None
    return header, rows


def whole_number(path: Path, line: int, row: dict[str, str], column: str, low: int) -> int:
    try:
        value = int(row[column])
    except ValueError:
        value = low - 1
    if value < low:
        raise UserError(
            f"{path}, line {line}: {column} must be a whole number of at least {low}, not {row[column]!r}"
        )
    return value


def tiresias_shape(path: Path, rows: list[tuple[int, dict[str, str]]]) -> tuple[int, ...]:
    """Switches, machines per switch and GPUs per machine; CPUs and memory are not scheduled and not read."""
    if len(rows) != 1:
        where = f", line {rows[1][0]}" if rows else ""
        raise UserError(f"{path}{where}: a Tiresias cluster is one row under its header, not {len(rows)}")
    line, row = rows[0]
    shape = tuple(whole_number(path, line, row, column, 1) for column in TIRESIAS)
    if math.prod(shape[:-1]) > MOST_MACHINES:
        raise UserError(f"{path}, line {line}: it has more than {MOST_MACHINES} machines")
    if shape[-1] > MOST_GPUS:
        raise UserError(f"{path}, line {line}: it has more than {MOST_GPUS:,} GPUs in a machine")
    return shape


def plan_openb(path: Path, rows: list[tuple[int, dict[str, str]]], default: Callable[[], str],
               notes: list[str]) -> list[Planned]:  # fmt: skip
    """Machines with their GPU models as written, so that wishes in the same trace match.

    The list says nothing about the network, and unknown topology is never a shared domain: every machine is a
    rack of its own.
    """
    planned: list[Planned] = []
    lines: dict[str, int] = {}
    without = 0
    for line, row in rows:
        count = whole_number(path, line, row, "gpu", 0)
        name = row["sn"]
        if not name:
            raise UserError(f"{path}, line {line}: sn, the machine's name, is missing")
        if name in lines:
            raise UserError(f"{path}, line {line}: machine {name!r} is also in line {lines[name]}")
        lines[name] = line
        if count == 0:
            without += 1
            continue
        kind = row["model"] or default()
        planned.append(Planned((), name, inside_of(usual_machine(kind), count, kind)))
    if without:
        notes.append(f"{without} {'machine' if without == 1 else 'machines'} without GPUs left out")
    return planned
