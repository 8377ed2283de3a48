"""All it takes to write a policy, under one name: see CONTRIBUTING."""

from dally.core.active import ActiveJob
from dally.core.memory import Memory, Order, Table
from dally.core.plan import Demand, Extend, Migrate, Plan, Preempt, Reshare, Resize, Start, Wait, WakeAt
from dally.core.policy import PolicyBase, View
from dally.core.ranking import Rank
from dally.core.reasons import Reason, Token
from dally.core.sharing import Share
from dally.core.states import State
from dally.core.told import DURATIONS, SPEEDS
from dally.policies.base import RankedPolicy
from dally.policies.greedy import plan_by_rank, plan_in_order
from dally.policies.options import option, unless, when
from dally.policies.placing import RULES, Rule, RuleName

__all__ = [
    "DURATIONS", "RULES", "SPEEDS", "ActiveJob", "Demand", "Extend", "Memory", "Migrate", "Order", "Plan", "PolicyBase",
    "Preempt", "Rank", "RankedPolicy", "Reason", "Reshare", "Resize", "Rule", "RuleName", "Share", "Start", "State",
    "Table", "Token", "View", "Wait", "WakeAt", "option", "plan_by_rank", "plan_in_order", "unless",
    "when",
]  # fmt: skip
