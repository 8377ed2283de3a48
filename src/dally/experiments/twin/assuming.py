"""What a twin stands on, said once and loudly: links, durations, what was dropped, what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dally.core.units import show_time
from dally.experiments.twin.trip import Twin
from dally.policies.options import make_policy
from dally.report.wording import jobs_text
from dally.simulator.knowledge import EXACT, settled

_CONF = "slurm.conf"
_KEYS = ("schedulertype", "schedulerparameters", "prioritytype", "partitionname")


def conf_of(cluster: str | None, nodes: str | None) -> Path | None:
    """The slurm.conf among what describes the cluster, or beside it; None where there is none."""
    for text in filter(None, (nodes, cluster)):
        path = Path(text)
        try:
            if path.is_file() and _configures(path):
                return path
            beside = (path if path.is_dir() else path.parent) / _CONF
            if path.exists() and beside.is_file():
                return beside
        except OSError:  # no name of a file at all
            continue
    return None


def _configures(path: Path) -> bool:
    """Whether it says how to schedule, and does not only list nodes."""
    try:
        text = path.read_text(encoding="utf-8-sig").lower()
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.lstrip().startswith(_KEYS) for line in text.splitlines())


def assumptions(twin: Twin, cluster_notes: Sequence[str], fabric: str | None = None) -> list[str]:
    """Sentences for the top of table and page."""
    history, scenario = twin.history, twin.scenario
    said = [_distance(twin, fabric)]
    span = show_time(history.until - history.begin)
    said.append(f"the record is taken to be whole from {show_time(history.begin)} after its first submission, and goes "
                f"on for {span}; {jobs_text(len(history.warm))} ran at its begin and start it warm; measured are "
                f"{jobs_text(twin.test.whole.jobs)} between warm-up and cool-down that ended in both")  # fmt: skip
    said.append("GPUs are all that jobs need: CPUs, memory and licenses hold nobody back")
    preempting = [each.policy for each in twin.what_ifs if make_policy(each.policy).preempts]
    if preempting:
        said.append(f"{', '.join(dict.fromkeys(preempting))} preempt: every job is taken to have checkpoints, at the "
                    f"cost {scenario.preemption_cost!r}; the record has no preemption the back-test could show "
                    "right")  # fmt: skip
    if twin.what_ifs:
        known = settled(scenario.knowledge, history.trace.jobs)
        said.append(f"of durations, what-ifs know: {known}" + (", which no cluster does" if known == EXACT else ""))
    dropped, repaired = sum(history.trace.dropped.values()), sum(history.trace.repaired.values())
    if dropped:
        said.append(f"{dropped:,} rows of the history were left out: {_most(history.trace.dropped.most_common(3))}")
    if repaired:
        said.append(f"{repaired:,} rows were changed: {_most(history.trace.repaired.most_common(3))}")
    said += [f"the cluster: {note}" for note in cluster_notes]
    said += [f"{twin.test.policy}: {note}" for note in twin.test.replay.notes]
    return said


def _distance(twin: Twin, fabric: str | None) -> str:
    if twin.scenario.network == "ideal":
        return ("placement costs no time (network ideal): every job takes as long as it took, wherever it is put, so "
                "that no fabric is assumed and none distorts the back-test; nothing here says what a better placement "
                "would gain (--network analytic with --fabric does)")  # fmt: skip
    links = fabric or "the links of the cluster's description, or the default ones (docs/clusters.md)"
    return (f"distance costs time as network {twin.scenario.network!r} has it on {links}; recorded run times are "
            "those of the recorded nodes, alone on their links; models are assumed where jobs name none")  # fmt: skip


def _most(counted: Sequence[tuple[str, int]]) -> str:
    return "; ".join(f"{count:,} × {what}" for what, count in counted)
