"""Measured slowdowns of pairs of models on one GPU, from a CSV file or from Gavel's throughputs.json."""

from __future__ import annotations

import ast
import csv
import json
import math
from pathlib import Path
from typing import Any

from dally.catalog.interference import CatalogInterference, gpu_name, model_name
from dally.core.errors import UserError

COLUMNS = ("model_a", "model_b", "slowdown_a", "slowdown_b")
Found = dict[tuple[str, str, str | None], float]


def read_interference(path: Path) -> CatalogInterference:
    """Measured pairs win over the formula; pairs that the file does not have follow the formula."""
    return CatalogInterference(read_gavel(path) if path.suffix == ".json" else read_pairs(path))


def read_pairs(path: Path) -> Found:
    """CSV `model_a,model_b,slowdown_a,slowdown_b` and, optionally, `gpu_type`; 1.19 is 19 % longer."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as a list of measured pairs: {error}") from error
    if not rows or not set(COLUMNS) <= set(rows[0]):
        raise UserError(f"{path}: measured pairs have the columns {','.join(COLUMNS)} and at least one row")
    found: Found = {}
    for line, row in enumerate(rows, start=2):
        names = [_name(path, line, column, row[column]) for column in COLUMNS[:2]]
        factors = [_factor(path, line, column, row[column]) for column in COLUMNS[2:]]
        gpu_type = (row.get("gpu_type") or "").strip() or None
        _add(found, names[0], names[1], gpu_type, factors[0], f"{path}, line {line}")
        if names[0] != names[1]:
            _add(found, names[1], names[0], gpu_type, factors[1], f"{path}, line {line}")
        elif factors[0] != factors[1]:
            raise UserError(f"{path}, line {line}, slowdown_b: two jobs of one model slow each other alike")
    return found


def _name(path: Path, line: int, column: str, text: str | None) -> str:
    if not (text or "").strip():
        raise UserError(f"{path}, line {line}, {column}: there is no model")
    return model_name(text or "")


def _factor(path: Path, line: int, column: str, text: str | None) -> float:
    try:
        factor = float(text or "")
    except ValueError:
        factor = math.nan
    if not 1.0 <= factor < math.inf:
        raise UserError(f"{path}, line {line}, {column}: {text!r} is not a slowdown; it is a factor of 1 or more")
    return factor


def _add(found: Found, a: str, b: str, gpu_type: str | None, factor: float, where: str) -> None:
    key = (a, b, None if gpu_type is None else gpu_name(gpu_type))
    if found.setdefault(key, factor) != factor:
        raise UserError(f"{where}: this pair is there before with another slowdown")


def read_gavel(path: Path) -> Found:
    """Gavel's file: GPU type → job type → `null` (alone) and other job types (beside), in steps per second.

    Pairs of one-GPU jobs are read. Where one of them is 0 the pair did not run (memory) and is left out; a
    throughput above the one alone counts as no slowdown.
    """
    try:
        tables = json.loads(path.read_text())
        found: Found = {}
        for gpu_type, table in tables.items():
            if not gpu_type.endswith("_unconsolidated"):
                _read_table(gpu_type, table, found)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, SyntaxError, IndexError) as error:
        raise UserError(f"{path}: is not a table of throughputs as Gavel writes it ({error})") from error
    return found


def _read_table(gpu_type: str, table: dict[str, dict[str, Any]], found: Found) -> None:
    for text, row in table.items():
        model, gpus = ast.literal_eval(text)
        if gpus != 1:
            continue
        for other_text, rates in row.items():
            if other_text == "null":
                continue
            other, other_gpus = ast.literal_eval(other_text)
            if other_gpus == 1 and rates[0] > 0 and rates[1] > 0:
                factor = max(1.0, float(row["null"]) / float(rates[0]))
                found[model_name(model), model_name(other), gpu_name(gpu_type)] = factor
