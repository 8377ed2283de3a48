"""The network of Dally's evaluation: ArtISt-sim's rules on the authors' fabric, as it is or congested.

Two things decide what distance costs there. A step computes for 0.05 to 12 ms (`COMPUTE`), because the authors
scale layer times measured at batches of 256 and 512 down to their jobs' seconds per sample, and every step
all-reduces the whole gradient. And their congested runs have ten times the latency and a tenth of the bandwidth
between machines and between racks (the reference results list both kinds).
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from dally.core.journal import Sink
from dally.core.policy import Policy
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.network.artist import ArtistDimension
from dally.network.astra.layers import Layer, compute_ns
from dally.network.fidelity import Artist
from dally.network.model import NetworkModel
from dally.network.registry import make_network
from dally.policies.options import PolicyClass
from dally.simulator.experiment import Experiment
from dally.simulator.reproduce.timer_log import Timer, TimerLog
from dally.simulator.run import Run
from dally.simulator.watching import Progress

PAPER = "paper"
CONGESTION = {"dally": 1.0, "dally-congested": 10.0}

# Seconds a step computes on one GPU, forward and backward, in the authors' runs; by the catalog's names.
COMPUTE = {"vgg11": 3.632e-3, "alexnet": 1.032e-3, "mobilenetv3-small": 0.0529e-3, "resnet18": 0.149e-3,
           "resnet50": 11.65e-3, "bert-large": 1.703e-3}  # fmt: skip


class PaperNetwork(Artist):
    """`artist` at the authors' step times, with the links between machines `congestion` times as slow.

    Layers come from the authors' tables in `layers`; without them the catalog's layers share the authors' step time
    in the catalog's proportions.
    """

    def __init__(self, topology: Topology, layers: Path | None = None, congestion: float = 1.0) -> None:
        super().__init__(topology, layers)
        self.congestion = congestion
        self._scaled: dict[tuple[str | None, str], tuple[Layer, ...]] = {}

    def dimension(self, level: str, size: int) -> ArtistDimension:
        dim = super().dimension(level, size)
        if self.congestion == 1 or level not in ("rack", "cluster"):
            return dim
        return replace(dim, bandwidth=dim.bandwidth / self.congestion, latency_ns=dim.latency_ns * self.congestion)

    def layers(self, model: str | None, gpu_type: str) -> tuple[Layer, ...]:
        key = (model, gpu_type)
        if key not in self._scaled:
            table = super().layers(model, gpu_type)
            wanted = COMPUTE.get(self._known.model_of(model)[0].name)
            self._scaled[key] = table if wanted is None else _scaled(table, wanted * 1e9 / compute_ns(table))
        return self._scaled[key]


def _scaled(table: tuple[Layer, ...], factor: float) -> tuple[Layer, ...]:
    return tuple(replace(layer, forward_ns=round(layer.forward_ns * factor),
                         input_gradient_ns=round(layer.input_gradient_ns * factor),
                         weight_gradient_ns=round(layer.weight_gradient_ns * factor))
                 for layer in table)  # fmt: skip


@dataclass(slots=True)
class TimedRun(Run):
    """A run, and the timers its policy spoke of."""

    timers: tuple[Timer, ...] = ()


@dataclass(frozen=True, slots=True)
class PaperExperiment(Experiment):
    """An experiment on the paper's network (`network="paper"`), or on another by name, that listens for timers."""

    layers: Path | None = None
    congestion: float = 1.0

    def make_network(self, topology: Topology) -> NetworkModel:
        if self.network == PAPER:
            return PaperNetwork(topology, self.layers, self.congestion)
        return make_network(self.network, topology)

    def run(self, policy: str | Policy | PolicyClass, *, journal: str | None = None, progress: Progress | None = None,
            listeners: tuple[Sink, ...] = ()) -> Run:  # fmt: skip
        log = TimerLog()
        # not super(): a dataclass with slots is another class than the one `super()` was compiled in
        run = Experiment.run(self, policy, journal=journal, progress=progress, listeners=(*listeners, log))
        return TimedRun(**{field.name: getattr(run, field.name) for field in fields(run)}, timers=tuple(log.timers))
