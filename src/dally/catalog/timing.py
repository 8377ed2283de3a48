"""How long a GPU computes: a roofline per layer with calibrated efficiencies (all of it an estimate).

    t = max(FLOPs / (peak × efficiency), bytes / (memory bandwidth × 0.8)) + kernels × 5 µs

after Williams et al., "Roofline", CACM 2009. The efficiency depends on the model's family and on the GPU's
generation and arithmetic; it is read from the catalog, where each figure says which published throughput it
was calibrated to or that it is an estimate. Measured layer times, where a table has them, win.
"""

from __future__ import annotations

from dally.catalog.gpu import Gpu
from dally.catalog.model import Layer, Measured, Model, Precision

# Both estimated: the share of the data sheet's memory bandwidth that streaming kernels reach, and the gap a
# kernel launch leaves on the GPU. Published micro-benchmarks put them at 75–90 % and 3–10 µs.
MEMORY_EFFICIENCY = 0.8
LAUNCH_SECONDS = 5e-6
CPU = "cpu"  # generation of what stands in for a GPU where training runs on CPUs


def compute_time(
    model: Model, gpu: Gpu, batch: int | None = None, precision: Precision | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of the forward and of the backward pass, per layer in forward order, for `batch` samples."""
    batch = model.batch_size if batch is None else batch
    precision = precision or model.precision
    effective = effective_flops(model.family, gpu, precision)
    forward, backward = [], []
    for layer in model.layers:
        if layer.measured is not None and not _says_nothing(layer.measured, layer, gpu):
            scale = _measured_scale(layer.measured, model, gpu, batch, effective, precision)
            forward.append(layer.measured.forward * scale)
            backward.append(layer.measured.backward * scale)
            continue
        ahead, back = _roofline(layer, gpu, batch, effective, precision.compute_width)
        forward.append(ahead)
        # Recomputed activations cost a second forward pass inside the backward one.
        backward.append(back + (ahead if model.recompute else 0.0))
    return tuple(forward), tuple(backward)


def update_time(model: Model, gpu: Gpu) -> float:
    """Seconds of the optimiser step: it streams weights, gradients and state through memory once."""
    if model.measured_update is not None and model.measured_on is not None:
        from dally.catalog.store import find_gpu

        other = find_gpu(model.measured_on)
        if other.generation != CPU or gpu.generation == CPU:
            return model.measured_update * other.memory_bandwidth / gpu.memory_bandwidth
    words = 3 + 2 * model.optimizer.state_words  # weight read and written, gradient read, state both ways
    updated = sum(layer.parameters for layer in model.layers if layer.gradient_bytes)
    return updated * 4 * words / (gpu.memory_bandwidth * MEMORY_EFFICIENCY)


def step_compute_time(
    model: Model, gpu: Gpu, batch: int | None = None, precision: Precision | None = None
) -> float:
    """Seconds one step takes on one GPU without any communication."""
    forward, backward = compute_time(model, gpu, batch, precision)
    return sum(forward) + sum(backward) + update_time(model, gpu)


def effective_flops(family: str, gpu: Gpu, precision: Precision) -> float:
    """FLOP/s that a model of this family reaches on this GPU."""
    from dally.catalog.store import efficiency

    return gpu.peak(precision) * efficiency(family, gpu.generation, gpu.mode(precision))


def _roofline(layer: Layer, gpu: Gpu, batch: int, effective: float, width: int) -> tuple[float, float]:
    memory = gpu.memory_bandwidth * MEMORY_EFFICIENCY
    # An embedding reads only the rows it looks up; they are in its traffic already.
    weights = 0 if layer.kind == "embedding" else layer.parameters * width
    activations = layer.traffic_elements * batch * width
    forward = max(layer.forward_flops * batch / effective, (activations + weights) / memory)
    # Backward reads the activations and their gradients, and writes a gradient per weight.
    moved = 2 * activations + weights + layer.gradient_bytes
    backward = max(layer.backward_flops * batch / effective, moved / memory)
    return forward + layer.launches * LAUNCH_SECONDS, backward + 2 * layer.launches * LAUNCH_SECONDS


def _says_nothing(measured: Measured, layer: Layer, gpu: Gpu) -> bool:
    """Times measured on a CPU say nothing of a GPU; there the layer's operations are what is known."""
    if measured.gpu is None or gpu.generation == CPU or not (layer.forward_flops or layer.traffic_elements):
        return False
    from dally.catalog.store import find_gpu

    return find_gpu(measured.gpu).generation == CPU


def _measured_scale(
    measured: Measured, model: Model, gpu: Gpu, batch: int, effective: float, precision: Precision
) -> float:
    """Measured times grow with the batch and shrink with the speed of the GPU relative to the measured one."""
    scale = batch / (measured.batch or model.batch_size)
    if measured.gpu is None:
        return scale
    from dally.catalog.store import find_gpu

    other = find_gpu(measured.gpu)
    return scale if other == gpu else scale * effective_flops(model.family, other, precision) / effective
