"""One training step: compute, gradients sent while backward goes on, and what of the sending nothing hides.

Data parallel: gradients are gathered into buckets in backward order and all-reduced one after another
(PyTorch DDP, VLDB 2020, section 3.2): end = max(end, ready_k) + T_k. Sharded (ZeRO-3/FSDP, arXiv 1910.02054 and
2304.11277): weights are all-gathered unit by unit, one unit ahead of their use, in either pass, and gradients
reduce-scattered. Tensor-parallel activations and model-parallel tables are exchanged in the open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from dally.core.errors import UserError
from dally.network.cuts import BUCKET, cuts_of
from dally.network.envelope import Lines, Rates
from dally.network.model import Step
from dally.network.nccl import Cost
from dally.network.parallel import Exchanges, Layout, ShapeCosts, blocks_of, hidden_elements, layout_for
from dally.network.schedule import Moment, Schedule, Sent, end_alone
from dally.network.shape import Shape, Wires, gpu_count

if TYPE_CHECKING:
    from dally.catalog import Gpu, Model


@dataclass(frozen=True, slots=True)
class StepOptions:
    """`algorithm`: auto, any, or one by name; `bucket`: bytes, None: every layer by itself; `overlap`: of the backward
    pass that is left when a bucket is full, the share behind which its exchange can hide."""

    algorithm: str = "auto"
    bucket: float | None = BUCKET
    overlap: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.overlap <= 1:
            raise UserError(f"overlap is a share between 0 and 1, not {self.overlap:g}")
        if self.bucket is not None and not self.bucket >= 1:
            raise UserError(f"a bucket must hold at least one byte, not {self.bucket:g}")


DEFAULT_OPTIONS = StepOptions()


class StepProfile:
    """A step on GPUs of one shape, for any slowness of the links. How neighbours lengthen it (`lines`) is worked out
    where they first do: most ports have room to spare, and a link may be shared without anybody noticing."""

    __slots__ = ("_lines", "_worked_out", "algorithm", "alone", "bytes_per_level", "compute", "layout", "notes",
                 "rates", "slack", "step", "traffic_per_level")  # fmt: skip

    def __init__(self, compute: float, alone: float, lines: Callable[[], Lines], plan: _Plan, layout: Layout) -> None:
        self.compute = compute
        self.alone = alone  # seconds without neighbours
        self.rates = plan.rates
        self.bytes_per_level = tuple(plan.ports)  # through the busiest port of each level
        self.traffic_per_level = tuple(plan.traffic)  # sent by all GPUs, by the level at which they meet
        self.algorithm = plan.algorithm()
        self.layout, self.notes = layout, layout.notes
        self.step = Step(alone, compute, alone - compute, alone)  # without neighbours
        self.slack = plan.rates.slack(len(plan.ports))  # per level: as slow as its ports may be at no cost at all
        self._lines = lines
        self._worked_out: Lines | None = None

    @property
    def exposed(self) -> float:
        return self.alone - self.compute

    @property
    def lines(self) -> Lines:
        """Their maximum is the step, for every slowness of the links."""
        if self._worked_out is None:
            self._worked_out = self._lines()
        return self._worked_out

    def seconds(self, slower: list[float]) -> float:
        """The step where the ports of level l are `slower[l]` ≥ 1 times slower than alone."""
        lost: list[float] = []  # seconds per byte, by rate
        slowed = False
        for alone, phases in self.rates.compiled:
            per_byte = 0.0
            for longest, pairs in phases:
                for level, c in pairs:
                    taken = c * slower[level]
                    if taken > longest:
                        longest = taken
                per_byte += longest
            lost.append(per_byte - alone)
            slowed = slowed or per_byte > alone
        best = self.alone
        if not slowed:
            return best
        for seconds, slopes in self.lines:
            for rate in range(len(lost)):
                seconds += slopes[rate] * lost[rate]
            if seconds > best:
                best = seconds
        return best


class _Use:
    """A collective of a plan, under the name it is counted by."""

    __slots__ = ("cost", "times", "what")

    def __init__(self, cost: Cost, what: str) -> None:
        self.cost, self.what, self.times = cost, what, 0


class _Plan:
    """What goes through the ports in a step, and which collectives do it. `levels`: 0 where nobody asks."""

    __slots__ = ("_levels", "_uses", "ports", "rates", "traffic")

    def __init__(self, levels: int) -> None:
        self.rates = Rates()
        self.ports = [0.0] * levels
        self.traffic = [0.0] * levels
        self._levels = levels
        self._uses: list[_Use] = []  # a handful: sizes differ more than what is chosen for them

    def add(self, cost: Cost, size: float, times: float = 1.0, what: str = "") -> None:
        if not self._levels:
            return
        ports, traffic, through, sent = self.ports, self.traffic, cost.ports, cost.traffic
        for level in range(self._levels):
            ports[level] += through[level] * size * times
            traffic[level] += sent[level] * size * times
        self._use(cost, what).times += 1 if times == 1.0 else max(1, round(times))

    def _use(self, cost: Cost, what: str) -> _Use:
        for use in self._uses:
            if use.cost is cost and use.what == what:  # objects
                return use
        self.rates.number(cost)
        use = _Use(cost, what)
        self._uses.append(use)
        return use

    def algorithm(self) -> str:
        """What was chosen, and how often."""
        used: dict[str, int] = {}
        for use in self._uses:
            if use.cost.rate:
                name = f"{use.what}{use.cost.algorithm}"
                used[name] = used.get(name, 0) + use.times
        return ", ".join([f"{name} ×{count}" for name, count in used.items()]) or "none"


def profile(
    model: Model, gpu: Gpu, shape: Shape, wires: Wires, options: StepOptions = DEFAULT_OPTIONS,
    batch: int | None = None, timeline: list[Moment] | None = None,
) -> StepProfile:  # fmt: skip
    """The step of a model on GPUs of a shape. `timeline` is filled with what happens when nobody disturbs it.

    `batch` samples (the catalog's by default) are worked on by each copy of the model, however many GPUs there
    are: data-parallel training scales weakly.
    """
    samples = model.batch_size if batch is None else batch
    gpus = gpu_count(shape.top, shape.tree, wires.machine_level)
    layout = layout_for(model, gpus, gpu, samples)
    levels = len(wires.levels)
    plan = _Plan(levels)
    sent = _sent(model, gpu, samples, layout, options, ShapeCosts(shape, wires, layout, options.algorithm), plan)
    plan.rates.compile(levels)
    if timeline is not None:
        Schedule(sent, plan.rates, options.overlap, timeline).end()

    def lines() -> Lines:
        return Schedule(sent, plan.rates, options.overlap, None).end()

    compute = sent.cuts.compute
    return StepProfile(compute, max(compute, end_alone(sent, options.overlap)), lines, plan, layout)


def step_alone(model: Model, gpu: Gpu, shape: Shape, wires: Wires, options: StepOptions = DEFAULT_OPTIONS,
               batch: int | None = None) -> tuple[Step, tuple[str, ...]]:  # fmt: skip
    """`profile(…).step` and its notes, to the bit, for a part of the work: nobody asks what neighbours would cost."""
    gpus = gpu_count(shape.top, shape.tree, wires.machine_level)
    return _alone(model, gpu, gpus, batch, options,
                  lambda layout: ShapeCosts(shape, wires, layout, options.algorithm))  # fmt: skip


def seconds_alone(model: Model, gpu: Gpu, gpus: int, batch: int | None, options: StepOptions,
                  costs: Callable[[Layout], Exchanges]) -> float:  # fmt: skip
    """A step without neighbours whose collectives cost what `costs` says; it does not fall when one of them rises."""
    return _alone(model, gpu, gpus, batch, options, costs)[0].seconds


def _alone(model: Model, gpu: Gpu, gpus: int, batch: int | None, options: StepOptions,
           costs: Callable[[Layout], Exchanges]) -> tuple[Step, tuple[str, ...]]:  # fmt: skip
    batch = model.batch_size if batch is None else batch
    layout = layout_for(model, gpus, gpu, batch)
    sent = _sent(model, gpu, batch, layout, options, costs(layout), _Plan(0))
    compute = sent.cuts.compute
    alone = max(compute, end_alone(sent, options.overlap))
    return Step(alone, compute, alone - compute, alone), layout.notes


def _sent(model: Model, gpu: Gpu, batch: int, layout: Layout, options: StepOptions, costs: Exchanges,
          plan: _Plan) -> Sent:  # fmt: skip
    """All collectives of a step, chosen and planned."""
    sent = Sent(cuts_of(model, gpu, batch, layout, options.bucket))
    _exchange_in_the_open(model, layout, batch, costs, plan, sent)
    if layout.sharded:
        _shard(costs, plan, sent)
    else:
        cuts = sent.cuts
        for size in cuts.sizes:
            cost = costs.data("all-reduce", size)
            plan.add(cost, size)
            sent.sends.append(cost)
    return sent


def _exchange_in_the_open(model: Model, layout: Layout, batch: int, costs: Exchanges, plan: _Plan,
                          sent: Sent) -> None:  # fmt: skip
    """What compute waits for in either pass."""
    width = model.precision.compute_width
    if layout.tensor > 1:
        # Two all-reduces of the activations per block and pass (Megatron-LM, arXiv 1909.08053, section 3), a third
        # pass where activations are recomputed.
        size = float(batch * hidden_elements(model) * width)
        times = float(2 * blocks_of(model) or len(model.layers)) / layout.pipeline
        cost = costs.tensor(size)
        again = 2.0 if model.recompute else 1.0
        plan.add(cost, size, times * (1 + again), "tensor ")
        sent.forward.append(("activations", cost, size, times))
        sent.backward.append(("activations", cost, size, times * again))
    if layout.pipeline > 1:
        size = hidden_elements(model) * width / layout.tensor  # a micro-batch of one sample
        slots = float(batch + layout.pipeline - 1)
        cost = costs.hop()
        plan.add(cost, size, 2 * slots, "pipeline ")
        sent.forward.append(("stage to stage", cost, size, slots))
        sent.backward.append(("stage to stage", cost, size, slots))
    tables = _table_elements(model)
    if tables and layout.data > 1:
        size = float(tables * batch * width)  # DLRM, arXiv 1906.00091: looked-up vectors to whoever has the sample
        cost = costs.gang("all-to-all", size)
        plan.add(cost, size, 2.0, "tables ")
        sent.forward.append(("table rows", cost, size, 1.0))
        sent.backward.append(("table rows", cost, size, 1.0))


@lru_cache(maxsize=512)
def _table_elements(model: Model) -> int:
    """Elements that one sample looks up in tables, which no copy of the model has all of."""
    return sum(layer.traffic_elements // 2 for layer in model.layers if layer.parameters and not layer.gradient_bytes)


def _shard(costs: Exchanges, plan: _Plan, sent: Sent) -> None:
    """All-gathers and reduce-scatters of units of consecutive layers, in forward order."""
    cuts = sent.cuts
    last = len(cuts.sizes) - 1
    known: dict[float, tuple[Cost, Cost]] = {}  # most units of a transformer are of one size
    for number, size in enumerate(cuts.sizes):
        weights = cuts.weights[number]
        found = known.get(size)
        if found is None:
            found = known[size] = (costs.data("all-gather", weights), costs.data("reduce-scatter", size))
        gather, scatter = found
        plan.add(gather, weights, 1.0 if number == last else 2.0, "gather ")
        plan.add(scatter, size, 1.0, "scatter ")
        sent.gathers.append(gather)
        sent.sends.append(scatter)
