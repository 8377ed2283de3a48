"""Layer tables as CSV: the columns ASTRA-sim workloads and profilers write, times in nanoseconds."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from dally.catalog.model import Layer, Measured
from dally.core.errors import UserError

_TIMES = ("fp_ns", "ig_ns", "wg_ns")  # forward, input gradient, weight gradient


def load_layer_csv(
    path: str | Path,
    *,
    scaled: bool | None = None,
    gpu: str | None = None,
    batch: int | None = None,
    gradient_width: int = 4,
) -> tuple[Layer, ...]:
    """Read `layer, fp_ns, ig_ns, wg_ns, grad_bytes`, or the times with `_raw` and `_scaled` at the end.

    Where both are there, `scaled` chooses; by default the scaled times, which carry the author's calibration,
    are taken. Other columns are left alone. `gpu` and `batch` say what the times were measured on.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = list(reader.fieldnames or ())
            chosen = _time_columns(path, columns, scaled)
            layers = [
                _layer(path, reader.line_num, row, chosen, gpu, batch, gradient_width) for row in reader
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    if not layers:
        raise UserError(f"{path}: the layer table is empty")
    return tuple(layers)


def _time_columns(path: Path, columns: Sequence[str], scaled: bool | None) -> list[str]:
    endings = {True: ("_scaled",), False: ("_raw", ""), None: ("_scaled", "", "_raw")}[scaled]
    for column in ("layer", "grad_bytes"):
        if column not in columns:
            raise UserError(f"{path}, line 1: the column {column!r} is missing")
    for ending in endings:
        if all(f"{name}{ending}" in columns for name in _TIMES):
            return [f"{name}{ending}" for name in _TIMES]
    wanted = ", ".join(f"{name}{endings[0]}" for name in _TIMES)
    raise UserError(f"{path}, line 1: the columns {wanted} are missing")


def _layer(
    path: Path,
    line: int,
    row: dict[str, str],
    times: Sequence[str],
    gpu: str | None,
    batch: int | None,
    width: int,
) -> Layer:
    def number(column: str) -> float:
        text = row[column]
        try:
            value = float(text)
        except (TypeError, ValueError):
            raise UserError(f"{path}, line {line}: {column} must be a number, not {text!r}") from None
        if not 0 <= value < float("inf"):
            raise UserError(
                f"{path}, line {line}: {column} must not be negative or infinite, but is {text!r}"
            )
        return value

    if not row["layer"]:
        raise UserError(f"{path}, line {line}: the layer has no name")
    forward, input_gradient, weight_gradient = (number(column) * 1e-9 for column in times)
    gradient = int(number("grad_bytes"))
    return Layer(
        name=row["layer"],
        kind="measured",
        parameters=gradient // width,
        gradient_bytes=gradient,
        measured=Measured(forward, input_gradient, weight_gradient, gpu, batch),
    )
