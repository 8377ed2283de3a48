"""What ranked policies share: an order, a placement rule, and plans made from both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from dally.core.active import ActiveJob
from dally.core.plan import Plan
from dally.core.policy import PolicyBase, View
from dally.core.ranking import Rank
from dally.policies.options import written
from dally.policies.placing import RULES, Rule


class RankedPolicy(PolicyBase, ABC):
    """A policy that is an order of jobs and a placement rule. Subclasses say `rank` and `plan`."""

    title: ClassVar[str]  # the name it is registered under
    source: ClassVar[str] = "ours"
    Options: ClassVar[type]

    def __init__(self, options: Any) -> None:
        self.options = options
        self.place: Rule = RULES[options.placement]
        if getattr(options, "preempt", "free") == "never":
            self.preempts = False  # nobody is ranked as somebody who could lose GPUs
        self.name = written(self.title, options)

    @abstractmethod
    def rank(self, view: View, memory: Any, job: ActiveJob, now: float) -> Rank: ...

    @abstractmethod
    def plan(self, view: View, memory: Any, now: float) -> Plan: ...
