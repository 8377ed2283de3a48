"""Arrivals of synthetic jobs: gaps in even time, bent over the hours of a day, stretched to an offered load."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dally.traces.synth.chance import Floats

DAY = 86400.0


def over_the_day(even: Floats, hours: tuple[float, ...]) -> Floats:
    """Bend evenly running time so that hour h of each day gets `hours[h]` parts of the day's arrivals.

    A whole day stays a whole day; inside it, time runs slowly through busy hours. Second 0 is midnight.
    """
    share = np.concatenate([[0.0], np.cumsum(hours)]) / np.sum(hours)
    day = np.floor(even / DAY)
    return np.asarray(day * DAY + np.interp(even / DAY - day, share, np.linspace(0.0, DAY, len(share))))


def stretched(gaps: Floats, bend: Callable[[Floats], Floats], span: float | None) -> Floats:
    """Submission times from gaps, the first at 0; all gaps are scaled alike until the last comes at `span`."""
    even = np.concatenate([[0.0], np.cumsum(gaps[1:])])
    times = bend(even)
    if span is None:
        return np.asarray(times - times[0])
    # Bending moves the last arrival by less than a day, so a few steps of this fixed point settle it.
    for _ in range(60):
        reached = times[-1] - times[0]
        if abs(reached - span) <= 1e-6 * span:
            break
        even = even * (span / reached)
        times = bend(even)
    return np.asarray(times - times[0])
