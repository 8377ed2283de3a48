"""The priced bound: charge every schedule for the GPU time it uses, and let each job choose its best alone.

A price β(t) ≥ 0 per unit of room and second replaces the capacity. Whatever the price, the jobs' cheapest
choices, less what the whole room costs, are a lower bound (Lagrangian duality; docs/lower-bound.md, "Priced
time"). A job cannot run faster than its own speed here, which is what the poured tank of bounds_fluid.py
forgets once a job has fallen behind. A price close to the best is searched on a sample of the jobs; the bound
itself is then computed over all of them: the search decides how good it is and never whether it holds.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from dally.core.records import dataclass
from dally.simulator.bounds_fluid import distinct, fill

Floats = NDArray[np.float64]

_NODES = 129  # of the price; more follow it better and cost time in proportion
_SAMPLE = 800  # jobs on which the price is searched
_STEPS = 60  # of that search
_CHUNK = 256  # jobs per matrix: small enough to stay in the processor's cache
_START_THRESHOLDS = 32
_FINE = 2001  # moments at which the first price is looked at to place the nodes


@dataclass(frozen=True, slots=True)
class _Choices:
    """Jobs against the intervals between the price's nodes; a row per job, times from its own release."""

    run_time: Floats
    size: Floats
    urgency: Floats  # 1/(g p): what one second later costs per unit of work
    since: Floats  # where the part of each interval after the release begins, from the interval's begin
    length: Floats  # of that part
    age: Floats  # from the release to the begin of that part
    beyond: Floats  # from the release to the end of the last interval, where the price is zero

    @classmethod
    def of(cls, release: Floats, run_time: Floats, size: Floats, nodes: Floats) -> Self:
        column = release[:, None]
        begin = np.maximum(nodes[:-1], column)
        length = np.maximum(nodes[1:], column) - begin
        urgency = 1 / (size * run_time)
        beyond = np.maximum(nodes[-1] - release, 0.0)
        return cls(run_time, size, urgency, begin - nodes[:-1], length, begin - column, beyond)

    def respond(self, nodes: Floats, price: Floats) -> tuple[Floats, Floats, Floats]:
        """Each job's least delay plus cost; and, per interval, the room it buys and where in it."""
        climb = np.diff(price) / np.diff(nodes)
        urgency = self.urgency[:, None]
        first = urgency * self.age + price[:-1] + climb * self.since
        tilt = urgency + climb
        rise = tilt * self.length
        low = first + np.minimum(rise, 0.0)
        width = np.maximum(np.abs(rise), 1e-200)
        free = self.urgency * self.beyond  # cost rate of the first second beyond the last node
        alpha = self._dearest_second(low, width, free)
        share = np.clip((alpha[:, None] - low) / width, 0.0, 1.0)
        # ∫(α − cost)⁺ over an interval: a triangle if α cuts it, plus a rectangle if α is above it.
        above = np.maximum(alpha[:, None] - low - width, 0.0)
        surplus = np.einsum("ij,ij->i", self.length, above + share * share * width / 2)
        surplus += np.maximum(alpha - free, 0.0) ** 2 / (2 * self.urgency)
        value = self.size * (alpha * self.run_time - surplus) - self.run_time / 2
        used = self.length * share
        centre = self.since + np.where(tilt > 0, used / 2, self.length - used / 2)
        return value, self.size[:, None] * used, centre / np.diff(nodes)

    def _dearest_second(self, low: Floats, width: Floats, free: Floats) -> Floats:
        """The cost rate α below which each job finds exactly the p seconds it needs.

        A job buys all seconds cheaper than α. αp − ∫(α − cost)⁺ is concave in α with its maximum there, but
        a bound for any α, so this search may be a little off: intervals of nearly constant cost are widened.
        """
        widened = np.maximum(width, 1e-7 * (free + self.urgency * self.run_time)[:, None])
        density = self.length / widened
        knots = np.concatenate((low, low + widened, free[:, None]), axis=1)
        turns = np.concatenate((density, -density, (1 / self.urgency)[:, None]), axis=1)
        order = np.argsort(knots, axis=1)
        knots = np.take_along_axis(knots, order, axis=1)
        steep = np.cumsum(np.take_along_axis(turns, order, axis=1), axis=1)
        bought = np.zeros_like(knots)
        np.cumsum(steep[:, :-1] * np.diff(knots, axis=1), axis=1, out=bought[:, 1:])
        at = np.maximum(np.sum(bought < self.run_time[:, None], axis=1) - 1, 0)
        rows = np.arange(len(at))
        missing = self.run_time - bought[rows, at]
        return np.asarray(knots[rows, at] + missing / np.maximum(steep[rows, at], 1e-300))


def priced_delay(
    release: Floats, run_time: Floats, size: Floats, room: float, end: float, beat: float = 0.0
) -> float:
    """A lower bound on the total delay Σ (C − r − p); `end` is how far a price may reach (a makespan, say).

    0 if the sample says that it would stay clearly below `beat`, another bound already known.
    """
    kept = size * run_time > 0
    if end <= 0 or not kept.any():
        return 0.0
    release, run_time, size = release[kept], run_time[kept], size[kept]
    rows, weight = _sample(size * run_time)
    few = release[rows], run_time[rows], size[rows], weight
    fine = np.linspace(0.0, end, _FINE)
    first = _poured_price(*few, room, fine)
    if not first.any():
        return 0.0  # nothing ever overflows, so no price above zero would gain
    nodes = _placed(fine, first, min(_NODES, 8 * len(rows) + 1))
    price, estimate = _search(*few, room, nodes)
    if estimate < 0.9 * beat:
        return 0.0
    spent = _Antiderivative(nodes, price)
    total = -room * float(spent.sums[-1])
    # Where the price falls more slowly than its urgency everywhere, a job gains nothing by waiting.
    fall = max(float(np.max(-np.diff(price) / np.diff(nodes))), 0.0)
    prompt = fall * size * run_time <= 1
    begin, finish = release[prompt], (release + run_time)[prompt]
    total += float(np.sum(size[prompt] * (spent.at(finish) - spent.at(begin))))
    patient = np.flatnonzero(~prompt)
    for at in range(0, len(patient), _CHUNK):
        rows = patient[at : at + _CHUNK]
        choices = _Choices.of(release[rows], run_time[rows], size[rows], nodes)
        total += float(choices.respond(nodes, price)[0].sum())
    return max(total, 0.0)


def _placed(fine: Floats, price: Floats, count: int) -> Floats:
    """Nodes, half of them evenly in time, half where the price moves."""
    move = np.sqrt(np.abs(np.diff(price)))
    share = 1 / len(move) + move / move.sum()
    reached = np.concatenate(([0.0], np.cumsum(share)))
    nodes = np.interp(np.linspace(0.0, 1.0, count), reached / reached[-1], fine)
    return distinct(nodes)


def _search(
    release: Floats, run_time: Floats, size: Floats, weight: Floats, room: float, nodes: Floats
) -> tuple[Floats, float]:
    """A good price, and its bound as far as the sample tells.

    From the poured tank's price uphill, along the sign of demand minus room at every node.
    """
    price = _poured_price(release, run_time, size, weight, room, nodes)
    chunks = [slice(at, at + _CHUNK) for at in range(0, len(release), _CHUNK)]
    parts = [(_Choices.of(release[c], run_time[c], size[c], nodes), weight[c]) for c in chunks]
    supply = room / 2 * (np.diff(nodes, prepend=nodes[0]) + np.diff(nodes, append=nodes[-1]))
    stride = 0.15 * (price + 0.05 * price.mean())
    best, best_value = price, -np.inf
    last_sign = np.zeros(len(nodes))
    for _ in range(_STEPS):
        value = -float(supply @ price)
        demand = np.zeros(len(nodes))
        for choices, weights in parts:
            delay, used, centre = choices.respond(nodes, price)
            value += float(weights @ delay)
            late = weights @ (used * centre)
            demand[:-1] += weights @ used - late
            demand[1:] += late
        if value > best_value:
            best, best_value = price, value
        sign = np.sign(demand - supply)
        stride *= np.where(sign == last_sign, 1.2, 0.5)  # resilient steps (Riedmiller and Braun, 1993)
        last_sign = sign
        price = np.maximum(price + sign * stride, 0.0)
        price[-1] = 0.0
    return best, best_value


def _sample(work: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The jobs with most work, and every so many-th of the others to stand for its neighbours."""
    order = np.argsort(-work, kind="stable")
    if len(order) <= _SAMPLE:
        return order, np.ones(len(order))
    half = _SAMPLE // 2
    others = order[half:]
    picked = others[np.linspace(0, len(others) - 1, half).astype(np.int64)]
    weight = np.concatenate((np.ones(half), np.full(half, len(others) / half)))
    return np.concatenate((order[:half], picked)), weight


def _poured_price(
    release: Floats, run_time: Floats, size: Floats, weight: Floats, room: float, nodes: Floats
) -> Floats:
    """The price at which the poured tank would be optimal: Σ_k (1/u_k − 1/u_{k+1}) × time to tank k's end."""
    work = size * run_time
    works = distinct(work)
    picked = works[distinct(np.linspace(0, len(works) - 1, _START_THRESHOLDS).astype(np.int64))]
    gain = 1 / picked - np.append(1 / picked[1:], 0.0)
    price = np.zeros(len(nodes))
    for threshold, step in zip(picked.tolist(), gain.tolist(), strict=True):
        few = work <= threshold
        times = np.concatenate((release[few], (release + run_time)[few]))
        order = np.argsort(times, kind="stable")
        change = np.concatenate((size[few] * weight[few], -size[few] * weight[few]))[order]
        price += step * np.maximum(fill(times[order], change, room).busy_until(nodes) - nodes, 0.0)
    price[-1] = 0.0
    return price


class _Antiderivative:
    """∫ of the price from 0 to any time: quadratic between nodes, level after the last."""

    def __init__(self, nodes: Floats, price: Floats) -> None:
        self.nodes, self.price = nodes, price
        self.climb = np.diff(price) / np.diff(nodes)
        self.sums = np.concatenate(([0.0], np.cumsum((price[:-1] + price[1:]) / 2 * np.diff(nodes))))

    def at(self, times: Floats) -> Floats:
        times = np.minimum(times, self.nodes[-1])
        k = np.minimum(np.searchsorted(self.nodes, times, side="right") - 1, len(self.nodes) - 2)
        rest = times - self.nodes[k]
        return np.asarray(self.sums[k] + rest * (self.price[k] + self.climb[k] * rest / 2))
