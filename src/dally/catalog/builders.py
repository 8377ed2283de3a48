"""From entries of data files to the things of the catalog; every check of a field lives here."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from dally.catalog.architectures import build
from dally.catalog.entries import Entry, bandwidth, flops, seconds, size_bytes, watts
from dally.catalog.gpu import Gpu
from dally.catalog.machine import Fabric, FabricLevel, InnerLevel, Instance, Machine
from dally.catalog.model import Layer, Measured, Model, Optimizer, Parallelism, Precision
from dally.core.errors import UserError
from dally.core.topology import Level, LinkKind

_KINDS = [kind.value for kind in LinkKind]
Resolve = Callable[[str], str | None]  # name or alias → name in the catalog


def build_model(name: str, entry: Entry, resolve_gpu: Resolve) -> Model:
    precision = Precision(entry.choice("precision", [p.value for p in Precision], "fp32"))
    batch = entry.integer("batch_size", low=1)
    use = entry.entry("utilization")
    spread = entry.entry("parallelism")
    return entry.finish(
        Model(
            name=name,
            layers=_layers(entry, precision, batch, resolve_gpu),
            family=entry.text("family", "cnn"),
            batch_size=batch,
            source=entry.text("source"),
            aliases=entry.texts("aliases"),
            title=entry.text("title", ""),
            sample=entry.text("sample", "sample"),
            precision=precision,
            optimizer=Optimizer(entry.choice("optimizer", [o.value for o in Optimizer], "sgd")),
            parallelism=Parallelism() if spread is None else _parallelism(spread),
            recompute=entry.flag("recompute", False),
            kept_activations=entry.number("kept_activations", 1.0, high=1.0),
            utilization=1.0 if use is None else use.number("value", high=1.0),
            utilization_source="not stated" if use is None else use.finish(use.text("source")),
            measured_memory=entry.quantity("memory", size_bytes, None),
            measured_update=entry.quantity("update", seconds, None),
            measured_on=_reference(entry, "measured_on", resolve_gpu) if "measured_on" in entry else None,
            buckets=_whole_numbers(entry, "buckets"),
        )
    )


def _whole_numbers(entry: Entry, key: str) -> tuple[int, ...]:
    value = entry.value(key, [])
    if not isinstance(value, list) or not all(type(item) is int and item > 0 for item in value):
        raise entry.fail(f"must be a list of whole numbers above 0, not {value!r}", key)
    return tuple(value)


def _parallelism(entry: Entry) -> Parallelism:
    return entry.finish(
        Parallelism(
            tensor=entry.integer("tensor", 1, low=1),
            pipeline=entry.integer("pipeline", 1, low=1),
            sharded=entry.flag("sharded", False),
        )
    )


def _layers(entry: Entry, precision: Precision, batch: int, resolve_gpu: Resolve) -> tuple[Layer, ...]:
    """From exactly one of: an architecture, rows in the file, or a CSV file beside it."""
    given = [key for key in ("architecture", "layers", "layers_csv") if key in entry]
    if len(given) != 1:
        raise entry.fail("needs exactly one of architecture, layers and layers_csv")
    width = precision.gradient_width
    measured_on = _reference(entry, "measured_on", resolve_gpu) if "measured_on" in entry else None
    entry.taken.update(("architecture", "arguments", "layers", "layers_csv", "measured_on"))
    if "architecture" in entry:
        arguments = entry.value("arguments", {})
        if not isinstance(arguments, dict):
            raise entry.fail("must be a mapping of argument to value", "arguments")
        try:
            return build(entry.text("architecture"), arguments, width)
        except UserError as error:
            raise entry.fail(str(error), "arguments" if "arguments" in entry else "architecture") from None
    if "layers_csv" in entry:
        from dally.catalog.layer_csv import load_layer_csv

        path = entry.path.parent / entry.text("layers_csv")
        return load_layer_csv(path, gpu=measured_on, batch=batch, gradient_width=width)
    rows = entry.entries("layers")
    if not rows:
        raise entry.fail("needs at least one layer", "layers")
    return tuple(_layer(row, width, measured_on, batch) for row in rows)


def _layer(entry: Entry, width: int, gpu: str | None, batch: int) -> Layer:
    parameters = entry.integer("parameters")
    forward = entry.integer("forward_flops", 0)
    timed = entry.entry("measured")
    measured = None
    if timed is not None:
        ahead = timed.quantity("forward", seconds)
        if "backward" in timed:  # a profiler sees the backward pass of a layer as one
            halves = [timed.quantity("backward", seconds), 0.0]
        else:
            halves = [timed.quantity(key, seconds) for key in ("input_gradient", "weight_gradient")]
        measured = timed.finish(Measured(ahead, halves[0], halves[1], gpu, batch))
    return entry.finish(
        Layer(
            name=entry.text("name"),
            kind=entry.text("kind", "layer"),
            parameters=parameters,
            gradient_bytes=int(entry.quantity("gradient_bytes", size_bytes, parameters * width)),
            forward_flops=forward,
            input_gradient_flops=entry.integer("input_gradient_flops", forward),
            weight_gradient_flops=entry.integer("weight_gradient_flops", forward if parameters else 0),
            tensors=_whole_numbers(entry, "tensors"),
            activation_elements=entry.integer("activation_elements", 0),
            traffic_elements=entry.integer("traffic_elements", 0),
            launches=entry.integer("launches", 1),
            measured=measured,
        )
    )


def build_gpu(name: str, entry: Entry) -> Gpu:
    return entry.finish(
        Gpu(
            name=name,
            generation=entry.text("generation"),
            fp32=entry.quantity("fp32", flops),
            fp16=entry.quantity("fp16", flops, None),
            tf32=entry.quantity("tf32", flops, None),
            memory_bytes=entry.quantity("memory", size_bytes),
            memory_bandwidth=entry.quantity("memory_bandwidth", bandwidth),
            nvlink_bandwidth=entry.quantity("nvlink", bandwidth, 0.0),
            source=entry.text("source"),
            aliases=entry.texts("aliases"),
            title=entry.text("title", ""),
            power=entry.quantity("power", watts, None),
        )
    )


def build_machine(name: str, entry: Entry, resolve_gpu: Resolve) -> Machine:
    gpus = entry.integer("gpus", low=1)
    inner = tuple(_inner(level) for level in entry.entries("levels"))
    if prod(level.units for level in inner) != gpus:
        raise entry.fail(f"the units of its levels must multiply to its {gpus} GPUs", "levels")
    nics = entry.entry("nics")
    if nics is None:
        raise entry.fail("the field 'nics' is missing")
    count, each = nics.integer("count"), nics.quantity("bandwidth", bandwidth)
    nics.finish(None)
    return entry.finish(
        Machine(
            name=name,
            gpu=_reference(entry, "gpu", resolve_gpu),
            gpus=gpus,
            levels=inner,
            nics=count,
            nic_bandwidth=each,
            source=entry.text("source"),
            aliases=entry.texts("aliases"),
            title=entry.text("title", ""),
        )
    )


def _reference(entry: Entry, key: str, resolve: Resolve) -> str:
    text = entry.text(key)
    name = resolve(text)
    if name is None:
        raise entry.fail(f"there is no {text!r} in the catalog", key)
    return name


def _inner(entry: Entry) -> InnerLevel:
    kind = LinkKind(entry.choice("kind", _KINDS))
    entry.choice("per", ["gpu"])  # written out in the file so that nobody has to guess
    link = Level(
        entry.text("name"), kind, entry.quantity("bandwidth", bandwidth), entry.quantity("latency", seconds)
    )
    return entry.finish(InnerLevel(entry.integer("units", low=1), link))


def build_fabric(name: str, entry: Entry) -> Fabric:
    levels = tuple(_fabric_level(level, first=not i) for i, level in enumerate(entry.entries("levels")))
    if not levels:
        raise entry.fail("needs at least one level", "levels")
    return entry.finish(
        Fabric(name, levels, entry.text("source"), entry.texts("aliases"), entry.text("title", ""))
    )


def _fabric_level(entry: Entry, *, first: bool) -> FabricLevel:
    if ("bandwidth" in entry) == ("oversubscription" in entry):
        raise entry.fail("needs either a bandwidth or an oversubscription")
    per = "unit"
    if "bandwidth" in entry:
        per = entry.choice("per", ["gpu", "nic", "machine"] if first else ["gpu", "nic", "machine", "unit"])
    rate = entry.quantity("bandwidth", bandwidth, None)
    if rate is not None and rate <= 0:
        raise entry.fail("must be more than zero", "bandwidth")
    ratio = entry.number("oversubscription", None, low=1e-9)
    if rate is None and ratio is None:  # the field is there, and nothing is in it
        raise entry.fail("needs either a bandwidth or an oversubscription, and a value for it")
    return entry.finish(
        FabricLevel(
            name=entry.text("name"),
            kind=LinkKind(entry.choice("kind", _KINDS)),
            latency=entry.quantity("latency", seconds),
            bandwidth=rate,
            per=per,
            oversubscription=ratio,
        )
    )


def build_instance(name: str, entry: Entry, resolve_machine: Resolve) -> Instance:
    return entry.finish(
        Instance(
            name=name,
            machine=_reference(entry, "machine", resolve_machine),
            price=entry.number("price"),
            region=entry.text("region"),
            date=entry.text("date"),
            source=entry.text("source"),
            provider=entry.text("provider", ""),
            vcpus=entry.integer("vcpus") if "vcpus" in entry else None,
            spot=entry.number("spot", None),
            spot_date=entry.text("spot_date", ""),
            estimated=entry.flag("estimated", False),
            aliases=entry.texts("aliases"),
            title=entry.text("title", ""),
        )
    )
