"""All figures of a summary as a table, one line per figure: for `--figures all` and the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dally.report.groups import groups_of
from dally.report.metrics import Summary
from dally.report.wording import ABSENT, count_text, gpu_hours_text, share_text, time_text, times_text

_Text = Callable[[float | None], str]


def _index(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def _dollars(value: float | None) -> str:
    return ABSENT if value is None else f"${value:,.0f}"


def _energy(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f} kWh"


def _gpu_hours(value: float | None) -> str:
    return ABSENT if value is None else gpu_hours_text(value)


FIGURES: tuple[tuple[str, Callable[[Summary], float | None], _Text], ...] = (
    ("average JCT", lambda s: s.avg_jct, time_text),
    ("median JCT", lambda s: s.median_jct, time_text),
    ("95th percentile", lambda s: s.p95_jct, time_text),
    ("99th percentile", lambda s: s.p99_jct, time_text),
    ("makespan", lambda s: s.makespan, time_text),
    ("average queueing", lambda s: s.avg_queueing, time_text),
    ("bounded slowdown, average", lambda s: s.more.avg_bounded_slowdown, times_text),
    ("bounded slowdown, median", lambda s: s.more.median_bounded_slowdown, times_text),
    ("bounded slowdown, 95th percentile", lambda s: s.more.p95_bounded_slowdown, times_text),
    ("finish-time fairness ρ, average", lambda s: s.more.avg_finish_time_fairness, _index),
    ("finish-time fairness ρ, 95th percentile", lambda s: s.more.p95_finish_time_fairness, _index),
    ("jobs with ρ above 1", lambda s: s.more.unfairly_treated_share, share_text),
    ("Jain's index", lambda s: s.more.jain_index, _index),
    ("GPUs held usefully or not (utilisation)", lambda s: s.gpu_utilization, share_text),
    ("GPUs computing (useful)", lambda s: s.useful_utilization, share_text),
    ("GPUs idle while somebody waits", lambda s: s.more.idle_while_waiting_share, share_text),
    ("idle GPU time on machines partly used", lambda s: s.more.fragmentation, share_text),
    ("communication share", lambda s: s.comm_share, share_text),
    ("GPU time lost", lambda s: s.lost_gpu_seconds, _gpu_hours),
    ("GPU time lost, of that held", lambda s: s.more.wasted_gpu_share, share_text),
    ("preemptions", lambda s: s.preemptions, count_text),
    ("migrations", lambda s: s.migrations, count_text),
    ("interruptions by faults", lambda s: s.more.interruptions, count_text),
    ("failed starts", lambda s: s.more.failed_starts, count_text),
    ("restarts of any kind", lambda s: s.more.restarts, count_text),
    ("machines available", lambda s: s.more.availability, share_text),
    ("energy of GPUs held, at most", lambda s: s.more.energy_kwh, _energy),
    ("cost of GPUs held", lambda s: s.cost_dollars, _dollars),
)


def figure_rows(summaries: Sequence[Summary]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: a column per policy, those told the same beside each other."""
    order = [row for group in groups_of(summaries) for row in group.members]
    head = ["figure", *(summaries[row].policy for row in order)]
    rows = [["told", *(summaries[row].told or "?" for row in order)]]
    rows += [[title, *(text(value(summaries[row])) for row in order)] for title, value, text in FIGURES]
    return head, rows
