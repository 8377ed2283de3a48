"""Jobs as their history has them, on the cluster they are simulated on: partition, shape, exclusive machines, limit.

A history says where a job was submitted to and on how many nodes it ran. Here that becomes what binds it (`Job.among`,
`Job.nodes`), as far as this cluster knows such machines; what it does not know is dropped and counted in a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from dally.core.job import Job, Truth
from dally.core.plan import demand_of_job
from dally.core.shape import fits_empty
from dally.core.topology import Topology
from dally.traces.trace import Trace

NO_PARTITION = "their partition is none that the cluster description knows: they may run anywhere"
NO_SETS = "their partitions are not kept: the cluster description names none"
NO_FEATURE = "a constraint names features the cluster description does not know: it is dropped"
NO_SHAPE = "no machines here hold their nodes × GPUs: they may be spread over any"
WHOLE = "they have their nodes to themselves: they hold all GPUs of them"
NOT_WHOLE = "they had their nodes to themselves, and nodes here differ in size: they share them"


def shaped_for(trace: Trace, topology: Topology) -> Trace:
    """The trace with its jobs bound to machines of this cluster as their history says, and notes of what was not."""
    if not any(map(_says_anything, trace.jobs)):
        return trace
    counted: Counter[str] = Counter()
    pairs = [_shaped(job, truth, topology, counted) for job, truth in zip(trace.jobs, trace.truths, strict=True)]
    notes = [f"{count:,} jobs: {what}" for what, count in counted.most_common()]
    return replace(trace, jobs=[job for job, _ in pairs], truths=[truth for _, truth in pairs],
                   notes=[*trace.notes, *notes])  # fmt: skip


def _says_anything(job: Job) -> bool:
    return (job.partition is not None or job.among is not None or job.nodes is not None or job.exclusive
            or job.limit is not None)  # fmt: skip


def _shaped(job: Job, truth: Truth, topology: Topology, counted: Counter[str]) -> tuple[Job, Truth]:
    job = _tied(job, topology, counted)
    if job.exclusive:
        job, truth = _whole(job, truth, topology, counted)
    if job.nodes is not None and (job.gpus % job.nodes or not fits_empty(topology, demand_of_job(job))):
        free = replace(job, nodes=None)
        if job.gpus % job.nodes or fits_empty(topology, demand_of_job(free)):
            counted[NO_SHAPE] += 1
            job = free
    if job.limit is not None and truth.duration is not None and truth.duration > job.limit and not truth.failures:
        truth = replace(truth, duration=job.limit)  # Slurm looks at limits now and then: a minute's grace
    return job, truth


def _tied(job: Job, topology: Topology, counted: Counter[str]) -> Job:
    """Bound to the machines of its partition (or of any of several) that have the features it asks for."""
    either = []
    if job.partition is not None:
        either = [name for name in map(str.strip, job.partition.split(",")) if name in topology.sets]
        if not either:
            counted[NO_PARTITION if topology.sets else NO_SETS] += 1
    among = job.among
    if among is not None and not all(_known(name, topology) for name in _names(among)):
        counted[NO_FEATURE] += 1
        among = None
    if not either:
        return job if among == job.among else replace(job, among=among)
    parts = [None] if among is None else among.split("|")
    return replace(job, among="|".join(name if part is None else f"{name}&{part}" for name in either for part in parts))


def _names(among: str) -> Iterator[str]:
    return (name.strip() for either in among.split("|") for name in either.split("&"))


def _known(name: str, topology: Topology) -> bool:
    return name in topology.sets or name in topology.machine_by_name


def _whole(job: Job, truth: Truth, topology: Topology, counted: Counter[str]) -> tuple[Job, Truth]:
    """All GPUs of its machines: nobody else can be given any of them."""
    allowed = -1 if job.among is None else topology.among(job.among)
    sizes = {machine.gpus for machine in topology.machines
             if allowed >> machine.index & 1 and job.gpu_type in (None, machine.gpu_type)}  # fmt: skip
    nodes = job.nodes or len(truth.ran_on) or (1 if job.gpus <= max(sizes, default=0) else None)
    if len(sizes) != 1 or nodes is None:
        counted[NOT_WHOLE] += 1
        return replace(job, exclusive=False), truth
    (size,) = sizes
    counted[WHOLE] += 1
    ran_on = tuple((name, size) for name, _ in truth.ran_on)
    return replace(job, gpus=max(job.gpus, nodes * size), nodes=nodes), replace(truth, ran_on=ran_on)
