"""Why jobs wait under Gavel: a reason per demand at every plan, and one per job when GPU time is allocated anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from dally.core.plan import Demand, Plan, Preempt, Wait
from dally.core.policy import View
from dally.core.reasons import Reason, Token


@lru_cache(maxsize=4096)
def _waits(demand: Demand) -> Wait:
    return Wait(demand, Reason(Token.WAITING_FOR_ROUND, "the GPUs of this round went to jobs further behind their "
                               "share of time; it competes again when the next round begins"))  # fmt: skip


def explain_waiting(view: View, plan: Plan) -> Plan:
    """One reason per demand; it also serves the jobs this plan sends back to the queue."""
    demands = dict.fromkeys(view.waiting.buckets)
    for action in plan:
        if type(action) is Preempt:
            demands[view.job(action.job).demand] = None
    return [_waits(demand) for demand in demands]


def explain_share(job_id: str, columns: Sequence[str], share: Sequence[float], others: int) -> Wait:
    """What a waiting job was allocated: its share of time on each GPU type."""
    parts = [f"{fraction:.0%} of its time on {column}" for column, fraction in zip(columns, share, strict=True)
             if fraction >= 0.005]  # fmt: skip
    text = ", ".join(parts) or "no GPU time"
    return Wait(job_id, Reason(Token.WAITING_FOR_ROUND, f"among {others} jobs it is allocated {text}; it waits while "
                               "others are further behind their share"))  # fmt: skip


def explain_all(view: View, columns: Sequence[str], shares: Mapping[str, Sequence[float]], jobs: int) -> Plan:
    """For every job in the queue, at the time of a new allocation."""
    return [explain_share(job.id, columns, shares[job.id], jobs) for job in view.waiting if job.id in shares]
