"""When a step ends: two lanes, compute and network, each one thing at a time.

Once with plain numbers, as nobody disturbs it (`end_alone`), and once for every slowness of the links (`Schedule`). The
first is what nearly every step is asked for, and takes a small part of the time; tests hold the two together.
"""

from __future__ import annotations

from typing import NamedTuple

from dally.network.cuts import Cuts
from dally.network.envelope import Lines, Rates, Work, after, at, latest, value
from dally.network.nccl import Cost

Exchange = tuple[str, Cost, float, float]  # what, its cost, bytes, how often


class Moment(NamedTuple):
    """Something that happens in a step: `lane` is compute or network."""

    lane: str
    what: str
    start: float
    end: float
    size: float = 0.0  # bytes of a collective
    algorithm: str = ""


class Sent:
    """All that is sent in a step: what compute waits for in either pass, and a collective for each of the cuts."""

    __slots__ = ("backward", "cuts", "forward", "gathers", "sends")

    def __init__(self, cuts: Cuts) -> None:
        self.cuts = cuts
        self.forward: list[Exchange] = []
        self.backward: list[Exchange] = []
        self.gathers: list[Cost] = []  # of weights, where the model is sharded
        self.sends: list[Cost] = []  # of gradients


def end_alone(sent: Sent, overlap: float) -> float:
    """Without neighbours."""
    cuts = sent.cuts
    return max(_units(sent, cuts, overlap) if sent.gathers else _buckets(sent, cuts, overlap)) + cuts.update


def _waited(now: float, exchanges: list[Exchange], spent: float, total: float) -> float:
    """After the part of the exchanges that goes with so much of a pass."""
    share = spent / total if total > 0 else 1.0
    for _, cost, size, times in exchanges:
        now += times * share * (cost.latency + size * cost.alone)
    return now


def _buckets(sent: Sent, cuts: Cuts, overlap: float) -> tuple[float, float]:
    now, network = cuts.forward, 0.0
    if sent.forward:
        now = _waited(now, sent.forward, 1.0, 1.0)
    sends, sizes, backwards = sent.sends, cuts.sizes, cuts.backwards
    for number in range(len(sends)):
        spent, cost = backwards[number], sends[number]
        now += spent
        if sent.backward:
            now = _waited(now, sent.backward, spent, cuts.backward)
        ready = now if overlap == 1.0 else now + (1.0 - overlap) * cuts.left[number]
        network = (network if network >= ready else ready) + (cost.latency + sizes[number] * cost.alone)
    if cuts.rest is not None:
        now += cuts.rest
        if sent.backward:
            now = _waited(now, sent.backward, cuts.rest, cuts.backward)
    return network, now


def _units(sent: Sent, cuts: Cuts, overlap: float) -> tuple[float, float]:
    gathers, weights, forwards = sent.gathers, cuts.weights, cuts.forwards
    now = network = before = 0.0  # `before`: end of the unit before the last one
    for number in range(len(gathers)):
        cost, spent = gathers[number], forwards[number]
        network = (network if network >= before else before) + (cost.latency + weights[number] * cost.alone)
        before = now
        now = (now if now >= network else network) + spent
        if sent.forward:
            now = _waited(now, sent.forward, spent, cuts.forward)
    sends, sizes, backwards = sent.sends, cuts.sizes, cuts.backwards
    ready = now
    for number in range(len(gathers) - 1, -1, -1):
        if ready > now:
            now = ready
        if number:
            cost = gathers[number - 1]
            network = (network if network >= now else now) + (cost.latency + weights[number - 1] * cost.alone)
            ready = network
        cost, spent = sends[number], backwards[number]
        now += spent
        if sent.backward:
            now = _waited(now, sent.backward, spent, cuts.backward)
        there = now if overlap == 1.0 else now + (1.0 - overlap) * cuts.left[number]
        network = (network if network >= there else there) + (cost.latency + sizes[number] * cost.alone)
    return network, now


class Schedule:
    """The same for any slowness of the links, and moment by moment where somebody looks at a timeline."""

    def __init__(self, sent: Sent, rates: Rates, overlap: float, timeline: list[Moment] | None) -> None:
        self.sent, self.cuts, self.rates = sent, sent.cuts, rates
        self.overlap, self.timeline = overlap, timeline

    def end(self) -> Lines:
        when = self._units() if self.sent.gathers else self._buckets()
        end = after(when, Work(self.cuts.update))
        self._note("compute", "optimiser", when, end)
        return end

    def _named(self, what: str, first: int, last: int = 0) -> str:
        """Only where somebody looks at the timeline: most steps are worked out for their end alone."""
        if self.timeline is None:
            return what
        return f"{what} {first}–{last}" if last else f"{what} {first}"

    def _note(self, lane: str, what: str, start: Lines, end: Lines, size: float = 0.0, algorithm: str = "") -> None:
        if self.timeline is not None and value(end) > value(start):
            self.timeline.append(Moment(lane, what, value(start), value(end), size, algorithm))

    def _exchange(self, when: Lines, exchanges: list[Exchange], spent: float, total: float) -> Lines:
        share = spent / total if total > 0 else 1.0
        for what, cost, size, times in exchanges:
            end = after(when, self.rates.work(cost, size, times * share))
            self._note("network", what, when, end, size * times * share, cost.algorithm)
            when = end
        return when

    def _send(self, what: str, ready: Lines, busy: Lines, size: float, cost: Cost) -> Lines:
        start = latest(busy, ready)
        end = after(start, self.rates.work(cost, size))
        self._note("network", what, start, end, size, cost.algorithm)
        return end

    def _buckets(self) -> Lines:
        cuts, sent = self.cuts, self.sent
        begin = at(0.0, self.rates.width)
        now = after(begin, Work(cuts.forward))
        self._note("compute", "forward", begin, now)
        now = self._exchange(now, sent.forward, 1.0, 1.0)
        network = begin
        for number, cost in enumerate(sent.sends):
            first, last = cuts.layers[number]
            now = self._backward(now, cuts.backwards[number], self._named("backward of layers", first + 1, last + 1))
            network = self._send(self._named("bucket", number + 1), self._ready(now, number), network,
                                 cuts.sizes[number], cost)  # fmt: skip
        if cuts.rest is not None:
            now = self._backward(now, cuts.rest, "backward")
        return latest(network, now)

    def _ready(self, now: Lines, number: int) -> Lines:
        """When gradients can be sent that are there now, with a part of the backward pass to come."""
        if self.overlap == 1.0:
            return now
        return after(now, Work((1.0 - self.overlap) * self.cuts.left[number]))

    def _backward(self, now: Lines, spent: float, what: str) -> Lines:
        end = after(now, Work(spent))
        self._note("compute", what, now, end)
        return self._exchange(end, self.sent.backward, spent, self.cuts.backward)

    def _units(self) -> Lines:
        cuts, sent = self.cuts, self.sent
        now = network = before = at(0.0, self.rates.width)  # `before`: end of the unit before the last one
        for number, cost in enumerate(sent.gathers):
            network = self._send(self._named("weights", number + 1), before, network, cuts.weights[number], cost)
            before = now
            start = latest(now, network)
            spent = cuts.forwards[number]
            now = after(start, Work(spent))
            self._note("compute", self._named("forward of unit", number + 1), start, now)
            now = self._exchange(now, sent.forward, spent, cuts.forward)
        ready = now
        for number in range(len(sent.gathers) - 1, -1, -1):
            start = latest(now, ready)
            if number:
                ready = network = self._send(self._named("weights", number), start, network,
                                             cuts.weights[number - 1], sent.gathers[number - 1])  # fmt: skip
            now = self._backward(start, cuts.backwards[number], self._named("backward of unit", number + 1))
            network = self._send(self._named("gradients", number + 1), self._ready(now, number), network,
                                 cuts.sizes[number], sent.sends[number])  # fmt: skip
        return latest(network, now)
