"""The text of a policy to begin with, for `dally policy new`."""

from __future__ import annotations

import keyword

from dally.core.errors import UserError

_TEXT = '''"""{title}: say here in a sentence who goes first, and why."""

from dataclasses import dataclass

from dally.policies.writing import ActiveJob, Memory, Plan, Rank, RankedPolicy, RuleName, View, option, plan_by_rank


class {name}(RankedPolicy):
    """Least attained GPU time first."""

    title = "{title}"
    source = "ours"  # the paper, where there is one
    preempts = True  # whether running jobs may lose their GPUs to others; then they are ranked too
    # What it uses of what it is told: nothing. With view.estimates, say so; it is compared with those told the same:
    # from dally.policies.writing import DURATIONS; uses = frozenset({{DURATIONS}})

    @dataclass(frozen=True, slots=True)
    class Options:  # `{title}.py[quantum=10m]` on the command line
        quantum: float = option(360.0, "shortest time between getting GPUs and losing them", unit="s")
        placement: RuleName = option("consolidated", "where a gang goes")

    def rank(self, view: View, memory: Memory, job: ActiveJob, now: float) -> Rank:
        """Smaller goes first. Asked when the job enters the queue, starts or changes speed, not at every event: what
        grows while nothing happens is a slope, base + slope × now, the same for all jobs of one demand."""
        served = job.attained_at(now)  # GPU-seconds so far
        if job.placement is not None:  # it runs, and is served by so many GPU-seconds a second
            return Rank(served - job.gpus * now, float(job.gpus))
        return Rank(served)

    def plan(self, view: View, memory: Memory, now: float) -> Plan:
        """Actions, and a reason for every demand that waits: plan_by_rank gives both. Nothing else may be changed."""
        return plan_by_rank(view, now, self.place, preempt=True, lease=self.options.quantum or None)
'''


def starting_text(title: str) -> str:
    """A policy that runs, and keeps what every policy must."""
    name = "".join(part.capitalize() for part in title.replace("-", "_").split("_"))
    if not title.isascii() or not name.isidentifier() or keyword.iskeyword(name):
        raise UserError(f"{title!r} is no name for a policy: letters, digits, - and _, and not a digit first")
    return _TEXT.format(title=title, name=name)
