"""Links by the steps that crossed them: latency and bandwidth of every level, and overlap, fitted to measured steps.

`dally profile fabric` times all-reduces by themselves. Here the steps of real jobs are what is measured, and the
network model itself says what a step would take on given links; the links under which it says what was measured are
looked for, level by level. Some of the steps are kept out of the fit, and tell how far it can be trusted.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from statistics import median
from typing import Any

import yaml

from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.records import dataclass
from dally.core.spec import parse_spec
from dally.core.topology import Level, Topology, build_topology, spec_of
from dally.network.registry import make_network
from dally.profiler.fabric import show_latency, show_rate

_RANGE = tuple(2.0 ** (half / 2) for half in range(-16, 17))  # 1/256 to 256 of what the file says
_FACTORS = (1.3, 1.15, 1.07, 1.03, 1.01, 1.005)  # then tried up and down, from coarse to fine
_ROUNDS = 4  # walks over all parameters per factor: they depend on each other a little
_OVERLAPS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)  # shares of backward that may hide exchange
_PULL = 2e-3  # loss per factor e away from what the file said: what no step feels stays where it was
_LEAST_LATENCY = 1e-6  # seconds to begin with where a file says 0: nothing times a factor is nothing


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The seconds of one step of a model on GPUs of the cluster, without neighbours on its links."""

    model: str
    placement: Placement
    seconds: float


@dataclass(frozen=True, slots=True)
class Error:
    """Of predicted against measured steps, as shares: of all, the worst, and which way they are off together."""

    steps: int
    mean: float  # of |predicted / measured − 1|
    worst: float
    bias: float  # exp of the mean log ratio, − 1


@dataclass(frozen=True, slots=True)
class Calibration:
    levels: tuple[Level, ...]
    network: str  # the model the links go with: with the overlap that was found
    fitted_levels: tuple[str, ...]  # those that some step crossed
    fit: tuple[MeasuredStep, ...]
    held_out: tuple[MeasuredStep, ...]
    before: Error  # on the steps held out
    after: Error
    fit_before: Error
    fit_after: Error


def calibrate(topology: Topology, steps: Sequence[MeasuredStep], network: str = "analytic",
              hold_out: float = 0.3, seed: int = 0) -> Calibration:  # fmt: skip
    """Fit the links of the levels that steps crossed; a share `hold_out` of the (model, placement) pairs is kept apart.

    Repeated measurements of one pair count as one, their median: otherwise what was held out would be in the fit.
    """
    known = _merged(steps)
    fit, held = _divided(known, hold_out, seed)
    crossed = sorted({step.placement.level(topology) for step in fit if step.placement.gpus > 1})
    if not crossed:
        raise UserError("no measured step has more than one GPU: nothing says anything of a link")
    before = predicted(topology, topology.levels, known, network)
    levels, fitted = _fitted(topology, fit, crossed, network)
    after = predicted(topology, levels, known, fitted)
    where = {id(step): number for number, step in enumerate(known)}

    def error(of: Sequence[MeasuredStep], said: Sequence[float]) -> Error:
        return _error([(said[where[id(step)]], step.seconds) for step in of])

    names = tuple(topology.levels[level].name for level in crossed)
    return Calibration(levels, fitted, names, tuple(fit), tuple(held), error(held, before), error(held, after),
                       error(fit, before), error(fit, after))  # fmt: skip


def predicted(topology: Topology, levels: Sequence[Level], steps: Sequence[MeasuredStep], network: str) -> list[float]:
    """Seconds of each step, as the network model has them on such links."""
    model = make_network(network, having(topology, levels))
    return [model.step_time(Job("step", 0.0, step.placement.gpus, model=step.model), step.placement, 0.0).seconds
            for step in steps]  # fmt: skip


def having(topology: Topology, levels: Sequence[Level]) -> Topology:
    """The same cluster with other links, in machines that have links of their own too."""
    own = topology.machine_level
    specs = [spec_of(machine, topology) for machine in topology.machines]
    specs = [replace(spec, links=()) if len(spec.links) == own + 1 else spec for spec in specs]
    return build_topology(levels, specs, name=topology.name, machine_level=own)


def _merged(steps: Iterable[MeasuredStep]) -> list[MeasuredStep]:
    seen: dict[tuple[str, Placement], list[float]] = {}
    for step in steps:
        if not step.seconds > 0:
            raise UserError(f"a step of {step.model!r} took {step.seconds:g} s: a time is above 0")
        seen.setdefault((step.model, step.placement), []).append(step.seconds)
    return [MeasuredStep(model, placement, median(seconds)) for (model, placement), seconds in seen.items()]


def _divided(steps: Sequence[MeasuredStep], share: float, seed: int) -> tuple[list[MeasuredStep], list[MeasuredStep]]:
    """By chance, but from every size of gang and number of machines alike, so that the fit has seen each level."""
    if not 0 < share < 1:
        raise UserError(f"the share held out lies between 0 and 1, not {share:g}")
    groups: dict[tuple[int, int], list[MeasuredStep]] = {}
    for step in steps:
        groups.setdefault((step.placement.gpus, len(step.placement.slices)), []).append(step)
    chance, fit, held = random.Random(seed), [], []
    for group in groups.values():
        chance.shuffle(group)
        count = min(len(group) - 1, max(1, round(share * len(group)))) if len(group) > 1 else 0
        held += group[:count]
        fit += group[count:]
    if not held:
        raise UserError(f"{len(steps)} measured steps are too few: none can be held out; measure several models, "
                        "or one on several placements")  # fmt: skip
    return fit, held


def _fitted(topology: Topology, fit: Sequence[MeasuredStep], crossed: Sequence[int],
            network: str) -> tuple[tuple[Level, ...], str]:  # fmt: skip
    """Links, then how much of the exchange hides behind backward, then links again."""
    levels, best = _links(topology, tuple(topology.levels), fit, crossed, network, whole_range=True)
    spec = parse_spec(network, "network model")
    if spec.name != "analytic" or any(name == "overlap" for name, _ in spec.options):
        return levels, network
    worse = 0
    for tried in _OVERLAPS:
        if best < _PULL * len(fit) or worse == 2:  # nothing is left to explain, or this does not explain it
            break
        candidate = str(spec.having("overlap", f"{tried:g}"))
        found, loss = _links(topology, levels, fit, crossed, candidate)
        loss += _PULL * len(fit) * (1 - tried)  # less overlap has to explain something
        worse = 0 if loss < best else worse + 1
        if loss < best:
            best, levels, network = loss, found, candidate
    return levels, network


def _links(topology: Topology, begin: tuple[Level, ...], fit: Sequence[MeasuredStep], crossed: Sequence[int],
           network: str, whole_range: bool = False) -> tuple[tuple[Level, ...], float]:  # fmt: skip
    """Coordinate descent on Σ |log(predicted / measured)|, which one odd step hardly moves; and what is left of it."""
    levels = list(begin)
    for level in crossed:
        levels[level] = replace(levels[level], latency=max(levels[level].latency, _LEAST_LATENCY))
    first = tuple(replace(level, latency=max(level.latency, _LEAST_LATENCY)) for level in topology.levels)

    def loss(candidate: Sequence[Level]) -> float:
        said = predicted(topology, candidate, fit, network)
        off = sum(abs(log(value / step.seconds)) for value, step in zip(said, fit, strict=True))
        away = sum(abs(log(candidate[level].bandwidth / first[level].bandwidth))
                   + abs(log(candidate[level].latency / first[level].latency)) for level in crossed)  # fmt: skip
        return off + _PULL * away

    def moved(level: int, field: str, times: float) -> list[Level]:
        candidate = list(levels)
        candidate[level] = replace(levels[level], **{field: getattr(levels[level], field) * times})
        return candidate

    # A link that is not the narrowest on a step's way is not felt until it is far narrower: so bandwidths are first
    # looked for over their whole range, and before latencies, which would be made to explain what is missing.
    best = loss(levels)
    for field in ("bandwidth", "bandwidth", "latency", "bandwidth", "latency") if whole_range else ():
        for level in crossed:
            found = min((loss(candidate), number, candidate) for number, candidate in
                        enumerate(moved(level, field, times) for times in _RANGE))  # fmt: skip
            if found[0] < best - 1e-9:
                best, levels = found[0], found[2]
    for factor in _FACTORS:
        for _ in range(_ROUNDS):
            before = best
            for level in crossed:
                for field in ("bandwidth", "latency"):
                    for times in (factor, 1 / factor):
                        candidate = moved(level, field, times)
                        value = loss(candidate)
                        if value < best - 1e-9:
                            best, levels = value, candidate
            if best == before:
                break
    return tuple(levels), best


def _error(pairs: Sequence[tuple[float, float]]) -> Error:
    off = [abs(said / seconds - 1) for said, seconds in pairs]
    bias = exp(sum(log(said / seconds) for said, seconds in pairs) / len(pairs)) - 1
    return Error(len(pairs), sum(off) / len(off), max(off), bias)


def cluster_text(given: Mapping[str, Any], topology: Topology, found: Calibration, made: str) -> str:
    """The cluster file again, as plain data `given`, with the links that were found; everything else stays."""
    document = dict(given)
    own = topology.machine_level
    document["source"] = (f"links fitted by dally calibrate to {len(found.fit)} measured steps, {made}; "
                          f"with the network model {found.network}")  # fmt: skip
    document["fabric"] = {"levels": [
        {"name": level.name, "kind": level.kind.value, "bandwidth": show_rate(level.bandwidth),
         "per": "machine" if index == 0 else "unit", "latency": show_latency(level.latency)}
        for index, level in enumerate(found.levels[own + 1 :])
    ]}  # fmt: skip
    inside = topology.levels[own].name
    if own == 0 and inside in found.fitted_levels:
        link = found.levels[0]
        machine = document.get("machine")
        fields = {"preset": machine} if isinstance(machine, str) else dict(machine or {})
        fields["links"] = [{"kind": link.kind.value, "bandwidth": show_rate(link.bandwidth),
                            "latency": show_latency(link.latency)}]  # fmt: skip
        document["machine"] = fields
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
