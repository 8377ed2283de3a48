"""Several policies on one experiment, side by side on the cores there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from dally.core.errors import PlanError, RunError, UserError
from dally.core.policy import Policy
from dally.core.records import dataclass
from dally.policies.options import PolicyClass
from dally.simulator.experiment import Experiment, as_policy
from dally.simulator.pool import Report, Sign, StoppedError, Task, portable, run_tasks
from dally.simulator.run import Run
from dally.simulator.stopping import asked, heeded

Kept = Callable[[Run], None]  # told of a run that has come to its end, in the process that ran it
AnyPolicy = str | Policy | PolicyClass
__all__ = ["AnyPolicy", "Failure", "Report", "run_all", "run_each"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A policy that could not be run to its end, and why."""

    policy: str
    error: UserError | PlanError | RunError


def run_all(experiment: Experiment, policies: Sequence[AnyPolicy], *, journals: Sequence[str | None] | None = None,
            workers: int | None = None, report: Report | None = None) -> list[Run]:  # fmt: skip
    """Run every policy; the result is in the order asked, whatever order they finish in. The first failure is raised
    when the others are done."""
    results = run_each(experiment, policies, journals=journals, workers=workers, report=report)
    for result in results:
        if isinstance(result, Failure):
            raise result.error
    return [result for result in results if isinstance(result, Run)]


def run_each(experiment: Experiment, policies: Sequence[AnyPolicy], *, journals: Sequence[str | None] | None = None,
             workers: int | None = None, report: Report | None = None,
             keep: Sequence[Kept | None] | None = None) -> list[Run | Failure]:  # fmt: skip
    """Run every policy; one that fails costs the others nothing. In the order asked, without those that Ctrl-C left
    with nothing. Ctrl-C reaches the workers too: each stops where it is and hands over what it has. `keep`: who is told
    of each run as soon as it has come to its end."""
    files = list(journals or [None] * len(policies))
    keepers = list(keep or [None] * len(policies))
    labels = [_label(policy) for policy in policies]
    workers = min(len(policies), workers or len(os.sched_getaffinity(0)))
    if workers > 1 and all(portable(policy) for policy in policies) and portable(experiment.scenario):
        tasks = [Task(label, partial(_run, experiment, policy, file, keeper))
                 for label, policy, file, keeper in zip(labels, policies, files, keepers, strict=True)]  # fmt: skip
        found = dict(run_tasks(tasks, workers, report))
    else:
        found = {}
        with heeded():
            for index, (policy, file, keeper) in enumerate(zip(policies, files, keepers, strict=True)):
                if asked():
                    break
                try:
                    found[index] = _run(experiment, policy, file, keeper, _signs(labels[index], report))
                except (UserError, PlanError, RunError) as error:
                    found[index] = error
    results: list[Run | Failure] = []
    for index in sorted(found):
        result = found[index]
        if isinstance(result, Run):
            results.append(result)
        elif not isinstance(result, StoppedError):
            results.append(Failure(labels[index], _named(result, labels[index])))
    return results


def _label(policy: AnyPolicy) -> str:
    """Its name; of one that cannot be made, which is told when it is run, the text."""
    try:
        return as_policy(policy).name
    except UserError:
        return str(policy)


def _named(error: UserError | PlanError | RunError, label: str) -> UserError | PlanError | RunError:
    """A worker that could not even begin does not know whom it was to run."""
    return RunError(label, error.what, error.details) if isinstance(error, RunError) and error.policy == "?" else error


def _run(experiment: Experiment, policy: AnyPolicy, file: str | None, keep: Kept | None, sign: Sign) -> Run:
    run = experiment.run(policy, journal=file, progress=sign)
    if keep is not None and run.complete:
        keep(run)
    return run


def _signs(label: str, report: Report | None) -> Sign:
    def sign(now: float, ended: int, jobs: int) -> bool:
        if report is not None:
            report(label, now, ended, jobs)
        return True

    return sign
