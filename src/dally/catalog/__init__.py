"""What is known about models, GPUs, machines, fabrics and cloud instances, from data files anybody can extend.

Importing this package costs nothing: each section is read on first use, a model's layer table when it is
first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dally.catalog.gpu import Gpu
    from dally.catalog.layer_csv import load_layer_csv
    from dally.catalog.machine import Fabric, Instance, Machine
    from dally.catalog.model import Layer, Model
    from dally.catalog.store import (
        batch_in_name,
        fabrics,
        find_fabric,
        find_gpu,
        find_machine,
        find_model,
        gpus,
        instances,
        machines,
        models,
        use_directories,
    )
    from dally.catalog.timing import compute_time, step_compute_time, update_time
    from dally.catalog.wiring import wire

_HOME = {
    "Gpu": "gpu",
    "load_layer_csv": "layer_csv",
    "Fabric": "machine",
    "Instance": "machine",
    "Machine": "machine",
    "Layer": "model",
    "Model": "model",
    "batch_in_name": "store",
    "fabrics": "store",
    "find_fabric": "store",
    "find_gpu": "store",
    "find_machine": "store",
    "find_model": "store",
    "gpus": "store",
    "instances": "store",
    "machines": "store",
    "models": "store",
    "use_directories": "store",
    "compute_time": "timing",
    "step_compute_time": "timing",
    "update_time": "timing",
    "wire": "wiring",
}

__all__ = [
    "Fabric",
    "Gpu",
    "Instance",
    "Layer",
    "Machine",
    "Model",
    "batch_in_name",
    "compute_time",
    "fabrics",
    "find_fabric",
    "find_gpu",
    "find_machine",
    "find_model",
    "gpus",
    "instances",
    "load_layer_csv",
    "machines",
    "models",
    "step_compute_time",
    "update_time",
    "use_directories",
    "wire",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
