"""What every form of Tiresias but the released one remembers of its jobs beyond their order: where they waited,
on how many machines they ran, what their ends taught about placement and about total GPU time."""

from __future__ import annotations

from dally.core import events as ev
from dally.core.active import ActiveJob
from dally.core.plan import Plan, Start
from dally.core.policy import View
from dally.core.ranking import Rank
from dally.core.states import State
from dally.policies.greedy import plan_by_rank
from dally.policies.placing import Rule
from dally.policies.tiresias.gittins import Distribution
from dally.policies.tiresias.locality import Lanes, plan_with_locality
from dally.policies.tiresias.profile import Packing


class Placing:
    """Where gangs go: by one rule for all, or by a decision per job that is learned from what they show."""

    def __init__(self, rule: Rule | None, packing: Packing | None) -> None:
        assert (rule is None) != (packing is None)
        self.rule = rule
        self.lanes = None if packing is None else Lanes(packing)
        self._machines: dict[str, int] = {}  # running jobs by the machines they were put on

    def ranked(self, job: ActiveJob, rank: Rank) -> Rank:
        """Take note of a rank that is about to be given."""
        if self.lanes is not None:
            if job.state is State.WAITING:
                self._left(job)
                self.lanes.put(job, rank)
            elif job.state is State.RUNNING:
                self.lanes.drop(job.id)
        return rank

    def refresh(self, view: View) -> bool:
        """Learn from those who ended. True where waiting jobs are to be sorted into other lanes."""
        if self.lanes is None:
            return False
        for event in view.news:
            if isinstance(event, (ev.Finished, ev.Failed, ev.Cancelled)):
                self._left(view.job(event.job))
                self.lanes.drop(event.job)
                self.lanes.unexplained.pop(event.job, None)
        changed, self._changed = self._changed, False
        return changed

    _changed = False

    def _left(self, job: ActiveJob) -> None:
        machines = self._machines.pop(job.id, None)
        if machines is not None and self.lanes is not None and job.step_time > 0:
            self._changed |= self.lanes.packing.observe(job.job, machines, job.exposed)

    def plan(self, view: View, now: float, lease: float | None = None) -> Plan:
        if self.lanes is None:
            assert self.rule is not None
            return plan_by_rank(view, now, self.rule, preempt=True, lease=lease)
        plan = plan_with_locality(view, now, self.lanes, lease)
        for action in plan:
            if isinstance(action, Start):
                self._machines[action.job] = len(action.placement.slices)
        return plan


class Service:
    """The distribution of total GPU time: given once and for all, or learned from jobs as they end."""

    def __init__(self, samples: list[float] | None) -> None:
        self.known = Distribution(samples or ())
        self.learns = samples is None

    def refresh(self, view: View) -> bool:
        """True where the index of every job is another one from now on."""
        if not self.learns:
            return False
        grown = False
        for event in view.news:
            if isinstance(event, (ev.Finished, ev.Failed)):
                job = view.job(event.job)
                if job.attained > 0:
                    grown |= self.known.learn(job.attained)
        if grown:
            self.known.fit()
        return grown
