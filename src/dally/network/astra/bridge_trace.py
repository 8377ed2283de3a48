"""Execution traces for ASTRA-sim: Chakra's protobuf messages, written byte by byte.

A trace is a sequence of [varint length][message]: one GlobalMetadata, then one Node per operation. Only the
fields that ASTRA-sim reads for compute and collectives are written (schema: the package `mlc-chakra`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.network.astra.layers import Layer
from dally.network.astra.model import Collective
from dally.network.astra.names import COLLECTIVE_NUMBERS
from dally.network.astra.step import BUCKET_BYTES

VERSION = "0.0.4"
_COMPUTE, _COLLECTIVE = 4, 7  # node types
_VARINT, _LENGTH = 0, 2  # wire types


@dataclass(frozen=True, slots=True)
class Compute:
    """Work on the GPU, in whole microseconds as the format has it."""

    name: str
    microseconds: int
    after: tuple[int, ...] = ()  # positions of the nodes it waits for


@dataclass(frozen=True, slots=True)
class Communicate:
    """One collective over all GPUs."""

    name: str
    op: Collective
    size_bytes: int
    after: tuple[int, ...] = ()


Node = Compute | Communicate


def step_nodes(layers: Sequence[Layer], bucket_bytes: int | None = BUCKET_BYTES) -> list[Node]:
    """The nodes of one data-parallel step, the same for every rank.

    Durations are cut at whole microseconds of the running total, so that their errors do not add up.
    """
    if not layers:
        raise UserError("a step needs at least one layer")
    if bucket_bytes is not None and bucket_bytes < 1:
        raise UserError(f"a bucket must hold at least one byte, not {bucket_bytes}")
    nodes: list[Node] = []
    now = pending = 0
    last: tuple[int, ...] = ()

    def compute(name: str, nanoseconds: int) -> None:
        nonlocal now, last
        micros = round((now + nanoseconds) / 1000) - round(now / 1000)
        now += nanoseconds
        if micros:
            nodes.append(Compute(name, micros, last))
            last = (len(nodes) - 1,)

    for layer in layers:
        compute(f"{layer.name} forward", layer.forward_ns)
    for index in range(len(layers) - 1, -1, -1):
        layer = layers[index]
        compute(f"{layer.name} weight gradient", layer.weight_gradient_ns)
        pending += layer.gradient_bytes
        if pending and (bucket_bytes is None or pending >= bucket_bytes or index == 0):
            nodes.append(Communicate(f"{layer.name} all-reduce", "all-reduce", pending, last))
            pending = 0
        if index:
            compute(f"{layer.name} input gradient", layer.input_gradient_ns)
    return nodes


def encode_trace(nodes: Sequence[Node]) -> bytes:
    """The bytes of one rank's `.et` file."""
    out = bytearray(_delimited(_text(1, VERSION)))
    for position, node in enumerate(nodes):
        if any(not 0 <= before < position for before in node.after):
            raise UserError(f"trace node {node.name!r} waits for a node that does not come before it")
        out += _delimited(_node(position, node))
    return bytes(out)


def _node(position: int, node: Node) -> bytes:
    kind = _COMPUTE if isinstance(node, Compute) else _COLLECTIVE
    out = _number(1, position) + _text(2, node.name) + _number(3, kind)
    if node.after:
        out += _bytes(5, b"".join(_varint(before) for before in node.after))  # data_deps, packed
    if isinstance(node, Compute):
        return out + _number(7, node.microseconds) + _bytes(10, _bool("is_cpu_op", False))
    return (
        out
        + _bytes(10, _bool("is_cpu_op", False))
        + _bytes(10, _int("comm_type", COLLECTIVE_NUMBERS[node.op]))
        + _bytes(10, _int("comm_size", node.size_bytes))
    )


def _bool(name: str, value: bool) -> bytes:
    return _text(1, name) + _number(27, int(value))


def _int(name: str, value: int) -> bytes:
    return _text(1, name) + _number(9, value)


def _varint(value: int) -> bytes:
    if value < 0:
        raise UserError(f"a trace holds no negative number such as {value}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _bytes(field: int, payload: bytes) -> bytes:
    return _varint(field << 3 | _LENGTH) + _varint(len(payload)) + payload


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _delimited(message: bytes) -> bytes:
    return _varint(len(message)) + message
