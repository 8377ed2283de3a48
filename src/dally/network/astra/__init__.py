"""Collectives and training steps to the nanosecond of ASTRA-sim's analytical backends, and a bridge to it."""

from dally.network.astra.collective import Fabric, collective_ns
from dally.network.astra.layers import Layer, read_layers
from dally.network.astra.model import Dimension, System
from dally.network.astra.step import StepNs, data_parallel_step_ns

__all__ = [
    "Dimension",
    "Fabric",
    "Layer",
    "StepNs",
    "System",
    "collective_ns",
    "data_parallel_step_ns",
    "read_layers",
]
