"""A history replayed under a policy: what became of each measured job, in the same figures as the record has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dally.core.errors import PlanError, RunError, UserError
from dally.core.records import dataclass
from dally.experiments.twin.history import History, Recorded
from dally.experiments.twin.kept import Slot, current_shelf
from dally.report.columns import Floats
from dally.simulator.experiment import Experiment
from dally.simulator.pool import Report
from dally.simulator.run import Run
from dally.simulator.scenario import Scenario
from dally.simulator.sweep import Failure, run_each


@dataclass(frozen=True, slots=True)
class Lives:
    """Waits and completion times of jobs, in seconds; NaN of who did not come to an end."""

    wait: Floats
    jct: Floats

    def of(self, chosen: np.ndarray) -> Lives:
        return Lives(self.wait[chosen], self.jct[chosen])

    @property
    def averages(self) -> tuple[float, float]:
        return float(np.nanmean(self.wait)), float(np.nanmean(self.jct))


@dataclass(frozen=True, slots=True)
class Replay:
    """One policy's run of the history."""

    policy: str
    lives: Lives  # of the measured jobs, in the order of the record's
    makespan: float  # from the begin of the record to the last end
    told: str
    rejected: int  # of all jobs: the cluster, as it is described, can never hold them
    unfinished: int  # of the measured jobs, for whatever reason
    notes: tuple[str, ...] = ()
    busy: float | None = None  # GPUs held, of all there are, in the measured window


def recorded_lives(jobs: Sequence[Recorded]) -> Lives:
    return Lives(np.array([each.wait for each in jobs], dtype=np.float64),
                 np.array([each.jct for each in jobs], dtype=np.float64))  # fmt: skip


def replays(history: History, scenario: Scenario, policies: Sequence[str], jobs: Sequence[Recorded], *,
            until: float = float("inf"), workers: int | None = None,
            report: Report | None = None) -> tuple[list[Replay], list[Failure]]:  # fmt: skip
    """The history under each policy, with the figures of `jobs`. `scenario`: everything but trace and policy; `until`:
    without jobs submitted later."""
    experiment = scenario.having(trace=history.replayed(until)).prepare()
    return run_replays(experiment, policies, history, jobs, workers=workers, report=report)


def run_replays(experiment: Experiment, policies: Sequence[str], history: History, jobs: Sequence[Recorded], *,
                workers: int | None = None,
                report: Report | None = None) -> tuple[list[Replay], list[Failure]]:  # fmt: skip
    """The same, of an experiment that is made already."""
    shelf = current_shelf()
    slots = [None] * len(policies) if shelf is None else shelf.turn(list(policies))
    there = {number: replay for number, slot in enumerate(slots) if slot is not None
             and (replay := slot.find(len(jobs))) is not None}  # fmt: skip
    left = [number for number in range(len(policies)) if number not in there]
    keep = [None if slot is None else partial(_keep, slot, history, jobs) for slot in slots]
    found = run_each(experiment, [policies[number] for number in left], workers=workers, report=report,
                     keep=[keep[number] for number in left]) if left else []  # fmt: skip
    if len(found) < len(left) or any(isinstance(each, Run) and not each.complete for each in found):
        raise KeyboardInterrupt
    if shelf is not None:
        shelf.found += [policies[number] for number in sorted(there)]
    made = there | {number: _replay(each, history, jobs) for number, each in zip(left, found, strict=True)
                    if isinstance(each, Run)}  # fmt: skip
    return [made[number] for number in sorted(made)], [each for each in found if isinstance(each, Failure)]


def _keep(slot: Slot, history: History, jobs: Sequence[Recorded], run: Run) -> None:
    slot.put(_replay(run, history, jobs))


def replay(history: History, scenario: Scenario, policy: str, jobs: Sequence[Recorded], *,
           report: Report | None = None) -> Replay:  # fmt: skip
    found, failed = replays(history, scenario, [policy], jobs, workers=1, report=report)
    if failed:
        error: UserError | PlanError | RunError = failed[0].error
        raise error
    return found[0]


def _replay(run: Run, history: History, jobs: Sequence[Recorded]) -> Replay:
    from dally.simulator.window import busy_share

    rows = {row.job_id: row for row in run.ledger.rows}
    wait, jct = np.full(len(jobs), np.nan), np.full(len(jobs), np.nan)
    for index, each in enumerate(jobs):
        row = rows.get(each.job.id)
        if row is not None and row.end is not None and row.outcome == "finished":
            # who waits for other jobs came when these had ended here, which is not when they had in the record
            jct[index] = row.end - (each.job.submit_time if each.job.after is None else row.submit)
            wait[index] = max(0.0, jct[index] - row.running)
    last = run.ledger.last_end if run.ledger.last_end is not None else history.begin
    return Replay(run.policy, Lives(wait, jct), last - history.begin, run.told,
                  sum(row.outcome == "rejected" for row in run.ledger.rows), int(np.isnan(jct).sum()),
                  run.notes, busy_share(run.ledger, history.window))  # fmt: skip
