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
from dally.network.envelope import Line, Lines, Rates, Unrated, Work, after, at, latest, value
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


@dataclass(frozen=True, slots=True)
class StepProfile:
    """A step on GPUs of one shape, for any slowness of the links."""

    compute: float
    alone: float  # seconds without neighbours
    lines: tuple[Line, ...]
    rates: Rates
    bytes_per_level: tuple[float, ...]  # through the busiest port of each level
    traffic_per_level: tuple[float, ...]  # sent by all GPUs, by the level at which they meet
    algorithm: str
    layout: Layout
    step: Step  # without neighbours
    notes: tuple[str, ...] = ()

    @property
    def exposed(self) -> float:
        return self.alone - self.compute

    def seconds(self, slower: Sequence[float]) -> float:
        """The step where the ports of level l are `slower[l]` ≥ 1 times slower than alone."""
        lost = []  # seconds per byte, by rate
        for alone, phases in self.rates.compiled:
            per_byte = 0.0
            for longest, pairs in phases:
                for level, c in pairs:
                    taken = c * slower[level]
                    if taken > longest:
                        longest = taken
                per_byte += longest
            lost.append(per_byte - alone)
        best = self.alone
        for seconds, slopes in self.lines:
            for slope, extra in zip(slopes, lost):  # noqa: B905 (as many rates as slopes; this is the hot loop)
                seconds += slope * extra
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
    batch = model.batch_size if batch is None else batch
    gpus = gpu_count(shape.top, shape.tree, wires.machine_level)
    layout = layout_for(model, gpus, gpu, batch)
    plan = _Plan(len(wires.levels))
    costs = ShapeCosts(shape, wires, layout, options.algorithm)
    compute, lines = _timed(model, gpu, batch, layout, options, costs, plan, timeline)
    plan.rates.compile(len(wires.levels))
    alone = max(compute, value(lines))
    used = ", ".join(f"{name} ×{count}" for name, count in plan.used.items()) or "none"
    return StepProfile(
        compute, alone, tuple(lines), plan.rates, tuple(plan.ports), tuple(plan.traffic), used, layout,
        Step(alone, compute, alone - compute, alone), layout.notes,
    )  # fmt: skip


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
        if timeline is None and plan.ports:
            return compute, _end_of(schedule, open_, gathered, scattered)
        return compute, schedule.sharded(open_, gathered, scattered)
    return compute, schedule.bucketed(open_, _buckets(model, layout, options, costs, plan))


_MOST_ENDS = 5_000
_ends: dict[tuple[object, ...], Lines] = {}  # of sharded steps


def _end_of(schedule: _Schedule, open_: _Open, gathered: list[_Send], scattered: list[_Send]) -> Lines:
    """The end of a sharded step, which takes longest to work out. It follows from how long everything takes and which
    rates are the same, and many shapes have that in common: their slowest links are alike."""
    known = schedule.plan.rates.known
    sent = [(send.size, send.cost.latency, send.cost.alone, known[send.cost.rate]) for send in gathered]
    sent += [(send.size, send.cost.latency, send.cost.alone, known[send.cost.rate]) for send in scattered]
    waited = [(cost.latency, cost.alone, known[cost.rate], size, times)
              for exchanges in open_ for _, cost, size, times in exchanges]  # fmt: skip
    key = (schedule.forward, schedule.backward, schedule.update, schedule.overlap, len(known), tuple(sent),
           tuple(waited), tuple([send.last for send in gathered]))  # fmt: skip
    found = _ends.get(key)
    if found is None:
        if len(_ends) >= _MOST_ENDS:
            _ends.clear()
        found = _ends[key] = schedule.sharded(open_, gathered, scattered)
    return found


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
    tables = sum(
        layer.traffic_elements // 2 for layer in model.layers if layer.parameters and not layer.gradient_bytes
    )
    if tables and layout.data > 1:
        size = float(tables * batch * width)  # DLRM, arXiv 1906.00091: looked-up vectors to whoever has the sample
        cost = costs.gang("all-to-all", size)
        plan.add(cost, size, 2.0, "tables ")
        found.forward.append(("table rows", cost, size, 1.0))
        found.backward.append(("table rows", cost, size, 1.0))
    return found


class _Send(NamedTuple):
    """A collective of the gradients (or weights) of the layers `first` … `last`, in forward order."""

    first: int
    last: int
    size: float
    cost: Cost


def _buckets(
    model: Model, layout: Layout, options: StepOptions, costs: Exchanges, plan: _Plan
) -> list[_Send]:
    """A bucket closes at the layer that fills it, from the last layer to the first."""
    sends: list[_Send] = []
    if layout.data == 1:
        return sends
    limits = iter(model.buckets if layout.copy == 1 and options.bucket == BUCKET else ())
    limit = 0.0 if options.bucket is None else options.bucket
    pending, last = 0.0, len(model.layers) - 1
    for index in range(len(model.layers) - 1, -1, -1):
        if not pending:
            last = index
            limit = next(limits, limit)  # buckets as DDP was seen to make them; a layer may be cut, so nearly
        pending += model.layers[index].gradient_bytes / layout.copy
        if pending and (pending >= limit or index == 0):
            cost = costs.data("all-reduce", pending)
            plan.add(cost, pending)
            sends.append(_Send(index, last, pending, cost))
            pending = 0.0
    return sends


def _sharded_units(
    model: Model, layout: Layout, options: StepOptions, costs: Exchanges, plan: _Plan
) -> tuple[list[_Send], list[_Send]]:
    """All-gathers and reduce-scatters of units of consecutive layers, in forward order."""
    total = sum(layer.gradient_bytes for layer in model.layers) / layout.copy
    limit = max(options.bucket or 1.0, total / _MOST_UNITS)
    weight = model.precision.compute_width / model.precision.gradient_width
    gathered: list[_Send] = []
    scattered: list[_Send] = []
    pending, first = 0.0, 0
    known: dict[tuple[Collective, float], Cost] = {}

    def cost_of(op: Collective, size: float) -> Cost:
        if (op, size) not in known:
            known[op, size] = costs.data(op, size)
        return known[op, size]

    for index, layer in enumerate(model.layers):
        pending += layer.gradient_bytes / layout.copy
        if pending >= limit or index == len(model.layers) - 1:
            weights = pending * weight
            gather, scatter = cost_of("all-gather", weights), cost_of("reduce-scatter", pending)
            last_unit = index == len(model.layers) - 1
            plan.add(gather, weights, 1.0 if last_unit else 2.0, "gather ")
            plan.add(scatter, pending, 1.0, "scatter ")
            gathered.append(_Send(first, index, weights, gather))
            scattered.append(_Send(first, index, pending, scatter))
            pending, first = 0.0, index + 1
    return gathered, scattered


class _Schedule:
    """Two lanes, compute and network, each one thing at a time."""

    def __init__(self, plan: _Plan, forward: Sequence[float], backward: Sequence[float], update: float,
                 overlap: float, timeline: list[Moment] | None) -> None:  # fmt: skip
        self.plan, self.forward, self.backward, self.update = plan, forward, backward, update
        self.overlap, self.timeline = overlap, timeline

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
        rates = len(self.plan.rates.alone)
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
            now = self._backward(now, spent, open_, total, f"backward of layers {send.first + 1}–{send.last + 1}")
            network = self._send(f"bucket {number + 1}", self._ready(now, done), network, send)
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
        rates = len(self.plan.rates.alone)
        now = network = before = at(0.0, rates)  # `before`: end of the unit before the last one
        total_forward, total_backward = sum(self.forward), sum(self.backward)
        for number, send in enumerate(gathered):
            network = self._send(f"weights {number + 1}", before, network, send)
            before = now
            start = latest(now, network)
            spent = sum(self.forward[send.first : send.last + 1])
            now = after(start, Work(spent))
            self._note("compute", f"forward of unit {number + 1}", start, now)
            now = self._exchange(now, open_.forward, spent / total_forward if total_forward > 0 else 1.0)
        ready = now
        for number in range(len(gathered) - 1, -1, -1):
            start = latest(now, ready)
            if number:
                ready = network = self._send(f"weights {number}", start, network, gathered[number - 1])
            send = scattered[number]
            spent = sum(self.backward[send.first : send.last + 1])
            now = self._backward(start, spent, open_, total_backward, f"backward of unit {number + 1}")
            network = self._send(f"gradients {number + 1}", self._ready(now, send.first), network, send)
        return self._finish(latest(network, now))

    def _finish(self, when: Lines) -> Lines:
        end = after(when, Work(self.update))
        self._note("compute", "optimiser", when, end)
        return end
