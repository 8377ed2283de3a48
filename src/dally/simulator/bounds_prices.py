"""The priced bound: charge every schedule for the GPU time it uses, and let each job choose its best alone.

A price β(t) ≥ 0 per unit of room and second replaces the capacity. Whatever the price, the jobs' cheapest
choices, less what the whole room costs, are a lower bound (Lagrangian duality; docs/lower-bound.md, part 5).
A job cannot run faster than its own speed here, which is what the poured tank of bounds_fluid.py forgets once
a job has fallen behind. A price close to the best is searched on a sample of the jobs; the bound itself is
then computed over all of them, so the quality of the search decides how good it is and never whether it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dally.simulator.bounds_fluid import busy_until

Floats = NDArray[np.float64]

_NODES = 129  # of the price; more follow it better and cost time in proportion
_SAMPLE = 1500  # jobs on which the price is searched
_STEPS = 80  # of that search
_CHUNK = 512  # jobs per matrix: small enough to stay in the processor's cache
_START_THRESHOLDS = 32


@dataclass(slots=True)
class _Choices:
    """Jobs against the intervals between the price's nodes; a row per job, times from its own release."""

    run_time: Floats
    size: Floats
    urgency: Floats  # 1/(g p): what one second later costs per unit of work
    since: Floats  # where the part of each interval after the release begins, from the interval's begin
    length: Floats  # of that part
    age: Floats  # from the release to the begin of that part
    beyond: Floats  # from the release to the end of the last interval, where the price is zero
    alpha: Floats  # the dearest second each job buys, as found so far

    @classmethod
    def of(cls, release: Floats, run_time: Floats, size: Floats, nodes: Floats) -> Self:
        column = release[:, None]
        begin = np.maximum(nodes[:-1], column)
        length = np.maximum(nodes[1:], column) - begin
        urgency = 1 / (size * run_time)
        beyond = np.maximum(nodes[-1] - release, 0.0)
        return cls(
            run_time, size, urgency, begin - nodes[:-1], length, begin - column, beyond, urgency * run_time
        )

    def respond(self, nodes: Floats, price: Floats, rounds: int) -> tuple[Floats, Floats, Floats]:
        """Each job's least delay plus cost; and, per interval, the room it buys and where in it."""
        climb = np.diff(price) / np.diff(nodes)
        urgency = self.urgency[:, None]
        first = urgency * self.age + price[:-1] + climb * self.since
        tilt = urgency + climb
        rise = tilt * self.length
        low = first + np.minimum(rise, 0.0)
        width = np.maximum(np.abs(rise), 1e-300)
        density = self.length / width
        free = self.urgency * self.beyond  # cost rate of the first second beyond the last node

        # A job buys every second dearer than alpha not at all. The α that buys exactly p seconds is best, but
        # any α gives a bound (αp − ∫(α − cost)⁺ is concave with its maximum there): Newton, inside a bracket.
        under, over = np.zeros_like(free), free + self.urgency * self.run_time
        alpha = np.clip(self.alpha, under, over)
        for _ in range(rounds):
            share = np.clip((alpha[:, None] - low) / width, 0.0, 1.0)
            bought = np.einsum("ij,ij->i", share, self.length) + np.maximum(alpha - free, 0.0) / self.urgency
            partly = (share > 0) & (share < 1)
            steep = np.einsum("ij,ij->i", partly, density) + (alpha > free) / self.urgency
            short = bought < self.run_time
            under, over = np.where(short, alpha, under), np.where(short, over, alpha)
            step = alpha + (self.run_time - bought) / np.maximum(steep, 1e-300)
            inside = (step >= under) & (step <= over)
            alpha = np.where(inside, step, (under + over) / 2)
        self.alpha = alpha
        share = np.clip((alpha[:, None] - low) / width, 0.0, 1.0)
        # ∫(α − cost)⁺ over an interval: a triangle if α cuts it, plus a rectangle if α is above it.
        above = np.maximum(alpha[:, None] - low - width, 0.0)
        surplus = np.einsum("ij,ij->i", self.length, above + share * share * width / 2)
        surplus += np.maximum(alpha - free, 0.0) ** 2 / (2 * self.urgency)
        value = self.size * (alpha * self.run_time - surplus) - self.run_time / 2
        used = self.length * share
        centre = self.since + np.where(tilt > 0, used / 2, self.length - used / 2)
        return value, self.size[:, None] * used, centre / np.diff(nodes)


def priced_delay(release: Floats, run_time: Floats, size: Floats, room: float, end: float) -> float:
    """A lower bound on the total delay Σ (C − r − p); `end` is how far a price may reach (a makespan, say)."""
    kept = size * run_time > 0
    if end <= 0 or not kept.any():
        return 0.0
    release, run_time, size = release[kept], run_time[kept], size[kept]
    nodes = np.linspace(0.0, end, _NODES)
    price = _search(release, run_time, size, room, nodes)
    if not price.any():
        return 0.0
    total = -room * float(np.trapezoid(price, nodes))
    # Where the price falls more slowly than its urgency everywhere, a job gains nothing by waiting.
    fall = max(float(np.max(-np.diff(price) / np.diff(nodes))), 0.0)
    prompt = 1 >= fall * size * run_time
    spent = _Antiderivative(nodes, price)
    begin, finish = release[prompt], (release + run_time)[prompt]
    total += float(np.sum(size[prompt] * (spent.at(finish) - spent.at(begin))))
    patient = np.flatnonzero(~prompt)
    for at in range(0, len(patient), _CHUNK):
        rows = patient[at : at + _CHUNK]
        choices = _Choices.of(release[rows], run_time[rows], size[rows], nodes)
        total += float(choices.respond(nodes, price, rounds=16)[0].sum())
    return max(total, 0.0)


def _search(release: Floats, run_time: Floats, size: Floats, room: float, nodes: Floats) -> Floats:
    """A good price: from the poured tank's, uphill along the sign of demand minus room at every node."""
    rows, weight = _sample(size * run_time)
    release, run_time, size = release[rows], run_time[rows], size[rows]
    price = _poured_price(release, run_time, size, weight, room, nodes)
    if not price.any():
        return price
    chunks = [slice(at, at + _CHUNK) for at in range(0, len(rows), _CHUNK)]
    parts = [(_Choices.of(release[c], run_time[c], size[c], nodes), weight[c]) for c in chunks]
    supply = room * np.gradient(nodes)
    supply[[0, -1]] /= 2
    stride = 0.15 * (price + 0.05 * price.mean())
    best, best_value = price, -np.inf
    last_sign = np.zeros(len(nodes))
    for _ in range(_STEPS):
        value = -float(supply @ price)
        demand = np.zeros(len(nodes))
        for choices, weights in parts:
            delay, used, centre = choices.respond(nodes, price, rounds=4)
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
    return best


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
    works = np.unique(work)
    picked = works[np.unique(np.linspace(0, len(works) - 1, _START_THRESHOLDS).astype(np.int64))]
    gain = 1 / picked - np.append(1 / picked[1:], 0.0)
    price = np.zeros(len(nodes))
    for threshold, step in zip(picked.tolist(), gain.tolist(), strict=True):
        few = work <= threshold
        times = np.concatenate((release[few], (release + run_time)[few]))
        order = np.argsort(times, kind="stable")
        change = np.concatenate((size[few] * weight[few], -size[few] * weight[few]))[order]
        price += step * np.maximum(busy_until(times[order], change, room, nodes) - nodes, 0.0)
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
