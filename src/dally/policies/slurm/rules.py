"""What follows from the configuration for a single job: its partition, QOS and limits, who is less than it is."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Final

from dally.core.active import ActiveJob
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.plan import Demand
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.reasons import Reason
from dally.policies.slurm.accounts import ROOT, Qos
from dally.policies.slurm.limits import Bound, Limiter, Need, book_held, in_the_way
from dally.policies.slurm.memory import SlurmMemory, book
from dally.policies.slurm.priority import association, fair_shares, normalised, priority
from dally.policies.slurm.settings import YEAR, Partition, Settings
from dally.policies.slurm.sharetree import leaf, tree_shares

MINUTE: Final = 60.0


class SlurmRules:
    """Settings, and what a job's tenant stands for under them."""

    def __init__(self, settings: Settings, tenant: str, qos: Mapping[str, int], shares: Mapping[str, float],
                 own_priority: str) -> None:  # fmt: skip
        self.settings, self.tenant, self.qos, self.shares = settings, tenant, qos, shares
        self.own_priority = own_priority
        self._named: dict[str, Partition] = {}
        self._partitions: dict[str | None, dict[str | None, Partition]] = {}  # by what jobs name, and their tenant
        self.submitted_to: dict[str, Partition] = {}  # all that jobs were ever ranked in
        self._together: dict[str, tuple[Partition, tuple[Partition, ...]]] = {}  # by "a,b", what jobs of both are in
        self._factors = [each.job_factor for each in settings.partitions.values()]
        accounts = settings.accounts
        self.limiter = Limiter(accounts if settings.enforced else accounts.unlimited())
        self.tree = settings.accounts_tree or bool(accounts.associations)
        self.known_qos = accounts.qos
        self.levels = _levels({name: each.preempt for name, each in accounts.qos.items()})
        self._always_reserves = not (accounts.qos or settings.bf_min_age_reserve or settings.bf_min_prio_reserve)
        # Whether what a pass of backfill makes of a job is a matter of its demand, its limit and what is free alone.
        self.alike = (self._always_reserves and settings.preempt == "off" and settings.whole_nodes
                      and settings.bf_max_job_array_resv > 0
                      and not (settings.bf_max_job_start or settings.bf_max_job_user or settings.bf_max_job_part
                               or settings.bf_max_job_user_part))  # fmt: skip
        self.lists = any(self.levels.values())  # whether QOS say which others they preempt

    def partition(self, job: ActiveJob) -> Partition:
        return self._partition(job.job)

    def _partition(self, job: Job) -> Partition:
        name = job.partition
        known = self._partitions.get(name)
        if known is None:
            known = self._partitions[name] = {}
        found = known.get(job.tenant)
        if found is None:
            found = known[job.tenant] = self._submitted_to(job)
            self.submitted_to[found.name] = found
        return found

    def _submitted_to(self, job: Job) -> Partition:
        """The partition that it names; its tenant where it does not say and tenants are partitions. Of several, what
        they are together: where it is in the order, and which nodes it may get at all."""
        if job.partition is not None and "," in job.partition and self.tenant == "partition":
            return self._several(job.partition)[0]
        if job.partition is not None and not self.settings.partitions and self.tenant == "partition":
            return self._unconfigured(job.partition)
        return self.settings.partition(job.partition or (job.tenant if self.tenant == "partition" else None))

    def _unconfigured(self, name: str) -> Partition:
        """Where nothing is configured, the partitions are those that jobs name: the machines called so."""
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = Partition(name)
        return found

    def partitions(self, job: ActiveJob) -> tuple[Partition, ...]:
        """Those it may start in, whichever has room first: as a rule one; of several, the highest tier first."""
        name = job.job.partition
        if name is not None and "," in name and self.tenant == "partition":
            return self._several(name)[1]
        return (self._partition(job.job),)

    def _several(self, names: str) -> tuple[Partition, tuple[Partition, ...]]:
        known = self._together.get(names)
        if known is None:
            each = list(dict.fromkeys(filter(None, map(str.strip, names.split(",")))))
            settings = self.settings
            if settings.partitions:  # those that are configured, or else the default one
                found = [settings.partitions[name] for name in each if name in settings.partitions]
            else:
                found = [self._unconfigured(name) for name in each]
            found = sorted(found or [settings.partition(None)], key=lambda one: -one.tier)  # as named among equals
            nodes = None if any(one.nodes is None for one in found) else \
                tuple(dict.fromkeys(node for one in found for node in one.nodes or ()))  # fmt: skip
            whole = found[0] if len(found) == 1 else replace(
                found[0], name=",".join(one.name for one in found), nodes=nodes,
                job_factor=max(one.job_factor for one in found), max_time=max(one.max_time for one in found),
                preemptable=all(one.preemptable for one in found), qos=None)  # fmt: skip
            known = self._together[names] = whole, tuple(found)
        return known

    def tier(self, job: Job) -> int:
        return self._partition(job).tier

    def level(self, job: Job) -> int:
        """By which jobs may preempt others: the tier of their partition, or the priority of their QOS."""
        if self.settings.preempt == "qos":
            return self._qos(job)
        return self.tier(job)

    def _qos(self, job: Job) -> int:
        """The priority of its QOS; where a dump says which QOS preempt which, how many steps that goes down."""
        own = self._known(job)
        if own is not None:
            return self.levels[own.name] if self.settings.preempt == "qos" and self.lists else own.priority
        return self.qos.get(self.qos_of(job) or "", 0)

    def _known(self, job: Job) -> Qos | None:
        """Its QOS, where a dump describes it."""
        return self.known_qos.get(self.qos_of(job) or "") if self.known_qos else None

    def qos_of(self, job: Job) -> str | None:
        if job.qos is not None and (job.qos in self.known_qos or self.tenant != "qos"):
            return job.qos
        return job.tenant if self.tenant == "qos" else None

    def account_of(self, job: Job) -> str | None:
        """Its tenant, unless that is where it was submitted to."""
        return job.tenant if self.tenant == "account" or (self.tenant == "partition" and job.partition is not None
                                                          and job.tenant != job.partition) else None  # fmt: skip

    def association(self, job: Job) -> str:
        """Whose usage it is: the user's, in its account where users are under accounts."""
        if not self.tree:
            own = association(job)
            if self.settings.parents:
                return f"account {self.account_of(job)}"
            return f"{own} in {self._partition(job).name}" if self.settings.by_partition else own
        return leaf(self.account_of(job) or ROOT, job.user or "nobody")

    def factors(self, used: Mapping[str, float]) -> dict[str, float]:
        """Fair-share factors, 0 … 1, by association."""
        settings = self.settings
        if self.tree:
            return tree_shares(used, settings.accounts, settings.fair_tree, settings.dampening)
        return fair_shares(used, self.shares, settings.fair_tree, settings.dampening)

    # --- limits of those who share -----------------------------------------------------------------------------

    def bounds(self, job: Job) -> tuple[Bound, ...]:
        if not self.limiter.any and job.throttle is None:
            return ()
        return self.limiter.bounds(job, self.account_of(job), self.qos_of(job), self._partition(job).qos)

    def stopped(self, memory: SlurmMemory, view: View, job: ActiveJob, now: float) -> Reason | None:
        """The limit that keeps it from starting now, whatever is free."""
        bounds = self.bounds(job.job)
        return in_the_way(memory, bounds, self._need(view, job, None), now) if bounds else None

    def _need(self, view: View, job: ActiveJob, placement: Placement | None) -> Need:
        kind, nodes = job.demand.gpu_type, job.demand.nodes
        if placement is not None:
            kind = kind or view.topology.machines[placement.slices[0][0]].gpu_type
            nodes = nodes or len(placement.slices)
        elif kind is None and len(view.topology.gpu_types) == 1:
            kind = view.topology.gpu_types[0]
        most = max((machine.gpus for machine in view.topology.machines), default=1)
        return Need(job.gpus, nodes or -(-job.gpus // most), self.limit(view, job), kind)

    def limit(self, view: View, job: ActiveJob) -> float:
        """Its time limit in seconds: what it declares, in whole minutes as Slurm keeps it; else what is estimated of
        it; else its partition's DefaultTime or MaxTime, or a year."""
        own = job.job
        partition = self._partition(own)
        longest = partition.max_time if partition.max_time < YEAR else YEAR
        said = own.declared_duration
        if said is None:
            said = view.estimates.work(own)
        if said is None:
            said = partition.default_time if partition.default_time is not None else longest
        if said >= longest:
            return longest if longest > MINUTE else MINUTE
        minutes = math.ceil(said / MINUTE) * MINUTE  # asked of many jobs in a pass: compared, not called
        return MINUTE if minutes < MINUTE else minutes if minutes < longest else max(MINUTE, longest)

    def switch_wait(self, demand: Demand) -> float:
        longest = self.settings.max_switch_wait
        return longest if demand.wait is None else min(demand.wait, longest)

    def priority(self, view: View, memory: SlurmMemory, job: ActiveJob) -> int:
        own = job.job.priority if self.own_priority != "ignore" else 0
        if self.own_priority == "set" or not self.settings.multifactor:
            return own
        partition = self.partition(job)
        most = max((machine.gpus for machine in view.topology.machines), default=1)
        fair = memory.fair.get(self.association(job.job), 1.0) if self.settings.weight_fairshare else 1.0
        return priority(self.settings, job.job, -(-job.gpus // most), view.topology, memory.calculated, fair,
                        normalised(self._factors, partition.job_factor),
                        self._qos_factor(job.job), own)  # fmt: skip

    def rank(self, view: View, memory: SlurmMemory, job: ActiveJob) -> Rank:
        """Tier of the partition (or QOS, where that preempts), then priority, then submission."""
        own = job.job
        tier = self.level(own) if self.settings.preempt == "qos" else self.tier(own)
        return Rank(-float(tier), 0.0, -float(self.priority(view, memory, job)), 0.0, (own.submit_time,))

    def _qos_factor(self, job: Job) -> float:
        if self.known_qos:
            own = self._known(job)
            return normalised((each.priority for each in self.known_qos.values()), own.priority if own else 0)
        return normalised(self.qos.values(), self.qos.get(self.qos_of(job) or "", 0))

    def lesser(self, view: View, memory: SlurmMemory, job: ActiveJob, gone: Container[str],
               now: float) -> list[ActiveJob]:  # fmt: skip
        """Running jobs it may preempt, the least first: of a lower tier, of a QOS its own preempts, or of a lower one
        where nobody says which; the last started of equals first."""
        found = []
        for job_id in memory.limits:
            other = view.job(job_id)
            if (job_id not in gone and other.movable and other.placement is not None
                    and self._preempts(job.job, other.job) and self.partition(other).preemptable):  # fmt: skip
                until = other.last_change + self._exempt(other.job)
                if until <= now:
                    found.append(other)
                else:  # it will be asked again then
                    memory.timer = min(memory.timer, until)
        if self.settings.youngest_first:
            found.sort(key=lambda each: (-each.last_change, -each.number))
        else:
            found.sort(key=lambda each: (self.level(each.job), self.priority(view, memory, each), -each.last_change,
                                         -each.number))  # fmt: skip
        return found

    def _preempts(self, job: Job, other: Job) -> bool:
        if self.settings.preempt == "qos" and self.lists:
            mine = self._known(job)
            return mine is not None and self.qos_of(other) in mine.preempt
        return self.level(other) < self.level(job)

    def _exempt(self, job: Job) -> float:
        own = self._known(job)
        return (own.exempt_time if own else 0.0) or self.settings.exempt_time

    def reserves(self, job: ActiveJob, view: View, memory: SlurmMemory, now: float) -> bool:
        """Whether nodes may be reserved for it."""
        if self._always_reserves:
            return True
        settings, own = self.settings, self._known(job.job)
        if own is not None and not own.reserves:
            return False
        if settings.bf_min_age_reserve and now - job.job.submit_time < settings.bf_min_age_reserve:
            return False
        return not settings.bf_min_prio_reserve or self.priority(view, memory, job) >= settings.bf_min_prio_reserve

    # --- who has GPUs ----------------------------------------------------------------------------------------

    def began(self, memory: SlurmMemory, view: View, job: ActiveJob, placement: Placement | None, now: float,
              since: float) -> None:  # fmt: skip
        """It has had GPUs since then."""
        end = since + self.limit(view, job)
        if job.id not in memory.limits:
            if self.settings.weight_fairshare:
                book(memory, self.association(job.job), self._billed(job), now, self.settings.decay_half_life)
            bounds = self.bounds(job.job)
            if bounds:
                need = self._need(view, job, placement)
                book_held(memory, bounds, need, end, 1)
                memory.booked[job.id] = end, need.nodes, need.gpu_type or ""
        memory.limits[job.id] = end

    def ended(self, memory: SlurmMemory, view: View, job_id: str, now: float) -> None:
        memory.stopped.pop(job_id, None)
        if memory.limits.pop(job_id, None) is None:
            return
        job = view.job(job_id)
        if self.settings.weight_fairshare:
            book(memory, self.association(job.job), -self._billed(job), now, self.settings.decay_half_life)
        if job_id in memory.booked:
            end, nodes, kind = memory.booked.pop(job_id)
            book_held(memory, self.bounds(job.job), Need(job.gpus, nodes, 0.0, kind or None), end, -1)

    def _billed(self, job: ActiveJob) -> float:
        own = self._known(job.job)
        return job.gpus * own.usage_factor if own is not None else float(job.gpus)


def _levels(preempt: Mapping[str, frozenset[str]]) -> dict[str, int]:
    """By QOS, how many steps its preempting goes down; one that preempts itself through others stops there."""
    found: dict[str, int] = {}

    def level(name: str, above: frozenset[str]) -> int:
        if name not in found:
            lower = [level(other, above | {name}) for other in preempt.get(name, ()) if other not in above | {name}]
            if above:
                return 1 + max(lower) if lower else 0
            found[name] = 1 + max(lower) if lower else 0
        return found[name]

    for name in preempt:
        level(name, frozenset())
    return found
