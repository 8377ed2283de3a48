"""What ranked policies share: an order, a placement rule, and plans made from both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from dally.core.active import ActiveJob
from dally.core.plan import Plan
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.policies.options import written
from dally.policies.placing import RULES, Rule


class RankedPolicy(ABC):
    """A policy that is an order of jobs and a placement rule. Subclasses say `rank` and `plan`."""

    title: ClassVar[str]  # the name it is registered under
    source: ClassVar[str] = "ours"
    preempts: ClassVar[bool] = False
    shares: ClassVar[bool] = False  # whether its plans put several jobs on the same GPUs
    Options: ClassVar[type]

    def __init__(self, options: Any) -> None:
        self.options = options
        self.place: Rule = RULES[options.placement]

    @property
    def name(self) -> str:
        return written(self.title, self.options)

    @abstractmethod
    def rank(self, view: View, job: ActiveJob, now: float) -> Rank: ...

    def refresh(self, view: View, now: float) -> Iterable[ActiveJob]:
        return ()

    @abstractmethod
    def plan(self, view: View, now: float) -> Plan: ...
