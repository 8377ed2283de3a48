"""Gangs as an engine can be told them: where it knows only nodes × GPUs, every job is so many machines with as many
GPUs on each."""

from __future__ import annotations

from dataclasses import replace

from dally.core.job import Job
from dally.core.topology import Topology


def made_even(job: Job, nodes: int | None, topology: Topology) -> Job:
    """With the machines that were asked for (`nodes`), or else on the fewest that can share its GPUs evenly."""
    return replace(job, nodes=nodes or _fewest(job, topology))


def _fewest(job: Job, topology: Topology) -> int:
    most = max((machine.gpus for machine in topology.machines if job.gpu_type in (None, machine.gpu_type)), default=1)
    return next(nodes for nodes in range(1, job.gpus + 1) if job.gpus % nodes == 0 and job.gpus // nodes <= most)
