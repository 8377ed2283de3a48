"""Why jobs wait under Gavel: a reason per demand at every plan, and one per job when GPU time is allocated anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dally.core.plan import Demand, Plan, Preempt, Wait
from dally.core.policy import View
from dally.core.reasons import Reason, Token

_WAITS: Final[dict[Demand, Wait]] = {}  # by demand: said at every plan


def _waits(demand: Demand) -> Wait:
    found = _WAITS.get(demand)
    if found is None:
        found = _WAITS[demand] = Wait(demand, Reason(
            Token.WAITING_FOR_ROUND, "the GPUs of this round went to jobs further behind their share of time; it "
            "competes again when the next round begins"))  # fmt: skip
    return found


def explain_waiting(view: View, plan: Plan) -> Plan:
    """One reason per demand; it also serves the jobs this plan sends back to the queue."""
    waiting = view.waiting.buckets
    found: Plan = [_waits(demand) for demand in waiting]
    back: set[Demand] = set()
    for action in plan:
        if type(action) is Preempt:
            demand = view.job(action.job).demand
            if demand not in waiting and demand not in back:
                back.add(demand)
                found.append(_waits(demand))
    return found


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
