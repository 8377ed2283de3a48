"""Whether running jobs lose their GPUs to others: freely, where it is worth what it costs, or never.

One option for every policy that preempts. `never`: nobody who runs is taken off its GPUs, neither stopped nor moved.
`costly`: who is given GPUs keeps them until it has worked ten times as long as being preempted and coming back takes
(`View.price`, as measured so far), so that preemptions cost a job a tenth of what it does, at most. `free`: as if it
cost nothing.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from dally.core.plan import Action, Extend, Migrate, Plan, Resize, Start
from dally.core.policy import View
from dally.policies.options import Condition, option

Preempting = Literal["free", "costly", "never"]
WORTH: Final = 10.0  # times its price that a job works before it may be preempted again


def preempting(only_with: Condition | tuple[Condition, ...] = ()) -> Any:
    """The option."""
    return option("free", "who runs loses its GPUs to others: as if it cost nothing; once it has worked ten times what "
                  "that costs, as measured; or never", only_with=only_with)  # fmt: skip


def with_leases(plan: Plan, view: View, how: Preempting) -> Plan:
    """The plan with leases as long as the price of preemption asks for; without any where nobody is preempted."""
    if how == "free":
        return plan
    return [_leased(action, view, how) for action in plan]


def _leased(action: Action, view: View, how: Preempting) -> Action:
    if not isinstance(action, (Start, Migrate, Resize, Extend)):
        return action
    if how == "never":
        return action if isinstance(action, Extend) else action._replace(lease=None)
    job = view.job(action.job)
    price = view.price(job)
    if price <= 0:
        return action
    loading = 0.0 if isinstance(action, Extend) or job.attempts == 0 else price
    return action._replace(lease=max(action.lease or 0.0, WORTH * price + loading))
