"""ASTRA-sim's own configuration files: its network (YAML) and system (JSON) file, read and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dally.core.errors import UserError
from dally.network.astra.model import COLLECTIVES, GIB, Dimension, System
from dally.network.astra.names import (
    ALGORITHM_NAMES,
    KIND_NAMES,
    algorithm_named,
    kind_named,
    optimization_named,
)

REMOTE_MEMORY = '{"memory-type": "NO_MEMORY_EXPANSION"}\n'

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Natural = Annotated[int, Field(ge=1)]


class _NetworkFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    topology: list[str] = Field(min_length=1)
    npus_count: list[_Natural]
    bandwidth: list[_Positive]
    latency: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]]


class _SystemFile(BaseModel):
    # Settings that do not change a collective's time (roofline, trace options) may stand beside these.
    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    endpoint_delay: _Natural = Field(alias="endpoint-delay")
    active_chunks: _Natural = Field(alias="active-chunks-per-dimension")
    splits: _Natural = Field(alias="preferred-dataset-splits")
    all_reduce: list[str] = Field(alias="all-reduce-implementation", min_length=1)
    optimization: str = Field(alias="collective-optimization")
    local_mem_bw: _Positive = Field(alias="local-mem-bw")


def network_text(dims: Sequence[Dimension]) -> str:
    """ASTRA-sim's network file; its GB/s are GiB/s."""

    def line(name: str, values: list[str]) -> str:
        return f"{name}: [ {', '.join(values)} ]\n"

    return (
        line("topology", [KIND_NAMES[dim.kind] for dim in dims])
        + line("npus_count", [str(dim.size) for dim in dims])
        + line("bandwidth", [repr(dim.bandwidth / GIB) for dim in dims])
        + line("latency", [repr(float(dim.latency_ns)) for dim in dims])
    )


def system_text(system: System) -> str:
    """ASTRA-sim's system file. The number of queues is not in it but on the command line."""
    algorithms = [ALGORITHM_NAMES[algorithm] for algorithm in system.algorithms]
    content: dict[str, object] = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": system.endpoint_delay_ns,
        "active-chunks-per-dimension": system.active_chunks,
        "preferred-dataset-splits": system.splits,
    }
    for collective in COLLECTIVES:
        content[f"{collective}-implementation"] = algorithms
    content["collective-optimization"] = system.optimization
    content["local-mem-bw"] = system.local_mem_bandwidth / 1e9
    return json.dumps(content, indent=2) + "\n"


def read_network(path: Path) -> tuple[Dimension, ...]:
    """The dimensions of an ASTRA-sim network file."""
    import yaml

    try:
        content = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f": line {mark.line + 1}" if mark is not None else ""
        raise UserError(f"{path}{where}: is not YAML") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not YAML: {error}") from None
    file = _validated(path, _NetworkFile, content)
    for name in ("npus_count", "bandwidth", "latency"):
        if len(getattr(file, name)) != len(file.topology):
            raise UserError(
                f"{path}: {name!r} has {len(getattr(file, name))} entries for {len(file.topology)} dimensions"
            )
    values = zip(file.topology, file.npus_count, file.bandwidth, file.latency, strict=True)
    return tuple(
        Dimension(_named(path, "topology", kind_named, kind), size, gib * GIB, latency)
        for kind, size, gib, latency in values
    )


def read_system(path: Path, queues: int = 1) -> System:
    """The settings of an ASTRA-sim system file, by its all-reduce implementation."""
    try:
        content = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: line {error.lineno}: is not JSON ({error.msg})") from error
    file = _validated(path, _SystemFile, content)
    return System(
        tuple(_named(path, "all-reduce-implementation", algorithm_named, name) for name in file.all_reduce),
        _named(path, "collective-optimization", optimization_named, file.optimization),
        splits=file.splits,
        active_chunks=file.active_chunks,
        queues=queues,
        endpoint_delay_ns=file.endpoint_delay,
        local_mem_bandwidth=file.local_mem_bw * 1e9,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not a text file in UTF-8") from error


def _validated(path: Path, shape: type[Any], content: object) -> Any:
    try:
        return shape.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UserError(f"{path}: {field}: {first['msg']}") from error


def _named(path: Path, field: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except UserError as error:
        raise UserError(f"{path}: {field!r}: {error}") from None
