"""`dally network check`: predict every row of a table of ASTRA-sim runs and say how far off the model is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.network.artist import ArtistDimension, artist_step_ns
from dally.network.astra.collective import Fabric
from dally.network.astra.layers import Layer, number, read_layers, read_table, whole
from dally.network.astra.model import GIB, Backend, Dimension, System
from dally.network.astra.names import algorithm_named, kind_named, optimization_named

_COLLECTIVE_COLUMNS = (
    "topology_per_dim", "npus_per_dim", "bw_GiBps_per_dim", "latency_ns_per_dim", "collective_alg_per_dim",
    "collective_optimization", "preferred_dataset_splits", "active_chunks_per_dim", "num_queues_per_dim",
    "endpoint_delay_ns", "local_mem_bw_GBps", "message_bytes", "backend", "finish_ns",
)  # fmt: skip
_SHARE_COLUMNS = ("model", "topologies", "units", "links_count", "latency_ns", "bandwidth_GBps", "f")
_BACKENDS: dict[str, Backend] = {"unaware": "unaware", "aware": "aware", "aware_multidim": "aware"}


@dataclass(frozen=True, slots=True)
class CheckedRow:
    """One row of the table: where it is, what it is about, what was measured and what we say."""

    line: int
    what: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative to the measurement."""
        return abs(self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All rows with the mean, 99th percentile (nearest rank) and maximum of their relative errors."""

    kind: Literal["collectives", "step-share"]
    rows: tuple[CheckedRow, ...]

    @property
    def mean(self) -> float:
        return sum(row.error for row in self.rows) / len(self.rows)

    @property
    def p99(self) -> float:
        errors = sorted(row.error for row in self.rows)
        return errors[-(-99 * len(errors) // 100) - 1]

    @property
    def max(self) -> float:
        return max(row.error for row in self.rows)

    @property
    def exact(self) -> int:
        """Rows predicted without any error."""
        return sum(row.predicted == row.measured for row in self.rows)


def check(path: Path, layers: Path | None = None) -> CheckResult:
    """Check either kind of table, told apart by its header; step shares need the folder of layer tables."""
    header = set(_header(path))
    if "finish_ns" in header:
        return check_collectives(path)
    if "exposed_comm_us" in header or {"model", "f"} <= header:
        return check_step_share(path, layers if layers is not None else path.parent)
    raise UserError(
        f"{path}: line 1: neither a table of collectives (column 'finish_ns') "
        "nor of step shares (columns 'model' and 'f')"
    )


def check_collectives(path: Path) -> CheckResult:
    """Predict `finish_ns` of every all-reduce of an ASTRA-sim table (format: docs/network/astra.md)."""
    return _checked("collectives", path, _COLLECTIVE_COLUMNS, lambda line, row: _collective(path, line, row))


def check_step_share(path: Path, layers: Path) -> CheckResult:
    """Predict f = compute / (compute + exposed) of every step of a table of ASTRA-sim 1.0 runs.

    `layers` holds `layers_<model>.csv` and, if layers without parameters are left out of those,
    `models_summary.csv` that says how many each model has.
    """
    tables: dict[str, tuple[tuple[Layer, ...], int]] = {}

    def predict(line: int, row: dict[str, str]) -> CheckedRow:
        model = row["model"]
        if model not in tables:
            tables[model] = _model(path, line, model, layers)
        return _share(path, line, row, *tables[model])

    return _checked("step-share", path, _SHARE_COLUMNS, predict)


def _checked(
    kind: Literal["collectives", "step-share"],
    path: Path,
    columns: tuple[str, ...],
    predict: Callable[[int, dict[str, str]], CheckedRow],
) -> CheckResult:
    rows: list[CheckedRow] = []
    for line, row in read_table(path, columns):
        try:
            rows.append(predict(line, row))
        except UserError as error:
            where = f"{path}: line {line}: "
            raise UserError(str(error) if str(error).startswith(str(path)) else where + str(error)) from None
    if not rows:
        raise UserError(f"{path}: the table has no rows")
    return CheckResult(kind, tuple(rows))


def _collective(path: Path, line: int, row: dict[str, str]) -> CheckedRow:
    kinds = [kind_named(name) for name in row["topology_per_dim"].split("_")]
    sizes = [whole(path, line, "npus_per_dim", text) for text in row["npus_per_dim"].split("x")]
    bandwidths = _numbers(path, line, row, "bw_GiBps_per_dim", "x")
    latencies = _numbers(path, line, row, "latency_ns_per_dim", "x")
    algorithms = tuple(algorithm_named(name) for name in row["collective_alg_per_dim"].split("_"))
    _same_length(path, line, len(kinds), npus_per_dim=sizes, bw_GiBps_per_dim=bandwidths,
                 latency_ns_per_dim=latencies, collective_alg_per_dim=algorithms)  # fmt: skip
    if row["backend"] not in _BACKENDS:
        raise UserError(f"{path}: line {line}: 'backend' must be one of {', '.join(_BACKENDS)}")
    fabric = Fabric(
        [Dimension(kind, size, gib * GIB, latency)
         for kind, size, gib, latency in zip(kinds, sizes, bandwidths, latencies, strict=True)],
        System(
            algorithms,
            optimization_named(row["collective_optimization"]),
            splits=whole(path, line, "preferred_dataset_splits", row["preferred_dataset_splits"]),
            active_chunks=whole(path, line, "active_chunks_per_dim", row["active_chunks_per_dim"]),
            queues=whole(path, line, "num_queues_per_dim", row["num_queues_per_dim"]),
            endpoint_delay_ns=whole(path, line, "endpoint_delay_ns", row["endpoint_delay_ns"]),
            local_mem_bandwidth=number(path, line, "local_mem_bw_GBps", row["local_mem_bw_GBps"]) * 1e9,
        ),
        _BACKENDS[row["backend"]],
    )  # fmt: skip
    size = whole(path, line, "message_bytes", row["message_bytes"])
    what = f"all-reduce of {size} B, {row['topology_per_dim']} {row['npus_per_dim']}, {row['backend']}"
    measured = _positive(path, line, "finish_ns", row["finish_ns"])
    return CheckedRow(line, what, measured, float(fabric.collective_ns("all-reduce", size)))


def _share(path: Path, line: int, row: dict[str, str], layers: tuple[Layer, ...], silent: int) -> CheckedRow:
    kinds = [kind_named(name) for name in row["topologies"].split("/")]
    sizes = [whole(path, line, "units", text) for text in row["units"].split("x")]
    links = [whole(path, line, "links_count", text) for text in row["links_count"].split("/")]
    latencies = _numbers(path, line, row, "latency_ns", "/")
    bandwidths = _numbers(path, line, row, "bandwidth_GBps", "/")
    _same_length(path, line, len(kinds), units=sizes, links_count=links, latency_ns=latencies,
                 bandwidth_GBps=bandwidths)  # fmt: skip
    dims = [
        ArtistDimension(kind, size, count, gib * GIB, latency)
        for kind, size, count, gib, latency in zip(kinds, sizes, links, bandwidths, latencies, strict=True)
    ]
    measured = _positive(path, line, "f", row["f"])
    if row.get("compute_us") and row.get("exposed_comm_us"):
        # f is written with six decimals, too few where it is small: take it from what it is made of.
        compute = _positive(path, line, "compute_us", row["compute_us"])
        measured = compute / (compute + number(path, line, "exposed_comm_us", row["exposed_comm_us"]))
    what = f"{row['model']} on {row['topologies']} {row['units']}"
    return CheckedRow(line, what, measured, artist_step_ns(layers, dims, silent).share)


def _model(path: Path, line: int, model: str, folder: Path) -> tuple[tuple[Layer, ...], int]:
    table = folder / f"layers_{model}.csv"
    if not table.is_file():
        raise UserError(f"{path}: line {line}: 'model' is {model!r}, but there is no layer table {table}")
    layers = read_layers(table)
    summary = folder / "models_summary.csv"
    if summary.is_file():
        for at, row in read_table(summary, ("model", "layers_declared")):
            if row["model"] == model:
                declared = whole(summary, at, "layers_declared", row["layers_declared"])
                return layers, max(0, declared - len(layers))
    return layers, 0


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8") as lines:
            return lines.readline().strip().split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a table") from error


def _numbers(path: Path, line: int, row: dict[str, str], column: str, separator: str) -> list[float]:
    return [number(path, line, column, text) for text in row[column].split(separator)]


def _positive(path: Path, line: int, column: str, text: str) -> float:
    value = number(path, line, column, text)
    if value == 0:
        raise UserError(f"{path}: line {line}: {column!r} must be above 0")
    return value


def _same_length(path: Path, line: int, dims: int, **columns: object) -> None:
    for name, values in columns.items():
        assert isinstance(values, (list, tuple))
        if len(values) != dims:
            raise UserError(f"{path}: line {line}: {name!r} has {len(values)} entries for {dims} dimensions")
