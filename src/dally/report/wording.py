"""Figures in words: one way to write times, shares, ratios and demands in tables, plots and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from dally.core.units import show_time
from dally.report.metrics import Summary

ABSENT = "–"


def time_text(value: float | None) -> str:
    if value is None or value != value:
        return ABSENT
    if value >= 1000 * 86400.0:
        return f"{value / 86400.0:,.0f} d"
    return "0 s" if value == 0 else show_time(value)


_UNITS = (("d", 86400.0, 172800.0), ("h", 3600.0, 7200.0), ("min", 60.0, 120.0), ("s", 1.0, 0.0))


def column_times(values: Sequence[float | None]) -> list[str]:
    """Times of one column in the unit that suits their middle, so that they compare at a glance; where they are
    too far apart for any one unit, each in its own."""
    above = [value for value in values if value]
    if above and max(above) > 60 * min(above):
        return [time_text(value) for value in values]
    known = sorted(value for value in values if value)
    if not known:
        return [time_text(value) for value in values]
    middle = known[len(known) // 2]
    unit, factor = next((unit, factor) for unit, factor, least in _UNITS if middle >= least)
    return [ABSENT if value is None else f"{_figure(value / factor)} {unit}" if value else "0" for value in values]


def hours_text(value: float | None) -> str:
    """Hours without their unit, for tables and papers that speak of hours throughout: 0.15, 46.8, 22,226."""
    return ABSENT if value is None or value != value else _figure(value / 3600)


def _figure(value: float) -> str:
    """Three digits: 0.86, 5.10, 25.5, 120; at most two behind the point."""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"


def spans_decades(values: Sequence[float | None]) -> bool:
    """Whether bars of these lengths need a logarithmic axis for the short ones to be seen."""
    known = [value for value in values if value]
    return bool(known) and max(known) > 30 * min(known)


def log_text(values: Sequence[float | None]) -> str:
    return " Logarithmic axis." if spans_decades(values) else ""


def share_text(value: float | None) -> str:
    if value is None or value != value:
        return ABSENT
    percent = 100 * value
    if 0 < percent < 0.001:
        return "under 0.001 %"
    return f"{percent:.2g} %" if 0 < abs(percent) < 1 else f"{percent:.1f} %"


def times_text(value: float | None) -> str:
    """A multiple: 1.02×, 13.4×, 120×."""
    if value is None or value != value:
        return ABSENT
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}×"


def count_text(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"


def gpu_hours_text(gpu_seconds: float) -> str:
    hours = gpu_seconds / 3600
    return f"{hours:,.0f} GPU-hours" if hours >= 10 or hours == 0 else f"{hours:.2g} GPU-hours"


def jobs_text(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def gpus_text(demand: str) -> str:
    return "1 GPU" if demand == "1" else f"{demand} GPUs"


def listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def run_notes(summaries: Sequence[Summary]) -> list[str]:
    """What a reader must know before comparing these runs: jobs turned away, runs stopped, sets that differ."""
    notes: list[str] = []
    for word, text in (
        ("rejected", "turned away because the cluster can never hold it"),
        ("failed", "failed for good"),
        ("cancelled", "cancelled by its user"),
        ("unfinished", "not finished when the run stopped"),
    ):
        counts = [getattr(each, word) for each in summaries]
        plural = text.replace("can never hold it", "can never hold them").replace("its user", "their users")
        if not any(counts):
            continue
        if len(set(counts)) == 1:
            notes.append(f"{jobs_text(counts[0])} {'was' if counts[0] == 1 else 'were'} "
                         f"{text if counts[0] == 1 else plural}; JCT counts finished jobs only.")  # fmt: skip
        else:
            each_run = listed([f"{each.policy} {n:,}" for each, n in zip(summaries, counts, strict=True)])
            notes.append(f"Jobs {plural}: {each_run}; JCT counts finished jobs only.")
    stopped = [each.policy for each in summaries if not each.complete]
    if stopped:
        notes.append(f"Stopped before the end: {listed(stopped)}; these figures cover only what had finished.")
    if len({each.finished for each in summaries}) > 1:
        notes.append("The policies did not finish the same number of jobs: their averages are over different jobs.")
    return notes
