"""What follows from the configuration for a single job: its partition, its limit, who is less than it is."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping

from dally.core.active import ActiveJob
from dally.core.job import Job
from dally.core.plan import Demand
from dally.core.policy import View
from dally.policies.slurm.memory import SlurmMemory, book
from dally.policies.slurm.priority import association, normalised, priority
from dally.policies.slurm.settings import YEAR, Partition, Settings

MINUTE = 60.0


class SlurmRules:
    """Settings, and what a job's tenant stands for under them."""

    def __init__(self, settings: Settings, tenant: str, qos: Mapping[str, int], shares: Mapping[str, float],
                 own_priority: str) -> None:  # fmt: skip
        self.settings, self.tenant, self.qos, self.shares = settings, tenant, qos, shares
        self.own_priority = own_priority
        self._factors = [each.job_factor for each in settings.partitions.values()]

    def partition(self, job: ActiveJob) -> Partition:
        return self._partition(job.job)

    def _partition(self, job: Job) -> Partition:
        """The one it was submitted to; its tenant where it does not say and tenants are partitions."""
        return self.settings.partition(job.partition or (job.tenant if self.tenant == "partition" else None))

    def tier(self, job: Job) -> int:
        return self._partition(job).tier

    def level(self, job: Job) -> int:
        """By which jobs may preempt others: the tier of their partition, or the priority of their QOS."""
        if self.settings.preempt == "qos":
            return self._qos(job)
        return self.tier(job)

    def _qos(self, job: Job) -> int:
        return self.qos.get(job.tenant, 0) if self.tenant == "qos" and job.tenant is not None else 0

    def limit(self, view: View, job: ActiveJob) -> float:
        """Its time limit in seconds: what it declares, in whole minutes as Slurm keeps it; else what is estimated of
        it; else its partition's DefaultTime or MaxTime, or a year."""
        partition = self.partition(job)
        said = job.job.declared_duration
        if said is None:
            said = view.estimates.work(job.job)
        if said is None:
            said = partition.default_time if partition.default_time is not None else partition.max_time
        return max(MINUTE, min(math.ceil(min(said, YEAR) / MINUTE) * MINUTE, partition.max_time, YEAR))

    def switch_wait(self, demand: Demand) -> float:
        longest = self.settings.max_switch_wait
        return longest if demand.wait is None else min(demand.wait, longest)

    def priority(self, view: View, memory: SlurmMemory, job: ActiveJob) -> int:
        own = job.job.priority if self.own_priority != "ignore" else 0
        if self.own_priority == "set" or not self.settings.multifactor:
            return own
        partition = self.partition(job)
        most = max((machine.gpus for machine in view.topology.machines), default=1)
        fair = memory.fair.get(association(job.job), 1.0)
        return priority(self.settings, job.job, -(-job.gpus // most), view.topology, memory.calculated, fair,
                        normalised(self._factors, partition.job_factor),
                        normalised(self.qos.values(), self._qos(job.job)), own)  # fmt: skip

    def lesser(self, view: View, memory: SlurmMemory, job: ActiveJob, gone: Container[str]) -> list[ActiveJob]:
        """Running jobs it may preempt, the least first: of a lower tier or QOS; the last started of equals first."""
        mine = self.level(job.job)
        found = []
        for job_id in memory.limits:
            other = view.job(job_id)
            if (job_id not in gone and other.movable and other.placement is not None and self.level(other.job) < mine
                    and self.partition(other).preemptable):  # fmt: skip
                found.append(other)
        found.sort(key=lambda each: (self.level(each.job), self.priority(view, memory, each), -each.last_change,
                                     -each.number))  # fmt: skip
        return found

    # --- who has GPUs ----------------------------------------------------------------------------------------

    def began(self, memory: SlurmMemory, view: View, job: ActiveJob, now: float, since: float) -> None:
        """It has had GPUs since then."""
        if job.id not in memory.limits and self.settings.weight_fairshare:
            book(memory, association(job.job), job.gpus, now, self.settings.decay_half_life)
        memory.limits[job.id] = since + self.limit(view, job)

    def ended(self, memory: SlurmMemory, view: View, job_id: str, now: float) -> None:
        if memory.limits.pop(job_id, None) is not None and self.settings.weight_fairshare:
            job = view.job(job_id)
            book(memory, association(job.job), -job.gpus, now, self.settings.decay_half_life)
