"""Layer tables: per layer of a model, its compute times and the gradient bytes it has to all-reduce."""

from __future__ import annotations

import csv
from pathlib import Path

from dally.core.errors import UserError
from dally.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a data-parallel step, times in whole nanoseconds."""

    name: str
    forward_ns: int
    input_gradient_ns: int
    weight_gradient_ns: int
    gradient_bytes: int
    update_ns: int = 0  # local work after its all-reduce that holds up neither GPU nor network


def compute_ns(layers: tuple[Layer, ...]) -> int:
    """Forward and both gradients of every layer; nobody needs the first layer's input gradient."""
    total = sum(layer.forward_ns + layer.input_gradient_ns + layer.weight_gradient_ns for layer in layers)
    return total - layers[0].input_gradient_ns


_COLUMNS = ("fp_ns_scaled", "ig_ns_scaled", "wg_ns_scaled", "grad_bytes", "update_ns")


def read_layers(path: Path) -> tuple[Layer, ...]:
    """Read a table `layer,…,grad_bytes,update_ns,fp_ns_scaled,ig_ns_scaled,wg_ns_scaled`."""
    rows = read_table(path, ("layer", *_COLUMNS))
    layers: list[Layer] = []
    for line, row in rows:
        values = [whole(path, line, column, row[column]) for column in _COLUMNS]
        layers.append(Layer(row["layer"], *values))
    if not layers:
        raise UserError(f"{path}: the layer table is empty")
    return tuple(layers)


def read_table(path: Path, columns: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with their line numbers; every one of `columns` must be there and filled."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not a text file in UTF-8") from error
    reader = csv.DictReader(text.splitlines())
    missing = [column for column in columns if column not in (reader.fieldnames or [])]
    if missing:
        raise UserError(f"{path}: line 1: the column {missing[0]!r} is missing")
    rows: list[tuple[int, dict[str, str]]] = []
    for row in reader:
        for column in columns:
            if row[column] is None or row[column] == "":
                raise UserError(f"{path}: line {reader.line_num}: {column!r} is empty")
        rows.append((reader.line_num, row))
    return rows


def number(path: Path, line: int, column: str, text: str) -> float:
    """A finite number that is not negative, or one sentence saying where it is not."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UserError(f"{path}: line {line}: {column!r} must be a number of at least 0, not {text!r}")
    return value


def whole(path: Path, line: int, column: str, text: str) -> int:
    """A whole number that is not negative, or one sentence saying where it is not."""
    if not text.strip().isdecimal():
        raise UserError(f"{path}: line {line}: {column!r} must be a whole number of at least 0, not {text!r}")
    return int(text)
