"""The catalog as tables for people: a row per entry, and one entry in full."""

from __future__ import annotations

from dally.catalog.model import Model
from dally.catalog.store import fabrics, gpus, instances, machines, models
from dally.core.records import dataclass
from dally.core.units import show_bytes, show_time


@dataclass(frozen=True, slots=True)
class Listing:
    """A table ready to print: headings, and rows of the same length."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def list_models() -> Listing:
    section = models()
    rows = []
    for model in section.values():
        memory = show_bytes(model.memory_bytes())
        rows.append((
            model.name, _count(model.parameters), str(len(model.layers)), show_bytes(model.gradient_bytes),
            f"{model.skew:.2f}", _flops(model.forward_flops), str(model.batch_size), memory,
            show_bytes(model.checkpoint_bytes), model.title,
        ))  # fmt: skip
    columns = ("model", "parameters", "layers", "gradients", "skew", "forward FLOP", "batch", "memory",
               "checkpoint", "title")  # fmt: skip
    return Listing(columns, tuple(rows))


def list_gpus() -> Listing:
    rows = []
    for gpu in gpus().values():
        rates = [f"{rate / 1e12:g}" if rate else "–" for rate in (gpu.fp32, gpu.tf32, gpu.fp16)]
        link = _rate(gpu.nvlink_bandwidth) if gpu.nvlink_bandwidth else "–"
        rows.append((gpu.name, gpu.generation, *rates, show_bytes(gpu.memory_bytes),
                     _rate(gpu.memory_bandwidth), link, gpu.source))  # fmt: skip
    columns = (
        "GPU",
        "generation",
        "fp32 TFLOP/s",
        "tf32",
        "fp16",
        "memory",
        "memory bandwidth",
        "NVLink",
        "source",
    )
    return Listing(columns, tuple(rows))


def list_machines() -> Listing:
    prices = {instance.machine: f"{instance.price:.2f}" for instance in instances().values()}
    rows = []
    for machine in machines().values():
        inside = " × ".join(
            f"{level.link.kind.value} {level.units} at {_rate(level.link.bandwidth)}"
            for level in machine.levels
        )
        nics = f"{machine.nics} × {_rate(machine.nic_bandwidth)}"
        rows.append((machine.name, f"{machine.gpus} × {machine.gpu}", inside, nics,
                     prices.get(machine.name, "–"), machine.source))  # fmt: skip
    return Listing(("machine", "GPUs", "inside, per GPU", "NICs", "$/h", "source"), tuple(rows))


def list_fabrics() -> Listing:
    rows = []
    for fabric in fabrics().values():
        levels = []
        for level in fabric.levels:
            if level.oversubscription is not None:
                rate = f"{level.oversubscription:g}:1 of what is below"
            else:
                rate = f"{_rate(level.bandwidth or 0.0)} per {level.per}"
            levels.append(f"{level.name}: {level.kind.value}, {rate}, {show_time(level.latency)}")
        rows.append((fabric.name, "; ".join(levels), fabric.source))
    return Listing(("fabric", "levels", "source"), tuple(rows))


def list_layers(model: Model) -> Listing:
    """The layer table of one model."""
    rows = tuple(
        (layer.name, layer.kind, _count(layer.parameters), show_bytes(layer.gradient_bytes),
         _flops(layer.forward_flops), _flops(layer.backward_flops))
        for layer in model.layers
    )  # fmt: skip
    return Listing(("layer", "kind", "parameters", "gradients", "forward FLOP", "backward FLOP"), rows)


def describe_model(model: Model) -> tuple[tuple[str, str], ...]:
    """One model in full, as pairs of what and how much; estimates say so."""
    parallel = model.parallelism
    spread = "sharded (ZeRO-3, FSDP)" if parallel.sharded else "data parallel"
    if parallel.model_parallel > 1:
        spread += f", tensor {parallel.tensor} × pipeline {parallel.pipeline}"
    return (
        ("model", model.title or model.name),
        ("also called", ", ".join(model.aliases) or "–"),
        ("parameters", f"{model.parameters:,} in {model.tensor_count} tensors"),
        (
            "gradients",
            f"{show_bytes(model.gradient_bytes)}, {model.precision.gradient_width} bytes per element",
        ),
        ("largest tensor", f"{show_bytes(model.largest_tensor_bytes)}, {model.skew:.2f} of all gradients"),
        ("sample", model.sample),
        ("batch per GPU", str(model.batch_size)),
        (
            "FLOP per sample",
            f"{_flops(model.forward_flops)} forward, {_flops(model.backward_flops)} backward",
        ),
        ("precision, optimiser", f"{model.precision.value}, {model.optimizer.value}"),
        ("checkpoint", show_bytes(model.checkpoint_bytes)),
        ("memory on one GPU", f"{show_bytes(model.memory_bytes())} (estimated)"),
        ("spread", spread),
        ("utilisation alone", f"{model.utilization:.0%} ({model.utilization_source})"),
        ("source", model.source),
    )


def _count(number: int) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return str(number)


def _flops(number: int) -> str:
    for limit, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return str(number)


def _rate(value: float) -> str:
    return f"{show_bytes(value)}/s"
