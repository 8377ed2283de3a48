"""The twin as plain JSON: times in seconds; the names are relied upon by others."""

from __future__ import annotations

import math
from typing import Any

from dally.experiments.twin.backtest import Held, Spread
from dally.experiments.twin.trip import Twin
from dally.experiments.twin.whatif import Difference, WhatIf


def as_document(twin: Twin, assumptions: list[str]) -> dict[str, Any]:
    test, history = twin.test, twin.history
    return {
        "backtest": {
            "policy": test.policy,
            "how": twin.how,
            "jobs": test.whole.jobs,
            "avg_wait": {"actual": test.whole.actual_wait, "simulated": test.whole.simulated_wait},
            "avg_jct": {"actual": test.whole.actual_jct, "simulated": test.whole.simulated_jct},
            "error": {"wait": _spread(test.wait, test.whole.wait_error),
                      "jct": _spread(test.jct, test.whole.jct_error)},
            "rank_correlation": test.in_order,
            "partitions_in_order": test.partitions_in_order,
            "verdict": {"grade": twin.verdict.grade, "said": [twin.verdict.headline, twin.verdict.advice]},
            "explained": list(twin.explained),
            "by": {what: [_held(each) for each in groups] for what, groups in test.groups.items()},
            "not_compared": test.unfinished,
            "window": {"record_begins": history.begin, "measured_from": history.window.start,
                       "measured_to": history.window.end, "record_ends": history.until,
                       "running_at_begin": len(history.warm)},
            "tried": [{"policy": each.policy, "misfit": each.off, "avg_wait": each.wait, "jobs": each.jobs}
                      for each in twin.fit.tried] if twin.fit else [],
        },
        "what_if": [_what_if(each) for each in twin.what_ifs],
        "failures": [{"policy": each.policy, "error": str(each.error)} for each in twin.failures],
        "assumptions": assumptions,
    }  # fmt: skip


def _spread(spread: Spread, single: float) -> dict[str, float | None]:
    return {"bias": spread.bias, "chance": _finite(spread.chance), "single_jobs": single}


def _held(held: Held) -> dict[str, Any]:
    return {"name": held.name, "jobs": held.jobs,
            "avg_wait": {"actual": held.actual_wait, "simulated": held.simulated_wait},
            "avg_jct": {"actual": held.actual_jct, "simulated": held.simulated_jct},
            "wait_error": held.wait_error, "jct_error": held.jct_error}  # fmt: skip


def _what_if(each: WhatIf) -> dict[str, Any]:
    return {"policy": each.policy, "change": each.change, "avg_wait": each.avg_wait, "avg_jct": each.avg_jct,
            "makespan": each.replay.makespan, "told": each.replay.told,
            "wait_difference": _difference(each.wait), "jct_difference": _difference(each.jct),
            "not_compared": each.replay.unfinished,
            "by": {what: [_against(held) for held in groups] for what, groups in each.groups.items()}}  # fmt: skip


def _against(held: Held) -> dict[str, Any]:
    """A group under a what-if, beside the replayed present."""
    return {"name": held.name, "jobs": held.jobs, "avg_wait": held.simulated_wait, "avg_jct": held.simulated_jct,
            "wait_difference": held.wait_bias, "jct_difference": held.jct_bias}  # fmt: skip


def _difference(found: Difference) -> dict[str, float | None]:
    return {"value": found.value, "low": _finite(found.low), "high": _finite(found.high)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
