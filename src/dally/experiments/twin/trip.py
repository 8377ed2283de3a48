"""The trip: history and cluster in; the back-test first, and then, measured by it, what would have been."""

from __future__ import annotations

from pathlib import Path

from dally.core.errors import PlanError, RunError, UserError
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.experiments.twin.backtest import BackTest, back_test
from dally.experiments.twin.explaining import explanations
from dally.experiments.twin.fitting import Fit, fit, is_long
from dally.experiments.twin.history import History
from dally.experiments.twin.limits import LimitChange
from dally.experiments.twin.replaying import replay
from dally.experiments.twin.site import Site
from dally.experiments.twin.verdict import CLOSE, Verdict, grade_of, judge
from dally.experiments.twin.whatif import WhatIf, fabrics_instead, limits_instead, policies_instead, racks_more
from dally.simulator.experiment import as_policy
from dally.simulator.pool import Report
from dally.simulator.scenario import Scenario
from dally.simulator.sweep import Failure

USUAL = ("fifo[backfill=easy]", "las", "dally")  # what-ifs where none are asked for
FIT = "fit"  # as the present policy: find out which it was, whatever is configured
NEARER = 0.9  # a fitted policy goes before the configured one where its misfit is below so much of the other's


@dataclass(frozen=True, slots=True)
class Twin:
    history: History
    topology: Topology
    scenario: Scenario
    how: str  # the present policy was come by
    fit: Fit | None
    test: BackTest
    verdict: Verdict
    explained: tuple[str, ...]
    what_ifs: tuple[WhatIf, ...]
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted beside history and cluster."""

    present: str | None = None  # the policy that was at work, where somebody says so
    conf: Path | None = None  # a slurm.conf
    policies: tuple[str, ...] = USUAL
    fabrics: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()  # of which there might be one more
    limits: tuple[LimitChange, ...] = ()


def make_twin(history: History, site: Site, scenario: Scenario, asked: Asked, *, workers: int | None = None,
              report: Report | None = None) -> Twin:  # fmt: skip
    """`scenario`: everything but trace and policy; its cluster is the site's, in memory."""
    topology = scenario.cluster
    assert isinstance(topology, Topology), "a twin's cluster is in memory: its partitions may be the record's"
    present = scenario.having(knowledge="auto")  # the scheduler that was at work knew time limits, whoever is asked now
    how, found, test = _present(history, present, asked, workers, report)
    what_ifs: list[WhatIf] = []
    failures: list[Failure] = []
    others = [each for each in asked.policies if each != test.policy]
    if others:
        made, failed = policies_instead(history, scenario, others, test, workers=workers, report=report)
        what_ifs, failures = what_ifs + made, failures + failed
    if asked.limits:
        made, failed = limits_instead(history, present, asked.limits, test.policy, test, workers=workers, report=report)
        what_ifs, failures = what_ifs + made, failures + failed
    if asked.racks:
        made, failed = racks_more(history, present, topology, asked.racks, test.policy, test, workers=workers,
                                  report=report)  # fmt: skip
        what_ifs, failures = what_ifs + made, failures + failed
    if asked.fabrics:
        made, failed = fabrics_instead(history, present, site, asked.fabrics, test.policy, test, workers=workers,
                                       report=report)  # fmt: skip
        what_ifs, failures = what_ifs + made, failures + failed
    return Twin(history, topology, scenario, how, found, test, judge(test),
                tuple(explanations(history, topology, test)), tuple(what_ifs), tuple(failures))  # fmt: skip


def _present(history: History, scenario: Scenario, asked: Asked, workers: int | None,
             report: Report | None) -> tuple[str, Fit | None, BackTest]:  # fmt: skip
    """How the present policy was come by, the fit where there was one, and the back-test. Jobs whose waits had a
    part in choosing the policy have none in the test; which of two jobs came first is read off the whole record."""
    jobs = history.measured
    if asked.present not in (None, FIT):
        return "named by whoever asked", None, back_test(history, replay(history, scenario, asked.present, jobs,
                                                                         report=report), jobs)  # fmt: skip
    if asked.conf is None or asked.present == FIT:
        found = fit(history, scenario, workers=workers, report=report)
        rest = found.rest
        why = "as asked" if asked.present == FIT else "no slurm.conf is given"
        return (f"{why}: {_read(found)}of {len(found.tried)} policies the one that is least off in the waits of "
                f"{found.fitted_on:,} jobs in a row, and tested on those of the other {len(rest):,}", found,
                back_test(history, replay(history, scenario, found.chosen, rest, report=report), rest))  # fmt: skip
    configured = as_policy(f"slurm[conf={asked.conf}]").name
    how = f"configured by {asked.conf}"
    test: BackTest | None = None
    if not is_long(jobs):  # of a long record a part tells first: two replays of all of it take minutes
        test = back_test(history, replay(history, scenario, configured, jobs, report=report), jobs)
        if grade_of(test) == CLOSE:
            return how, None, test
    try:
        found = fit(history, scenario, configured, workers=workers, report=report)
    except (UserError, PlanError, RunError):
        return how, None, test or back_test(history, replay(history, scenario, configured, jobs, report=report), jobs)
    mine = next((each.off for each in found.tried if each.policy == configured), float("inf"))
    rest = found.rest
    if found.chosen == configured or found.tried[0].off > NEARER * mine:
        if test is None:
            test = back_test(history, replay(history, scenario, configured, rest, report=report), rest)
        return f"{how}; nothing that was tried around it is much nearer to the record", found, test
    nearer = back_test(history, replay(history, scenario, found.chosen, rest, report=report), rest)
    said = f"; {found.read.said}" if found.read.said else ""
    return (f"{asked.conf} alone does not explain the record: on {found.fitted_on:,} of its jobs {found.chosen} is "
            f"nearer (misfit {found.tried[0].off:.2f} against {mine:.2f}), and is tested on the waits of the other "
            f"{len(rest):,}{said}",
            found, nearer)  # fmt: skip


def _read(found: Fit) -> str:
    return f"{found.read.said}; " if found.read.said else ""
