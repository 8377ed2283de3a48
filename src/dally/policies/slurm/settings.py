"""What of a Slurm's configuration its scheduling depends on, as this policy imitates it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

YEAR = 365 * 86400.0  # what Slurm takes for a time limit that is not there

EVERYWHERE = "all"  # the partition of jobs that name none, where the configuration has none


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    nodes: tuple[str, ...] | None = None  # by name; None: all there are
    tier: int = 1  # PriorityTier: before every other part of the order, and who may preempt whom
    job_factor: int = 1  # PriorityJobFactor
    default_time: float | None = None  # seconds, of jobs that declare no limit; None: its longest
    max_time: float = math.inf
    preemptable: bool = True  # PreemptMode is not OFF


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds, whatever the unit of the configuration's own key."""

    backfill: bool = True
    bf_interval: float = 30.0
    bf_window: float = 86400.0
    bf_resolution: float = 60.0
    bf_max_job_test: int = 500
    bf_max_job_start: int = 0  # 0: as many as fit
    bf_job_part_count_reserve: int = 0  # jobs of each partition that get reservations; 0: all that are tested
    one_by_one: bool = False  # plans look at every end of a limit, and not at groups of them
    default_queue_depth: int = 100
    sched_interval: float = 60.0
    batch_sched_delay: float = 3.0
    max_switch_wait: float = 300.0
    multifactor: bool = False
    weight_age: float = 0.0
    weight_fairshare: float = 0.0
    weight_jobsize: float = 0.0
    weight_partition: float = 0.0
    weight_qos: float = 0.0
    max_age: float = 7 * 86400.0
    decay_half_life: float = 7 * 86400.0
    calc_period: float = 300.0
    favor_small: bool = False
    fair_tree: bool = True
    preempt: str = "off"  # off, partition, qos
    topology: str = "tree"  # tree, flat
    partitions: dict[str, Partition] = field(default_factory=dict)
    default_partition: str = EVERYWHERE
    weights: dict[str, int] = field(default_factory=dict)  # node → Weight, where it is not 1

    @property
    def ages(self) -> bool:
        """Whether the order of waiting jobs changes with time alone."""
        return self.multifactor and bool(self.weight_age or self.weight_fairshare)

    def partition(self, tenant: str | None) -> Partition:
        found = self.partitions.get(tenant) if tenant is not None else None
        return found or self.partitions.get(self.default_partition) or _EVERYWHERE


_EVERYWHERE = Partition(EVERYWHERE)
