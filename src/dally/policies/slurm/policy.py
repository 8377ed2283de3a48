"""Slurm as a baseline: what slurmctld decides with multifactor priority, backfill and topology/tree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.errors import UserError
from dally.core.journal import Entry
from dally.core.policy import PolicyBase, View
from dally.core.ranking import Rank
from dally.core.records import dataclass
from dally.core.told import DURATIONS
from dally.policies.options import option, written
from dally.policies.slurm.conf import read_settings
from dally.policies.slurm.dumps import moment, read_accounts
from dally.policies.slurm.ends import Ends
from dally.policies.slurm.memory import SlurmMemory
from dally.policies.slurm.nodes import Nodes
from dally.policies.slurm.passes import hear_news, plan_passes
from dally.policies.slurm.priority import decayed
from dally.policies.slurm.rules import SlurmRules
from dally.policies.slurm.settings import Partition, Settings, by_the_book
from dally.policies.slurm.turn import Line

_DOCS = "slurm.conf(5), Slurm 22.05"


class Slurm(PolicyBase):
    """Order of priority; every job that is tested gets a reservation, and jobs that delay none of them start early."""

    title = "slurm"
    source = "Slurm 22.05: sched/backfill, priority/multifactor, select/cons_tres, topology/tree"
    heeds_wishes = True
    uses = frozenset({DURATIONS})

    @dataclass(frozen=True, slots=True)
    class Options:
        conf: str = option("", "a slurm.conf to begin with; options that are given go before it")
        backfill: bool = option(True, "sched/backfill; false: sched/builtin", source=_DOCS)
        bf_interval: float = option(30.0, "time between two passes of the backfill scheduler", unit="s", source=_DOCS)
        bf_window: float = option(86400.0, "how far into the future it plans", unit="s", source=_DOCS)
        bf_resolution: float = option(60.0, "the grid of its plans", unit="s", source=_DOCS)
        bf_max_job_test: int = option(500, "jobs it tests in one pass", source=_DOCS)
        bf_max_job_user: int = option(0, "jobs of one user it tests in one pass; 0: all", source=_DOCS)
        bf_job_part_count_reserve: int = option(
            0, "jobs of each partition that get reservations, the first in order; 0: all it tests", source=_DOCS)
        whole_nodes: bool = option(True, "a reservation takes its nodes whole, as Slurm does; false: the GPUs it will "
                                   "use, as textbooks do")  # fmt: skip
        one_by_one: bool = option(False, "plans look at every end of a limit; false: at groups of them, the later the "
                                  "larger, as Slurm does")  # fmt: skip
        textbook: Literal["no", "easy", "conservative", "any"] = option(
            "no", "schedule at every event and plan exactly, as textbooks do and Slurm does not; reservations of GPUs "
            "for the first of each partition that does not fit (easy), for everybody (conservative), or none (any)",
            source="easy: Lifka (JSSPP'95); conservative: Mu'alem and Feitelson (TPDS 2001)")  # fmt: skip
        default_queue_depth: int = option(100, "jobs the main scheduler tests in one pass", source=_DOCS)
        sched_interval: float = option(60.0, "time between two passes of it over the whole queue", unit="s",
                                       source=_DOCS)  # fmt: skip
        batch_sched_delay: float = option(3.0, "time between two passes of it", unit="s", source=_DOCS)
        max_switch_wait: float = option(300.0, "the longest a job may wait for `prefers`", unit="s", source=_DOCS)
        priority: Literal["basic", "multifactor"] = option("basic", "order of submission, or by weighted factors",
                                                           source=_DOCS)  # fmt: skip
        weight_age: float = option(0.0, "PriorityWeightAge", source=_DOCS)
        weight_fairshare: float = option(0.0, "PriorityWeightFairshare", source=_DOCS)
        weight_jobsize: float = option(0.0, "PriorityWeightJobSize", source=_DOCS)
        weight_partition: float = option(0.0, "PriorityWeightPartition", source=_DOCS)
        weight_qos: float = option(0.0, "PriorityWeightQOS", source=_DOCS)
        max_age: float = option(604800.0, "PriorityMaxAge", unit="s", source=_DOCS)
        decay_half_life: float = option(604800.0, "PriorityDecayHalfLife", unit="s", source=_DOCS)
        calc_period: float = option(300.0, "PriorityCalcPeriod", unit="s", source=_DOCS)
        favor_small: bool = option(False, "PriorityFavorSmall", source=_DOCS)
        fair_tree: bool = option(True, "Fair Tree; false: the classic formula (NO_FAIR_TREE)", source=_DOCS)
        shares: tuple[str, ...] = option((), "fair shares of users, as alice:2/bob:1; 1 of all others")
        accounts: str = option("", "what sacctmgr, sshare and scontrol show reservation print, in a file or a folder: "
                               "shares, limits, QOS, reservations")  # fmt: skip
        associations: Literal["users", "accounts", "parents", "partitions"] = option(
            "users", "fair-share among users, all at one level; among accounts and inside each among its users; among "
            "accounts alone (users have fairshare=parent); or among users of each partition apart; a dump of accounts "
            "says it by itself")  # fmt: skip
        limits: float = option(1.0, "every limit of accounts, users and QOS so many times as large; 0: none")
        origin: str = option("", "date and time of second 0, on the clock of reservations: 2026-03-02T00:00:00")
        own_priority: Literal["nice", "set", "ignore"] = option(
            "nice", "a job's own priority: added (−nice), the whole priority (as scontrol sets it), or nothing")
        tenant: Literal["partition", "qos", "account"] = option("partition", "what a job's tenant is")
        tiers: tuple[str, ...] = option((), "PriorityTier of partitions or priority of QOS, as high:10/low:1")
        preempt: Literal["off", "partition", "qos"] = option("off", "who may preempt: PreemptType", source=_DOCS)
        topology: Literal["tree", "flat", "order", "last", "pack", "spread"] = option(
            "tree", "topology/tree, or none (flat); as other schedulers do: the first nodes in their order (order), "
            "the last, those with the fewest GPUs free that will do (pack), or with the most (spread)",
            source=_DOCS)  # fmt: skip
        default_time: float = option(0.0, "DefaultTime of jobs that declare no limit; 0: none", unit="s", source=_DOCS)
        nodes: Literal["fewest", "any"] = option(
            "fewest", "a gang larger than a node asks for as many GPUs on each of the fewest nodes, or for any")

    def __init__(self, options: Any) -> None:
        self.options = options
        self.name = written(self.title, options)
        settings, self._notes = _settings(options)
        _refuse_idle(options, settings)
        qos = _levels(options.tiers, "tiers") if options.tenant == "qos" else {}
        shares = {name: float(value) for name, value in _levels(options.shares, "shares").items()}
        self.rules = SlurmRules(settings, options.tenant, qos, shares, options.own_priority)
        self.preempts = settings.preempt != "off"
        if options.tenant != "partition":
            self._notes.append(f"a job's tenant is its {options.tenant}: all jobs are of one partition")
        self._nodes: Nodes | None = None
        self._line, self._ends = Line(), Ends(0)
        self._layout = -1

    def new_memory(self) -> SlurmMemory:
        return SlurmMemory()

    def attach(self, view: View, memory: SlurmMemory) -> None:
        self._nodes = None
        self._line = Line()
        view.waiting.watch(self._line)

    def notes(self, memory: SlurmMemory) -> tuple[str, ...]:
        return ("not imitated: CPUs, memory and licenses, limits on submission and on usage over time, suspension; a "
                "MaxTime alone ends no job", *self._notes)

    # --- what happened --------------------------------------------------------------------------------------

    def hear(self, view: View, memory: SlurmMemory, now: float, entries: Sequence[Entry]) -> Iterable[ActiveJob]:
        hear_news(self.rules, self._ends, view, memory, now, entries)
        settings = self.rules.settings
        if settings.ages and now >= memory.calculated + settings.calc_period:
            self._calculate(view, memory, now)
            memory.wanted = memory.changed = True
            return list(view.waiting)
        return ()

    def _calculate(self, view: View, memory: SlurmMemory, now: float) -> None:
        """Usage decays and ages grow all the time; Slurm looks at both once a period."""
        settings = self.rules.settings
        memory.calculated = now
        if settings.weight_fairshare:
            used = {who: decayed(usage, now, settings.decay_half_life) for who, usage in memory.usage.items()}
            for job in view.waiting:
                used.setdefault(self.rules.association(job.job), 0.0)
            memory.fair.clear()
            memory.fair.update(self.rules.factors(used))

    def rank(self, view: View, memory: SlurmMemory, job: ActiveJob, now: float) -> Rank:
        return self.rules.rank(view, memory, job)

    # --- what to do -------------------------------------------------------------------------------------------

    def plan(self, view: View, memory: SlurmMemory, now: float) -> pl.Plan:
        if not view.waiting.buckets:
            return []
        if self._nodes is None or self._layout != view.layout:
            self._nodes = Nodes(view.topology, self.rules.settings, any_nodes=self.options.nodes == "any")
            self._ends = Ends(len(view.topology.machines))
            self._ends.touched.update(dict.fromkeys(memory.limits))
            self._layout = view.layout
        return plan_passes(self.rules, self._nodes, self._line, self._ends, view, memory, now)


def _settings(options: Any) -> tuple[Settings, list[str]]:
    """The file's settings, and over them whatever option is not its default."""
    settings, notes = read_settings(Path(options.conf)) if options.conf else (Settings(), [])
    if settings.partitions and options.tenant != "partition":
        notes.append(f"{Path(options.conf).name}: its partitions are left out, since tenants are {options.tenant}s")
        settings = replace(settings, partitions={})
    settings, accounts_notes = _with_accounts(options, settings)
    notes += accounts_notes
    usual = Slurm.Options()
    same = ("backfill", "bf_interval", "bf_window", "bf_resolution", "bf_max_job_test", "bf_max_job_user",
            "bf_job_part_count_reserve", "whole_nodes", "one_by_one", "default_queue_depth", "sched_interval",
            "batch_sched_delay", "max_switch_wait", "weight_age", "weight_fairshare", "weight_jobsize",
            "weight_partition", "weight_qos", "max_age", "decay_half_life", "calc_period", "favor_small", "fair_tree",
            "preempt", "topology", "textbook")  # fmt: skip
    if options.textbook != usual.textbook:
        settings = by_the_book(settings)
    given = {name: getattr(options, name) for name in same if getattr(options, name) != getattr(usual, name)}
    if options.priority != usual.priority:
        given["multifactor"] = True
    settings = replace(settings, **given)
    if options.tenant == "partition":
        partitions = dict(settings.partitions)
        for name, tier in _levels(options.tiers, "tiers").items():
            partitions[name] = replace(partitions.get(name, Partition(name)), tier=tier)
        settings = replace(settings, partitions=partitions)
    if options.default_time:
        every = {name: replace(each, default_time=each.default_time or options.default_time)
                 for name, each in settings.partitions.items()}  # fmt: skip
        every.setdefault(settings.default_partition, Partition(settings.default_partition,
                                                               default_time=options.default_time))  # fmt: skip
        settings = replace(settings, partitions=every)
    return settings, notes


def _with_accounts(options: Any, settings: Settings) -> tuple[Settings, list[str]]:
    """The same with what the accounting says of accounts, users, QOS and reservations."""
    if not 0 <= options.limits < math.inf:
        raise UserError(f"policy 'slurm': limits={options.limits!r} must be zero or more")
    if not options.accounts:
        if options.limits != 1.0:
            raise UserError("policy 'slurm': limits would do nothing here: there are none (accounts=FILE)")
        return replace(settings, accounts_tree=options.associations == "accounts",
                       by_partition=options.associations == "partitions",
                       parents=options.associations == "parents"), []  # fmt: skip
    path = Path(options.accounts)
    accounts, notes = read_accounts(path)
    if accounts.limits and not settings.enforced:
        notes.append(f"{path.name}: its limits are not enforced, since the slurm.conf does not say "
                     "AccountingStorageEnforce=limits")  # fmt: skip
    if options.limits != 1.0:
        if not accounts.limits or not settings.enforced:
            why = "enforces none" if accounts.limits else "has none"
            raise UserError(f"policy 'slurm': limits would do nothing here: the configuration {why}")
        accounts = accounts.scaled(options.limits) if options.limits else accounts.unlimited()
    origin = moment(options.origin) if options.origin else None
    if options.origin and origin is None:
        raise UserError(f"policy 'slurm': origin={options.origin!r} is no date and time such as 2026-03-02T00:00:00")
    if accounts.reservations and origin is None:
        notes.append(f"{path.name}: its reservations are left out: nobody says what time second 0 is (origin)")
    return replace(settings, accounts=accounts, origin=origin), notes


def _refuse_idle(options: Any, settings: Settings) -> None:
    """Options that would do nothing beside the others and the file; the file's own may."""
    usual = Slurm.Options()
    weighed = settings.multifactor and options.own_priority != "set"
    fair, timed = weighed and bool(settings.weight_fairshare), weighed and settings.ages
    plans = ("bf_interval", "bf_window", "bf_resolution", "bf_max_job_test", "bf_max_job_user",
             "bf_job_part_count_reserve", "whole_nodes", "one_by_one", "textbook")  # fmt: skip
    book = ("bf_job_part_count_reserve", "whole_nodes", "one_by_one")
    accounts = settings.accounts
    by_qos = options.tenant == "qos" or bool(accounts.qos)
    weights = ("weight_age", "weight_fairshare", "weight_jobsize", "weight_partition", "weight_qos")
    rules: list[tuple[tuple[str, ...], bool, str]] = [
        (plans, settings.backfill, "there is no backfill"),
        (book, settings.textbook == "no", "textbook says so"),
        (weights, weighed, "priorities have no factors (priority=multifactor)"),
        (("max_age",), weighed and bool(settings.weight_age), "age has no weight (weight_age)"),
        (("decay_half_life", "fair_tree", "shares", "associations"), fair,
         "fair-share has no weight (weight_fairshare)"),
        (("shares", "associations"), not accounts.associations, "the dump of accounts has the shares"),
        (("shares",), options.associations == "users", "shares are of users at one level (associations=users)"),
        (("whole_nodes",), bool(settings.bf_job_part_count_reserve) or settings.textbook != "no",
         "every job that is tested reserves its nodes; write bf_job_part_count_reserve=1, too"),
        (("origin",), bool(accounts.reservations), "there are no reservations (accounts=FILE)"),
        (("calc_period",), timed, "neither age nor fair-share has a weight"),
        (("favor_small",), weighed and bool(settings.weight_jobsize), "size has no weight (weight_jobsize)"),
        (("tiers",), options.tenant != "account", "accounts have no tiers"),
        (("weight_partition",), options.tenant == "partition" and bool(settings.partitions), "there are no partitions"),
        (("weight_qos",), by_qos, "tenants are no QOS (tenant=qos)"),
        (("preempt",), settings.preempt != "qos" or by_qos, "tenants are no QOS (tenant=qos)"),
        (("preempt",), settings.preempt != "partition" or bool(settings.partitions), "there are no partitions; write "
         "tiers=high:10/low:1 or give a conf"),
    ]  # fmt: skip
    for names, counts, why in rules:
        for name in names:
            if not counts and getattr(options, name) != getattr(usual, name):
                raise UserError(f"policy 'slurm': {name} would do nothing here: {why}")


def _levels(pairs: Sequence[str], what: str) -> dict[str, int]:
    """`("high:10", "low:1")` → levels by name."""
    found: dict[str, int] = {}
    for pair in pairs:
        name, colon, level = pair.rpartition(":")
        if not colon or not name or not level.isdigit():
            raise UserError(f"policy 'slurm': {what}={pair!r}: write names and whole numbers, as high:10/low:1")
        found[name] = int(level)
    return found
