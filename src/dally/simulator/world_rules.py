"""How a simulated world behaves: what preemption costs, what breaks, how GPUs are shared, how starts go."""

from __future__ import annotations

from dataclasses import dataclass, field

from dally.core.queues import Queue
from dally.simulator.costs import Constant, PreemptionCost
from dally.simulator.faults import Faults, StartRules
from dally.simulator.predicting import Predictor
from dally.simulator.slices import SharingRules


@dataclass(frozen=True, slots=True)
class WorldRules:
    """Everything about a world that is not its jobs, its machines and its network."""

    cost: PreemptionCost = field(default_factory=lambda: Constant(0.0))
    faults: Faults = field(default_factory=Faults)
    sharing: SharingRules = field(default_factory=SharingRules)
    starts: StartRules = field(default_factory=StartRules)
    queues: tuple[Queue, ...] = ()  # that jobs pass before the policy sees them
    predictor: Predictor | None = None  # says how long jobs will take when they arrive, where that is learned
