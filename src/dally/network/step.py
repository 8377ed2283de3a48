"""One training step: compute, gradients sent while backward goes on, and what of the sending nothing hides.

Data parallel: gradients are gathered into buckets in backward order and all-reduced one after another
(PyTorch DDP, VLDB 2020, section 3.2): end = max(end, ready_k) + T_k. Sharded (ZeRO-3/FSDP, arXiv 1910.02054 and
2304.11277): weights are all-gathered unit by unit, one unit ahead of their use, in either pass, and gradients
reduce-scattered. Tensor-parallel activations and model-parallel tables are exchanged in the open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from dally.core.errors import UserError
from dally.network.envelope import Counted, Lines, Rates, Unrated, Work, after, at, latest, value
from dally.network.model import Step
from dally.network.nccl import Collective, Cost
from dally.network.parallel import Exchanges, Layout, ShapeCosts, blocks_of, hidden_elements, layout_for
from dally.network.shape import Shape, Wires, gpu_count

if TYPE_CHECKING:
    from dally.catalog import Gpu, Model

BUCKET = 25 * 2**20  # PyTorch DistributedDataParallel's default
_MOST_UNITS = 64  # sharded units of a model: a transformer has some dozens of blocks


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


class Moment(NamedTuple):
    """Something that happens in a step: `lane` is compute or network."""

    lane: str
    what: str
    start: float
    end: float
    size: float = 0.0  # bytes of a collective
    algorithm: str = ""


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
        self.algorithm = ", ".join(f"{name} ×{count}" for name, count in plan.used.items()) or "none"
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


class _Plan:
    """The operations of a step with their costs chosen: first planned, then scheduled."""

    def __init__(self, levels: int, rates: Rates | None = None) -> None:
        self.rates = rates or Rates()
        self.ports = [0.0] * levels
        self.traffic = [0.0] * levels
        self.used: Counter[str] = Counter()

    def add(self, cost: Cost, size: float, times: float = 1.0, what: str = "") -> Cost:
        self.rates.number(cost)
        for level in range(len(self.ports)):
            self.ports[level] += cost.ports[level] * size * times
            self.traffic[level] += cost.traffic[level] * size * times
        if cost.rate:
            self.used[f"{what}{cost.algorithm}"] += max(1, round(times))
        return cost


@lru_cache(maxsize=512)
def passes(model: Model, gpu: Gpu, batch: int) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    from dally.catalog import compute_time, update_time

    forward, backward = compute_time(model, gpu, batch)
    return forward, backward, update_time(model, gpu)


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
    costs = ShapeCosts(shape, wires, layout, options.algorithm)
    levels = len(wires.levels)
    plan = _Plan(levels, Counted())
    compute, end = _timed(model, gpu, samples, layout, options, costs, plan, timeline)
    plan.rates.compile(levels)

    def lines() -> Lines:
        return _timed(model, gpu, samples, layout, options, costs, _Plan(levels), None)[1]

    return StepProfile(compute, max(compute, value(end)), lines, plan, layout)


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
    compute, lines = _timed(model, gpu, batch, layout, options, costs(layout), _Plan(0, Unrated()), None)
    alone = max(compute, value(lines))
    return Step(alone, compute, alone - compute, alone), layout.notes


def _timed(
    model: Model, gpu: Gpu, batch: int, layout: Layout, options: StepOptions, costs: Exchanges, plan: _Plan,
    timeline: list[Moment] | None,
) -> tuple[float, Lines]:  # fmt: skip
    """Seconds of computing, and the end of the step."""
    forward, backward, update = passes(model, gpu, batch)
    stretch = 1 / layout.copy  # every GPU of a copy does its part
    if layout.pipeline > 1:
        # 1F1B: p − 1 of the slots of m micro-batches are a bubble (arXiv 2104.04473, section 2.2).
        stretch *= 1 + (layout.pipeline - 1) / batch
    forward = tuple(seconds * stretch for seconds in forward)
    backward = tuple(seconds * stretch for seconds in backward)
    update /= layout.copy * (layout.data if layout.sharded else 1)
    compute = float(sum(forward)) + float(sum(backward)) + update

    schedule = _Schedule(plan, forward, backward, update, options.overlap, timeline)
    open_ = _open_exchanges(model, layout, batch, costs, plan)
    if layout.sharded:
        gathered, scattered = _sharded_units(model, layout, options, costs, plan)
        return compute, schedule.sharded(open_, gathered, scattered)
    return compute, schedule.bucketed(open_, _buckets(model, layout, options, costs, plan))


class _Open(NamedTuple):
    """Exchanges that compute waits for, each way: (what, cost, bytes, how often)."""

    forward: list[tuple[str, Cost, float, float]]
    backward: list[tuple[str, Cost, float, float]]


def _open_exchanges(model: Model, layout: Layout, batch: int, costs: Exchanges, plan: _Plan) -> _Open:
    found = _Open([], [])
    width = model.precision.compute_width
    if layout.tensor > 1:
        # Two all-reduces of the activations per block and pass (Megatron-LM, arXiv 1909.08053, section 3), a third
        # pass where activations are recomputed.
        size = float(batch * hidden_elements(model) * width)
        times = float(2 * blocks_of(model) or len(model.layers)) / layout.pipeline
        cost = costs.tensor(size)
        again = 2.0 if model.recompute else 1.0
        plan.add(cost, size, times * (1 + again), "tensor ")
        found.forward.append(("activations", cost, size, times))
        found.backward.append(("activations", cost, size, times * again))
    if layout.pipeline > 1:
        size = hidden_elements(model) * width / layout.tensor  # a micro-batch of one sample
        slots = float(batch + layout.pipeline - 1)
        cost = costs.hop()
        plan.add(cost, size, 2 * slots, "pipeline ")
        found.forward.append(("stage to stage", cost, size, slots))
        found.backward.append(("stage to stage", cost, size, slots))
    tables = _table_elements(model)
    if tables and layout.data > 1:
        size = float(tables * batch * width)  # DLRM, arXiv 1906.00091: looked-up vectors to whoever has the sample
        cost = costs.gang("all-to-all", size)
        plan.add(cost, size, 2.0, "tables ")
        found.forward.append(("table rows", cost, size, 1.0))
        found.backward.append(("table rows", cost, size, 1.0))
    return found


@lru_cache(maxsize=512)
def _table_elements(model: Model) -> int:
    """Elements that one sample looks up in tables, which no copy of the model has all of."""
    return sum(layer.traffic_elements // 2 for layer in model.layers if layer.parameters and not layer.gradient_bytes)


class _Send(NamedTuple):
    """A collective of the gradients (or weights) of the layers `first` … `last`, in forward order."""

    first: int
    last: int
    size: float
    cost: Cost


def _buckets(
    model: Model, layout: Layout, options: StepOptions, costs: Exchanges, plan: _Plan
) -> list[_Send]:
    """The all-reduces of the gradients, in the order in which they are ready."""
    sends: list[_Send] = []
    if layout.data == 1:
        return sends
    for first, last, size in _in_buckets(model, layout.copy, options.bucket):
        cost = costs.data("all-reduce", size)
        plan.add(cost, size)
        sends.append(_Send(first, last, size, cost))
    return sends


@lru_cache(maxsize=4096)
def _in_buckets(model: Model, copy: int, bucket: float | None) -> list[tuple[int, int, float]]:
    """First and last layer and bytes of every bucket: it closes at the layer that fills it, from the last layer to the
    first."""
    found: list[tuple[int, int, float]] = []
    limits = iter(model.buckets if copy == 1 and bucket == BUCKET else ())
    limit = 0.0 if bucket is None else bucket
    pending, last = 0.0, len(model.layers) - 1
    for index in range(len(model.layers) - 1, -1, -1):
        if not pending:
            last = index
            limit = next(limits, limit)  # buckets as DDP was seen to make them; a layer may be cut, so nearly
        pending += model.layers[index].gradient_bytes / copy
        if pending and (pending >= limit or index == 0):
            found.append((index, last, pending))
            pending = 0.0
    return found


def _sharded_units(
    model: Model, layout: Layout, options: StepOptions, costs: Exchanges, plan: _Plan
) -> tuple[list[_Send], list[_Send]]:
    """All-gathers and reduce-scatters of units of consecutive layers, in forward order."""
    weight = model.precision.compute_width / model.precision.gradient_width
    gathered: list[_Send] = []
    scattered: list[_Send] = []
    known: dict[tuple[Collective, float], Cost] = {}

    def cost_of(op: Collective, size: float) -> Cost:
        if (op, size) not in known:
            known[op, size] = costs.data(op, size)
        return known[op, size]

    for first, last, size in _in_units(model, layout.copy, options.bucket):
        weights = size * weight
        gather, scatter = cost_of("all-gather", weights), cost_of("reduce-scatter", size)
        plan.add(gather, weights, 1.0 if last == len(model.layers) - 1 else 2.0, "gather ")
        plan.add(scatter, size, 1.0, "scatter ")
        gathered.append(_Send(first, last, weights, gather))
        scattered.append(_Send(first, last, size, scatter))
    return gathered, scattered


@lru_cache(maxsize=4096)
def _in_units(model: Model, copy: int, bucket: float | None) -> list[tuple[int, int, float]]:
    """First and last layer and bytes of the gradients of every unit, in forward order."""
    found: list[tuple[int, int, float]] = []
    total = sum(layer.gradient_bytes for layer in model.layers) / copy
    limit = max(bucket or 1.0, total / _MOST_UNITS)
    pending, first = 0.0, 0
    for index, layer in enumerate(model.layers):
        pending += layer.gradient_bytes / copy
        if pending >= limit or index == len(model.layers) - 1:
            found.append((first, index, pending))
            pending, first = 0.0, index + 1
    return found


class _Schedule:
    """Two lanes, compute and network, each one thing at a time."""

    def __init__(self, plan: _Plan, forward: Sequence[float], backward: Sequence[float], update: float,
                 overlap: float, timeline: list[Moment] | None) -> None:  # fmt: skip
        self.plan, self.forward, self.backward, self.update = plan, forward, backward, update
        self.overlap, self.timeline = overlap, timeline

    def _named(self, what: str, first: int, last: int = 0) -> str:
        """Only where somebody looks at the timeline: most steps are worked out for their end alone."""
        if self.timeline is None:
            return what
        return f"{what} {first}–{last}" if last else f"{what} {first}"

    def _note(self, lane: str, what: str, start: Lines, end: Lines, size: float = 0.0, algorithm: str = "") -> None:
        if self.timeline is not None and value(end) > value(start):
            self.timeline.append(Moment(lane, what, value(start), value(end), size, algorithm))

    def _exchange(self, when: Lines, exchanges: list[tuple[str, Cost, float, float]], share: float) -> Lines:
        for what, cost, size, times in exchanges:
            end = after(when, self.plan.rates.work(cost, size, times * share))
            self._note("network", what, when, end, size * times * share, cost.algorithm)
            when = end
        return when

    def _send(self, what: str, ready: Lines, busy: Lines, send: _Send) -> Lines:
        start = latest(busy, ready)
        end = after(start, self.plan.rates.work(send.cost, send.size))
        self._note("network", what, start, end, send.size, send.cost.algorithm)
        return end

    def bucketed(self, open_: _Open, buckets: list[_Send]) -> Lines:
        rates = self.plan.rates.width
        begin = at(0.0, rates)
        now = after(begin, Work(sum(self.forward)))
        self._note("compute", "forward", begin, now)
        now = self._exchange(now, open_.forward, 1.0)
        network = begin
        total = sum(self.backward)
        done = len(self.backward)
        for number, send in enumerate(buckets):
            spent = sum(self.backward[send.first : done])
            done = send.first
            layers = self._named("backward of layers", send.first + 1, send.last + 1)
            now = self._backward(now, spent, open_, total, layers)
            network = self._send(self._named("bucket", number + 1), self._ready(now, done), network, send)
        if done:
            now = self._backward(now, sum(self.backward[:done]), open_, total, "backward")
        return self._finish(latest(network, now))

    def _ready(self, now: Lines, layers: int) -> Lines:
        """When gradients can be sent that are there now, with the backward pass of so many layers to come."""
        if self.overlap == 1.0:
            return now
        return after(now, Work((1.0 - self.overlap) * sum(self.backward[:layers])))

    def _backward(self, now: Lines, spent: float, open_: _Open, total: float, what: str) -> Lines:
        end = after(now, Work(spent))
        self._note("compute", what, now, end)
        return self._exchange(end, open_.backward, spent / total if total > 0 else 1.0)

    def sharded(self, open_: _Open, gathered: list[_Send], scattered: list[_Send]) -> Lines:
        rates = self.plan.rates.width
        now = network = before = at(0.0, rates)  # `before`: end of the unit before the last one
        total_forward, total_backward = sum(self.forward), sum(self.backward)
        for number, send in enumerate(gathered):
            network = self._send(self._named("weights", number + 1), before, network, send)
            before = now
            start = latest(now, network)
            spent = sum(self.forward[send.first : send.last + 1])
            now = after(start, Work(spent))
            self._note("compute", self._named("forward of unit", number + 1), start, now)
            now = self._exchange(now, open_.forward, spent / total_forward if total_forward > 0 else 1.0)
        ready = now
        for number in range(len(gathered) - 1, -1, -1):
            start = latest(now, ready)
            if number:
                ready = network = self._send(self._named("weights", number), start, network, gathered[number - 1])
            send = scattered[number]
            spent = sum(self.backward[send.first : send.last + 1])
            now = self._backward(start, spent, open_, total_backward, self._named("backward of unit", number + 1))
            network = self._send(self._named("gradients", number + 1), self._ready(now, send.first), network, send)
        return self._finish(latest(network, now))

    def _finish(self, when: Lines) -> Lines:
        end = after(when, Work(self.update))
        self._note("compute", "optimiser", when, end)
        return end
