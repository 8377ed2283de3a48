"""What `sacct` says about jobs, in either of its output forms: GPUs, nodes, states, and requeued attempts."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from dally.catalog.clusters.hostlist import expand
from dally.catalog.clusters.slurm_sets import FEATURE
from dally.core.errors import UserError
from dally.core.job import DurationMeans
from dally.core.records import dataclass
from dally.traces.assembly import NO_GPUS, Assembly, Row
from dally.traces.readers.attempts import failure_points
from dally.traces.readers.lifecycle import ALIVE, life_of

_GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::([^:=,()]+))??[:=](\d{1,9})(K?)(?![\w.])")
# A row in one of these states is an attempt that Slurm put back into the queue under the same id.
_RETRIED = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL"})
_MIG = re.compile(r"(?:^|[_-])(\d)g\.\d+gb")  # a slice of a GPU: so many of its seven parts
_PARTS = 7
_OPTION = re.compile(
    r"(?:^|\s)(--gpus-per-node|--gpus-per-task|--gpus-per-socket|--sockets-per-node|--gpus|--gres|--ntasks|-G|-n)"
    r"(?:[=\s]+|(?<=-[Gn]))(\S+)"
)
_DEPENDENCY = re.compile(r"(?:^|\s)(?:--dependency|-d)[=\s]*(\S+)")
_ARRAY = re.compile(r"(?:^|\s)(?:--array|-a)[=\s]*[\"']?[\d,:-]+%(\d{1,6})\b")
_CONSTRAINT = re.compile(r"^[\w.:-]+(?:[&|,][\w.:-]+)*$")
_CLOCK = 60.0  # seconds by which a stated run time may differ from the times: requeues, rounding
ELIGIBLE_LATER = "could not start when it was submitted (held, or waiting for another job): arrives when it could"
CLOCK_CHANGED = "its clock was put forward or back while it ran, or it was suspended: its stated run time is used"


@dataclass(slots=True)
class Record:
    """One line of `sacct`: an attempt at a job."""

    id: str
    line: int | None
    state: str
    submit: float | None
    start: float | None
    end: float | None
    elapsed: float | None
    gpus: float | None  # below 1, or with a fraction: slices of GPUs
    gpu_type: str | None = None
    limit: float | None = None
    nodes: str | None = None
    user: str | None = None
    tenant: str | None = None
    priority: int = 0
    eligible: float | None = None  # when it could have started
    suspended: float = 0.0
    name: str | None = None
    partition: str | None = None
    qos: str | None = None
    node_count: int | None = None  # nodes it had, or asked for
    constraint: str | None = None  # features its nodes must have
    exclusive: bool = False
    after: str | None = None  # what it waited for, as `--dependency` has it
    throttle: int | None = None  # tasks of its array that may run at a time
    reservation: str | None = None


@functools.lru_cache(maxsize=4096)  # dumps say the same few things over and over
def gpus_in(tres: str) -> tuple[float, str | None]:
    """GPUs and their type in `billing=8,gres/gpu=4,gres/gpu:a100=4` or `gpu:a100:4(S:0-1)`; (0, None) without any.

    A typed count repeats an untyped one, so the untyped total wins and types only add up without it. A MIG slice such
    as `gpu:a100_2g.10gb` is two sevenths of a GPU.
    """
    total, typed, slices, sliced = None, 0, 0, 0.0
    kinds = set()
    for name, digits, unit in _GRES.findall(tres):
        count = int(digits) * (1024 if unit else 1)  # as sacct shortens numbers
        if not name:
            total = count
        elif (mig := _MIG.search(name.lower())) is not None:
            slices, sliced = slices + count, sliced + count * min(_PARTS, int(mig[1])) / _PARTS
            if mig.start():
                kinds.add(name[: mig.start()])
        else:
            typed += count
            kinds.add(name)
    whole = typed if total is None else max(0, total - slices)
    return whole + sliced, (kinds.pop() if len(kinds) == 1 else None)


def gpus_of_command(line: str | None, nodes: float) -> float:
    """What `sbatch --gpus 4 …` asks for, where the cluster does not account for GPUs; 0 where it does not say."""
    asked: dict[str, str] = {}
    for name, value in _OPTION.findall(line or ""):
        asked.setdefault({"-G": "--gpus", "-n": "--ntasks"}.get(name, name), value.strip("\"'"))
    tasks, sockets = (int(asked[name]) if asked.get(name, "").isdigit() and len(asked[name]) < 10 else 1
                      for name in ("--ntasks", "--sockets-per-node"))  # fmt: skip
    for name, times in (("--gpus", 1.0), ("--gpus-per-node", nodes), ("--gpus-per-task", tasks),
                        ("--gpus-per-socket", nodes * sockets)):  # fmt: skip
        if name in asked:
            counts = [part.rpartition(":")[2] for part in asked[name].split(",")]
            return times * sum(int(count) if count.isdigit() and len(count) < 10 else 1 for count in counts)
    return nodes * gpus_in(asked.get("--gres", ""))[0]


def waits_for(line: str | None) -> str | None:
    """What `sbatch --dependency=…` (`-d`) of a command line says."""
    found = _DEPENDENCY.findall(line or "")
    return found[-1].strip("\"'") if found else None


def throttle_of(line: str | None) -> int | None:
    """4, of `--array=0-99%4` (`-a`)."""
    found = _ARRAY.findall(line or "")
    return int(found[-1]) if found and int(found[-1]) > 0 else None


@functools.lru_cache(maxsize=4096)
def node_names(text: str) -> tuple[str, ...] | None:
    """`n[01-03,7],gpu9` → n01, n02, n03, n7, gpu9; None for anything that is not a plain node list."""
    if text.lower() in ("none assigned", "none", "(null)", "unknown", ""):
        return None
    try:
        return tuple(expand(text))
    except UserError:
        return None


def add_records(assembly: Assembly, records: Iterable[Record]) -> None:
    """Turn attempts into jobs and hand them to the assembly."""
    by_id: dict[str, list[list[Record]]] = {}
    order: list[list[Record]] = []
    alive: list[Record] = []
    latest = 0.0
    for record in records:
        latest = max(latest, record.end or 0.0, record.start or 0.0, record.submit or 0.0)
        if record.state in ALIVE and record.end is None and record.elapsed is None and record.start is not None:
            alive.append(record)
        runs = by_id.setdefault(record.id, [])
        # `sacct --duplicates` lists a requeued job once per attempt; a reused id is another job.
        if runs and runs[-1][-1].state in _RETRIED:
            runs[-1].append(record)
        else:
            runs.append([record])
            order.append(runs[-1])
    for record in alive:  # without Elapsed: at least until the last thing the dump knows of
        if record.start is not None and latest > record.start:
            record.elapsed = latest - record.start
    by_id.clear()
    order.reverse()
    while order:  # each is given up as it becomes a row: a long dump is not held twice
        row = _row(assembly, order.pop())
        if row is not None:
            assembly.rows.append(row)


def _row(assembly: Assembly, attempts: list[Record]) -> Row | None:
    last, first = attempts[-1], attempts[0]
    told = next((attempt.gpus for attempt in reversed(attempts) if attempt.gpus), None)
    if told is None:
        assembly.drop(NO_GPUS, last.line, last.id)
        return None
    asked = assembly.gpus(told, last.line, last.id)
    if asked is None:
        return None
    gpus, fraction = asked
    life = life_of(assembly, last.line, last.id, last.state, last.submit, last.start, last.end, last.elapsed)
    if life is None:
        return None
    if life.duration is not None and last.elapsed and abs(life.duration - last.elapsed) >= _CLOCK and (
            last.suspended > 0 or abs(abs(life.duration - last.elapsed) - 3600) < 2):  # fmt: skip
        assembly.repair(CLOCK_CHANGED, last.line, last.id)
        life = life._replace(duration=last.elapsed)
    earlier = [_length(attempt) for attempt in attempts[:-1]]
    submit, duration, cancel_at = life.submit, life.duration, life.cancel_at
    failures: tuple[float, ...] = ()
    if any(earlier):
        # A requeue rewrites the submission; the first attempt has the true one.
        submit = min(submit, first.submit) if first.submit is not None else submit
        lengths = [*earlier, duration or 0.0]
        duration, cancel_at = sum(lengths), None
        failures = failure_points(lengths)
    submitted: float | None = None
    if last.eligible is not None and last.eligible > submit and not failures and (
            last.start is None or last.eligible <= last.start) and (cancel_at is None or last.eligible <= cancel_at):
        assembly.repair(ELIGIBLE_LATER, last.line, last.id)
        submitted, submit = submit, last.eligible
    names = node_names(last.nodes) if last.nodes and life.duration is not None else None
    ran_on = tuple((name, gpus // len(names)) for name in names) if names and gpus % len(names) == 0 else ()
    return Row(last.id, submit, gpus, duration, last.line, gpu_fraction=fraction, gpu_type=last.gpu_type,
               user=last.user, tenant=last.tenant, priority=last.priority, declared_duration=last.limit,
               ending=life.ending, cancel_at=cancel_at, failures=failures, ran_on=ran_on,
               means=DurationMeans.AS_PLACED if ran_on else DurationMeans.BEST_PLACEMENT,
               name=last.name, partition=last.partition, qos=last.qos, nodes=_nodes(last, names, gpus),
               among=features_of(last.constraint), exclusive=last.exclusive, limit=last.limit,
               start=None if life.duration is None else next((each.start for each in attempts if each.start), None),
               submitted=submitted, after=last.after, throttle=last.throttle if "_" in last.id else None,
               reservation=last.reservation)  # fmt: skip


def _nodes(record: Record, names: tuple[str, ...] | None, gpus: int) -> int | None:
    """Nodes it was on, with as many GPUs on each; None where they are not known or do not divide evenly."""
    count = len(names) if names else record.node_count
    return count if count and gpus % count == 0 else None


def features_of(constraint: str | None) -> str | None:
    """`a100&ib` or `a100|v100` as sets of machines; None for counts and brackets, which are not kept."""
    if constraint is None or not _CONSTRAINT.match(constraint):
        return None
    return re.sub(r"[^&|]+", lambda name: FEATURE + name[0], constraint.replace(",", "&"))


def _length(attempt: Record) -> float:
    """Run time of an attempt that was put back; 0 where it never started."""
    if attempt.start is not None and attempt.end is not None:
        return max(0.0, attempt.end - attempt.start)
    return max(0.0, attempt.elapsed or 0.0)


