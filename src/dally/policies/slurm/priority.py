"""Slurm's priority/multifactor: age, fair-share, job size, partition and QOS, weighted and added up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dally.core.job import Job
from dally.core.topology import Topology
from dally.policies.slurm.settings import Settings

Usage = tuple[float, float, float]  # decayed GPU-seconds, GPUs in use, and up to when that is booked
NO_USAGE: Usage = (0.0, 0.0, 0.0)


def decayed(usage: Usage, now: float, half_life: float) -> float:
    """GPU-seconds of an association at `now`: what was used h ago counts 2^(−h / half-life).

    Slurm adds up and decays once a calculation period; this is the limit of short periods, so that it does not depend
    on when anybody looks."""
    used, rate, since = usage
    span = max(0.0, now - since)
    if not half_life or not math.isfinite(half_life):
        return used + rate * span
    kept: float = 0.5 ** (span / half_life)
    return used * kept + rate * (1.0 - kept) * half_life / math.log(2.0)


def fair_shares(used: Mapping[str, float], shares: Mapping[str, float], tree: bool,
                dampening: float = 1.0) -> dict[str, float]:  # fmt: skip
    """The fair-share factor of each association, 0 … 1, all of them at one level.

    Fair Tree, Slurm's default, is a ranking by shares over usage: the best has 1, the last of n has 1/n, and equals
    have the same. The classic formula is 2^(−(usage / all usage) / (shares / all shares))."""
    total_used, total_shares = sum(used.values()), sum(shares.get(name, 1.0) for name in used)
    if not used:
        return {}
    part = {name: shares.get(name, 1.0) / total_shares if total_shares else 0.0 for name in used}
    taken = {name: amount / total_used if total_used else 0.0 for name, amount in used.items()}
    if not tree:
        return {name: 2.0 ** -(taken[name] / part[name] / dampening) if part[name] else 0.0 for name in used}
    level = {name: part[name] / taken[name] if taken[name] else math.inf if part[name] else 0.0 for name in used}
    ordered = sorted(used, key=lambda name: -level[name])
    factors: dict[str, float] = {}
    for place, name in enumerate(ordered):
        before = ordered[place - 1] if place else None
        equal = before is not None and level[before] == level[name]
        factors[name] = factors[before] if equal and before is not None else (len(ordered) - place) / len(ordered)
    return factors


def association(job: Job) -> str:
    """Whose usage it is: the user's, or the account's where no user is known."""
    return job.user if job.user is not None else f"account {job.tenant}" if job.tenant is not None else "nobody"


def priority(settings: Settings, job: Job, nodes: int, topology: Topology, calculated: float, fair: float,
             factor: float, qos: float, own: int) -> int:  # fmt: skip
    """As Slurm has it, a whole number of at least 1; `factor` and `qos` are those of its partition and QOS, 0 … 1;
    `own` is what its owner adds to it, the negative of its nice value."""
    age = min(1.0, max(0.0, calculated - job.submit_time) / settings.max_age) if settings.max_age else 1.0
    size = (nodes / len(topology.machines) + job.gpus / topology.gpus) / 2.0
    size = min(1.0, max(0.0, 1.0 - size if settings.favor_small else size))
    total = (settings.weight_age * age + settings.weight_fairshare * fair + settings.weight_jobsize * size
             + settings.weight_partition * factor + settings.weight_qos * qos + own)  # fmt: skip
    return int(max(1.0, total))


def normalised(levels: Iterable[int], own: int) -> float:
    """A factor as a part of the largest there is."""
    most = max(levels, default=0)
    return own / most if most > 0 else 0.0
