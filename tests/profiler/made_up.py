"""A profile made up by hand, for everything that needs no measurement."""

from __future__ import annotations

from pathlib import Path

from dally.profiler.document import Checkpoint, Device, Layer, ModelTable, Profile, Run, write_profile
from dally.profiler.stalls import rates, stalls


def run(step: float, spread: float = 0.001, *, data: str = "synthetic", processes: int = 2, **fields: object) -> Run:
    return Run(
        data=data,
        processes=processes,
        step=step,
        spread=spread,
        windows=[step - spread, step, step + spread],
        steps=30,
        **fields,
    )  # type: ignore[arg-type]


def profile(**changes: object) -> Profile:
    """Two ranks: 100 ms alone, 120 ms together, 150 ms with cached data, 200 ms with cold data."""
    runs = {
        "one": run(0.100, processes=1),
        "all": run(0.120, silent=0.100),
        "cold": run(0.200, data="cold", read=2e6, wait=0.080),
        "cached": run(0.150, data="cached", wait=0.030),
    }
    layers = [
        Layer(
            name="conv",
            kind="conv",
            parameters=1000,
            tensors=[900, 100],
            gradient_bytes=4000,
            forward_flops=10**8,
            input_gradient_flops=10**8,
            weight_gradient_flops=10**8,
            activation_elements=1000,
            traffic_elements=2000,
            measured={"forward": 0.020, "backward": 0.040},
        ),
        Layer(
            name="fc",
            kind="linear",
            parameters=2_000_000,
            tensors=[2_000_000],
            gradient_bytes=8_000_000,
            forward_flops=4 * 10**6,
            input_gradient_flops=4 * 10**6,
            weight_gradient_flops=4 * 10**6,
            measured={"forward": 0.010, "backward": 0.020},
        ),
    ]
    table = ModelTable(
        batch_size=8,
        measured_on="CPU",
        family="cnn",
        update=0.010,
        buckets=[8_000_000, 4000],
        source="made up",
        layers=layers,
    )
    fields: dict[str, object] = {
        "name": "made-up",
        "made": "by hand",
        "device": Device(kind="cpu", name="CPU", cores=4, peak=5e10),
        "batch": 8,
        "runs": runs,
        "stalls": stalls(runs),
        "rates": rates(runs, 8),
        "workers": 1,
        "model": table,
        "checkpoint": Checkpoint(bytes=16_000_000, save=0.5, load=0.1),
    }
    return Profile(**{**fields, **changes})  # type: ignore[arg-type]


def written(folder: Path, **changes: object) -> Path:
    path = folder / "made-up.yaml"
    write_profile(profile(**changes), path)
    return path
