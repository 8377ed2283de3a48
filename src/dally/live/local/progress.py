"""What a job says of itself, as a report: the messages of `dally.job`, and its progress file, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dally.live.engine import Stepped


def stepped(job: str, attempt: int, message: Mapping[str, Any], reference: float | None) -> Stepped | None:
    """None where the figures are no figures. Saved work is counted in seconds of running; where a profile says how long
    a step takes at full speed, in seconds at full speed."""
    step_time = _amount(message.get("step_time"))
    if step_time is None or step_time == 0:
        return None
    exposed = _amount(message.get("exposed")) or 0.0
    saved_steps, saved_seconds = _amount(message.get("saved_steps")), _amount(message.get("saved_seconds"))
    saved = saved_seconds
    if reference is not None and saved_steps is not None:
        saved = saved_steps * reference
    return Stepped(job, attempt, step_time, min(1.0, exposed), None, saved)


def _amount(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    return None
