"""A real slurm.conf as settings of the policy, with one sentence for everything in it that changes scheduling and that
the policy does not do."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dally.catalog.clusters.hostlist import expand
from dally.catalog.clusters.slurm_conf import conf_lines
from dally.core.errors import UserError
from dally.policies.slurm.settings import EVERYWHERE, YEAR, Partition, Settings

_TIME = re.compile(r"^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$")
_NO_LIMIT = ("unlimited", "infinite", "none", "-1")

# Of SchedulerParameters: field of the settings, seconds in one unit of the key (None: a number of things).
_PARAMETERS: dict[str, tuple[str, float | None]] = {
    "bf_interval": ("bf_interval", 1.0), "bf_window": ("bf_window", 60.0), "bf_resolution": ("bf_resolution", 1.0),
    "bf_max_job_test": ("bf_max_job_test", None), "bf_max_job_start": ("bf_max_job_start", None),
    "bf_job_part_count_reserve": ("bf_job_part_count_reserve", None),
    "default_queue_depth": ("default_queue_depth", None), "sched_interval": ("sched_interval", 1.0),
    "batch_sched_delay": ("batch_sched_delay", 1.0), "max_switch_wait": ("max_switch_wait", 1.0),
    "bf_max_job_user": ("bf_max_job_user", None), "bf_max_job_part": ("bf_max_job_part", None),
    "bf_max_job_user_part": ("bf_max_job_user_part", None), "partition_job_depth": ("partition_job_depth", None),
    "bf_max_job_array_resv": ("bf_max_job_array_resv", None), "bf_min_age_reserve": ("bf_min_age_reserve", 1.0),
    "bf_min_prio_reserve": ("bf_min_prio_reserve", None),
}  # fmt: skip
_SWITCHES = {"assoc_limit_stop": "limits_stop", "preempt_youngest_first": "youngest_first"}
# Without effect here: a pass takes no time, so that nothing interrupts it and none comes too soon after another; batch
# jobs are never tried when they are submitted, deferred or not.
_TIMELESS = frozenset({"bf_continue", "bf_max_time", "bf_yield_interval", "bf_yield_sleep", "bf_yield_rpc_cnt",
                       "defer", "defer_batch", "sched_min_interval", "max_rpc_cnt", "max_sched_time"})  # fmt: skip
_WEIGHTS = {"priorityweightage": "weight_age", "priorityweightfairshare": "weight_fairshare",
            "priorityweightjobsize": "weight_jobsize", "priorityweightpartition": "weight_partition",
            "priorityweightqos": "weight_qos"}  # fmt: skip
_TIMES = {"prioritymaxage": "max_age", "prioritydecayhalflife": "decay_half_life",
          "prioritycalcperiod": "calc_period"}  # fmt: skip
# Keys that say who runs when or where, and are not done: by name, and by how they begin.
_NOT_DONE = frozenset({
    "completewait", "jobsubmitplugins", "licenses", "overtimelimit", "topologyparam", "federationparameters",
    "reservation",
})  # fmt: skip
_FAMILIES = ("priority", "sched", "preempt", "select", "topology", "bf_", "gang")
_PARTITION_DONE = frozenset({"partitionname", "nodes", "prioritytier", "priorityjobfactor", "priority", "default",
                             "defaulttime", "maxtime", "preemptmode", "qos"})  # fmt: skip
# What says which jobs it takes: those of a record were accepted. Exclusive nodes are in the record, too.
_PARTITION_ACCEPTS = frozenset({"allowaccounts", "allowgroups", "allowqos", "denyaccounts", "denyqos", "maxnodes",
                                "minnodes", "defmempercpu", "defmempernode", "maxmempercpu", "maxmempernode",
                                "oversubscribe", "shared", "maxcpuspernode", "defcpupergpu", "defmempergpu",
                                "jobdefaults"})  # fmt: skip
_PARTITION_IDLE = frozenset({"state", "hidden", "alternate", "rootonly", "disablerootjobs", "allocnodes", "cpubind",
                             "reqresv", "suspendtime", "suspendtimeout", "resumetimeout", "powerdownonidle",
                             "tresbillingweights"})  # fmt: skip


def read_settings(path: Path) -> tuple[Settings, list[str]]:
    """The settings of a slurm.conf, and what of it is not done, a sentence each."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise UserError(f"policy 'slurm': {path} cannot be read") from None
    return _Reader(path).read(text)


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, Any] = {}
        self.partitions: dict[str, Partition] = {}
        self.template = Partition("")  # what PartitionName=DEFAULT says
        self.default = EVERYWHERE
        self.weights: dict[str, int] = {}
        self.usual_weight = 1  # what NodeName=DEFAULT says
        self.features: dict[str, list[str]] = {}  # feature → nodes
        self.node_sets: dict[str, list[str]] = {}
        self.by_feature: dict[str, str] = {}  # node set → the feature it is made of
        self.notes: dict[str, None] = {}

    def read(self, text: str) -> tuple[Settings, list[str]]:
        any_line = False
        for file, number, pairs in conf_lines(self.path, text):
            any_line = True
            where, first = f"{file}, line {number}", pairs[0][0]
            if first == "partitionname":
                self._partition(dict(pairs), where)
            elif first == "nodename":
                self._node(dict(pairs), where)
            elif first == "nodeset":
                self._node_set(dict(pairs), where)
            elif first not in ("downnodes", "frontendname"):
                for key, value in pairs:
                    self._key(key, value, where)
        if not any_line:
            raise UserError(f"policy 'slurm': {self.path} has no line of a slurm.conf")
        if self.found.get("topology") is None:
            self.found["topology"] = "flat"  # topology/none is Slurm's default
        self.found.setdefault("enforced", False)  # AccountingStorageEnforce=none is Slurm's default
        settings = replace(Settings(), **self.found, partitions=self._with_sets(), default_partition=self.default,
                           weights=self.weights)  # fmt: skip
        return settings, list(self.notes)

    def _say(self, what: str) -> None:
        self.notes[f"{self.path.name}: {what}"] = None

    def _key(self, key: str, value: str, where: str) -> None:
        if key in _WEIGHTS:
            self.found[_WEIGHTS[key]] = _number(value, where, key)
        elif key in _TIMES:
            self.found[_TIMES[key]] = slurm_time(value, where, key)
        elif key in _KEYS:
            _KEYS[key](self, value, where)
        elif key in _NOT_DONE or key.startswith(_FAMILIES):
            self._say(f"{key}={value} is not imitated")

    def _scheduler(self, value: str, where: str) -> None:
        self.found["backfill"] = value.lower() == "sched/backfill"
        if value.lower() not in ("sched/backfill", "sched/builtin"):
            raise UserError(f"policy 'slurm': {where}: SchedulerType={value} is not known; "
                            "sched/backfill and sched/builtin are")  # fmt: skip

    def _parameters(self, value: str, where: str) -> None:
        for part in value.split(","):
            name, equals, given = (piece.strip() for piece in part.partition("="))
            name = name.lower()
            if name in _PARAMETERS:
                target, unit = _PARAMETERS[name]
                number = _number(given, where, name)
                self.found[target] = int(number) if unit is None else number * unit
            elif name in _SWITCHES:
                self.found[_SWITCHES[name]] = True
            elif name and name not in _TIMELESS:
                self._say(f"SchedulerParameters={name}{equals}{given} is not imitated")

    def _priority_type(self, value: str, where: str) -> None:
        self.found["multifactor"] = value.lower() == "priority/multifactor"
        if value.lower() not in ("priority/multifactor", "priority/basic"):
            self._say(f"PriorityType={value} is not known, and taken for priority/basic")

    def _priority_flags(self, value: str, where: str) -> None:
        for flag in filter(None, (part.strip().upper() for part in value.split(","))):
            if flag == "NO_FAIR_TREE":
                self.found["fair_tree"] = False
            elif flag != "FAIR_TREE":
                self._say(f"PriorityFlags={flag} is not imitated")

    def _dampening(self, value: str, where: str) -> None:
        self.found["dampening"] = max(1.0, _number(value, where, "FairShareDampeningFactor"))

    def _exempt_time(self, value: str, where: str) -> None:
        longest = slurm_time(value, where, "PreemptExemptTime")
        self.found["exempt_time"] = longest if math.isfinite(longest) else 0.0  # -1: no such time

    def _preempt_parameters(self, value: str, where: str) -> None:
        for name in filter(None, (part.strip() for part in value.split(","))):
            if name.lower() == "youngest_first":
                self.found["youngest_first"] = True
            else:
                self._say(f"PreemptParameters={name} is not imitated")

    def _enforce(self, value: str, where: str) -> None:
        words = {word.strip().lower() for word in value.split(",")}
        self.found["enforced"] = bool(words & {"limits", "safe", "all"})
        if not self.found["enforced"]:
            self._say(f"AccountingStorageEnforce={value} does not have limits: none is enforced")

    def _favor_small(self, value: str, where: str) -> None:
        self.found["favor_small"] = value.lower() in ("yes", "true", "1")

    def _preempt_type(self, value: str, where: str) -> None:
        kinds = {"preempt/none": "off", "preempt/partition_prio": "partition", "preempt/qos": "qos"}
        if value.lower() not in kinds:
            raise UserError(f"policy 'slurm': {where}: PreemptType={value} is not known; "
                            f"{', '.join(kinds)} are")  # fmt: skip
        self.found["preempt"] = kinds[value.lower()]

    def _preempt_mode(self, value: str, where: str) -> None:
        modes = {mode.strip().upper() for mode in value.split(",")}
        if "OFF" in modes:
            self.found["preempt"] = "off"
        for mode in sorted(modes & {"SUSPEND", "GANG", "WITHIN"}):
            self._say(f"PreemptMode={mode} is not imitated: jobs that are preempted wait again")
        if "CANCEL" in modes:
            self._say("PreemptMode=CANCEL: jobs that are preempted wait again instead")

    def _topology(self, value: str, where: str) -> None:
        self.found["topology"] = "tree" if value.lower() == "topology/tree" else "flat"
        if value.lower() not in ("topology/tree", "topology/none", "topology/flat", "topology/default"):
            self._say(f"TopologyPlugin={value} is not imitated: nodes are taken as without topology")

    def _select(self, value: str, where: str) -> None:
        if value.lower() not in ("select/cons_tres", "select/cons_res"):
            self._say(f"SelectType={value} is not imitated: nodes are shared as with select/cons_tres")

    def _select_parameters(self, value: str, where: str) -> None:
        for flag in filter(None, (part.strip() for part in value.split(","))):
            if flag.upper() not in ("CR_CORE", "CR_CPU", "CR_SOCKET", "CR_CORE_MEMORY", "CR_CPU_MEMORY",
                                    "CR_SOCKET_MEMORY", "CR_MEMORY", "CR_ONE_TASK_PER_CORE"):  # fmt: skip
                self._say(f"SelectTypeParameters={flag} is not imitated")

    def _partition(self, fields: dict[str, str], where: str) -> None:
        name = fields["partitionname"]
        base = self.template
        nodes = base.nodes
        if "nodes" in fields:
            listed = [part for part in _expanded(fields["nodes"], where) if part.upper() != "ALL"]
            nodes = tuple(listed) if listed and fields["nodes"].upper() != "ALL" else None
        tier = _whole(fields, "prioritytier", where, _whole(fields, "priority", where, base.tier))
        mode = fields.get("preemptmode", "").upper()
        found = Partition(
            name, nodes, tier, _whole(fields, "priorityjobfactor", where, base.job_factor),
            _limit(fields, "defaulttime", where, base.default_time),
            YEAR if (longest := _limit(fields, "maxtime", where, base.max_time)) is None else longest,
            base.preemptable if not mode else mode != "OFF", fields.get("qos", base.qos))  # fmt: skip
        accepts = sorted(set(fields) & _PARTITION_ACCEPTS)
        if accepts:
            self._say(f"{', '.join(accepts)} of partitions turn nobody away: the jobs of a record were accepted")
        for key in sorted(set(fields) - _PARTITION_DONE - _PARTITION_IDLE - _PARTITION_ACCEPTS):
            self._say(f"{key}={fields[key]} of partition {name} is not imitated")
        if fields.get("state", "UP").upper() != "UP":
            self._say(f"partition {name} is not up, and taken as if it were")
        if name.upper() == "DEFAULT":
            self.template = found
            return
        self.partitions[name] = found
        if fields.get("default", "").upper() == "YES":
            self.default = name

    def _node_set(self, fields: dict[str, str], where: str) -> None:
        if "nodes" in fields:
            self.node_sets[fields["nodeset"]] = _expanded(fields["nodes"], where)
        elif "feature" in fields:
            self.by_feature[fields["nodeset"]] = fields["feature"]

    def _with_sets(self) -> dict[str, Partition]:
        """Partitions with the nodes of the node sets they name."""
        sets = self.node_sets | {name: self.features.get(of, []) for name, of in self.by_feature.items()}
        if not sets:
            return self.partitions
        found = {}
        for name, each in self.partitions.items():
            parts = [sets.get(part, [part]) for part in each.nodes or ()]
            nodes = None if each.nodes is None else tuple(dict.fromkeys(node for part in parts for node in part))
            found[name] = replace(each, nodes=nodes)
        return found

    def _node(self, fields: dict[str, str], where: str) -> None:
        weight = _whole(fields, "weight", where, self.usual_weight)
        if fields["nodename"].upper() == "DEFAULT":
            self.usual_weight = weight
            return
        names = _expanded(fields["nodename"], where)
        if weight != 1:
            self.weights.update(dict.fromkeys(names, weight))
        listed = fields.get("feature", fields.get("features", "")).split(",")
        for feature in filter(None, map(str.strip, listed)):
            self.features.setdefault(feature, []).extend(names)


_KEYS: dict[str, Callable[[_Reader, str, str], None]] = {
    "schedulertype": _Reader._scheduler, "schedulerparameters": _Reader._parameters,
    "prioritytype": _Reader._priority_type, "priorityflags": _Reader._priority_flags,
    "priorityfavorsmall": _Reader._favor_small, "preempttype": _Reader._preempt_type,
    "preemptmode": _Reader._preempt_mode, "topologyplugin": _Reader._topology, "selecttype": _Reader._select,
    "selecttypeparameters": _Reader._select_parameters, "fairsharedampeningfactor": _Reader._dampening,
    "preemptexempttime": _Reader._exempt_time, "preemptparameters": _Reader._preempt_parameters,
    "accountingstorageenforce": _Reader._enforce,
}  # fmt: skip


def slurm_time(text: str, where: str, key: str) -> float:
    """`5` and `5:00` are minutes, `2:00:00` hours, `7-0` days → seconds; UNLIMITED is ∞."""
    if text.lower() in _NO_LIMIT:
        return math.inf
    match = _TIME.match(text.strip())
    if match is None:
        raise UserError(f"policy 'slurm': {where}: {key}={text} is no time of Slurm's, such as 30, 2:00:00 or 7-0")
    days, first, second, third = match[1], int(match[2]), int(match[3] or 0), int(match[4] or 0)
    if days is not None:
        return int(days) * 86400.0 + first * 3600.0 + second * 60.0 + third
    return first * 3600.0 + second * 60.0 + third if match[4] is not None else first * 60.0 + second


def _limit(fields: dict[str, str], key: str, where: str, usual: float | None) -> float | None:
    if key not in fields:
        return usual
    return None if fields[key].upper() == "NONE" else slurm_time(fields[key], where, key)


def _number(text: str, where: str, key: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise UserError(f"policy 'slurm': {where}: {key}={text} is no number of zero or more")
    return number


def _whole(fields: dict[str, str], key: str, where: str, usual: int) -> int:
    return int(_number(fields[key], where, key)) if key in fields else usual


def _expanded(names: str, where: str) -> list[str]:
    try:
        return expand(names)
    except UserError as error:
        raise UserError(f"policy 'slurm': {where}: {error}") from None
