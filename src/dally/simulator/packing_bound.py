"""The most work one GPU can do at a time when jobs are packed on it: what a lower bound must allow for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

from dally.core.job import Job
from dally.core.sharing import Interference

_MOST_MODELS = 64  # beyond these, and for packs of more than three, one job beside another is taken to cost nothing


def packed_throughput(jobs: Sequence[Job], gpu_types: Sequence[str], interference: Interference, most: int) -> float:
    """Largest Σ 1 / slowdown over packs of up to `most` of these jobs that fit together; at least 1.

    Jobs of one model and size are alike. A slowdown is at least 1, so `most` itself is never exceeded. An elastic job
    may be packed beside any other whose GPUs it can be resized to.
    """
    if most <= 1:
        return 1.0
    alike = list({(job.model, job.gpus, job.limits): job for job in jobs}.values())
    if most > 3 or len(alike) > _MOST_MODELS:
        return float(most)
    best = 1.0
    for gpu_type in gpu_types:
        for size in range(2, most + 1):
            for pack in combinations_with_replacement(alike, size):
                if max(job.limits[0] for job in pack) > min(job.limits[1] for job in pack):
                    continue  # packed jobs hold the very same GPUs
                if interference.fits(pack, gpu_type) is not None:
                    continue  # … and their memory
                together = sum(1.0 / max(1.0, interference.slowdown(job, [*pack[:i], *pack[i + 1 :]], gpu_type))
                               for i, job in enumerate(pack))  # fmt: skip
                best = max(best, together)
    return best
