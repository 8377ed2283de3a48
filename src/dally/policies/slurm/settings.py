"""What of a Slurm's configuration its scheduling depends on, as this policy imitates it."""

from __future__ import annotations

import math
from dataclasses import field, replace

from dally.core.records import dataclass
from dally.policies.slurm.accounts import NO_ACCOUNTS, Accounts

_ALL = 1_000_000  # jobs
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
    qos: str | None = None  # whose limits go before those of its jobs' own


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
    bf_max_job_user: int = 0  # jobs of one user that a pass tests; 0: all
    bf_max_job_part: int = 0  # … of one partition
    bf_max_job_user_part: int = 0
    bf_max_job_array_resv: int = 20  # tasks of one array that get reservations
    bf_min_age_reserve: float = 0.0  # seconds a job must have waited to get one
    bf_min_prio_reserve: int = 0
    partition_job_depth: int = 0  # jobs of one partition that a pass of the main scheduler tests; 0: all
    limits_stop: bool = False  # assoc_limit_stop: nobody of the partition passes a job that a limit holds back
    whole_nodes: bool = True  # a reservation takes its nodes whole
    one_by_one: bool = False  # plans look at every end of a limit, and not at groups of them
    textbook: str = "no"  # easy, conservative, any: plans as textbooks have them
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
    dampening: float = 1.0  # FairShareDampeningFactor, of the classic formula
    by_partition: bool = False  # what a user has used in one partition counts there alone
    parents: bool = False  # what an account has used counts, whoever of it did
    accounts_tree: bool = False  # users are under their accounts, whether or not there is a dump of them
    exempt_time: float = 0.0  # PreemptExemptTime: jobs that have run for less are not preempted
    youngest_first: bool = False  # preempt_youngest_first
    preempt: str = "off"  # off, partition, qos
    topology: str = "tree"  # tree, flat, order, last, pack, spread
    partitions: dict[str, Partition] = field(default_factory=dict)
    default_partition: str = EVERYWHERE
    weights: dict[str, int] = field(default_factory=dict)  # node → Weight, where it is not 1
    accounts: Accounts = NO_ACCOUNTS
    enforced: bool = True  # limits are (AccountingStorageEnforce)
    origin: float | None = None  # second 0 of the trace on the clock of the reservations

    @property
    def ages(self) -> bool:
        """Whether the order of waiting jobs changes with time alone."""
        return self.multifactor and bool(self.weight_age or self.weight_fairshare)

    def partition(self, tenant: str | None) -> Partition:
        found = self.partitions.get(tenant) if tenant is not None else None
        return found or self.partitions.get(self.default_partition) or _EVERYWHERE


_EVERYWHERE = Partition(EVERYWHERE)


def by_the_book(settings: Settings) -> Settings:
    """The same order of jobs and the same nodes, and no pace of a daemon's: everything is looked at whenever something
    has happened, as far as there are jobs, and plans are of GPUs at every end of a limit."""
    return replace(settings, bf_interval=0.0, bf_window=YEAR, bf_resolution=0.0, bf_max_job_test=_ALL,
                   bf_job_part_count_reserve=0, default_queue_depth=_ALL, sched_interval=0.0, batch_sched_delay=0.0,
                   calc_period=0.0, whole_nodes=False, one_by_one=True)  # fmt: skip
