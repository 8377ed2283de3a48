"""The folder of results: figures, jobs, report, and how all of it was made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dally.experiments.assumed import assumed_text
from dally.experiments.measuring import Measured
from dally.experiments.naming import make_folder, slug, unique_names
from dally.experiments.output import Output
from dally.experiments.provenance import PROVENANCE, TRACE, command_of, inputs_of, policy_record, provenance
from dally.simulator.experiment import Experiment
from dally.simulator.scenario import Scenario
from dally.simulator.sweep import AnyPolicy, Failure
from dally.traces.trace import Trace

if TYPE_CHECKING:
    from dally.experiments.results import Result
    from dally.report.compared import ReportRun


def write_folder(experiment: Experiment, results: Sequence[Result], out: Path, *, many: bool,
                 failures: Sequence[Failure] = (), policies: Sequence[AnyPolicy] = ()) -> None:  # fmt: skip
    """Everything but the journals, which are written while the runs go."""
    from dally.report.html import write_report
    from dally.report.metrics import write_jobs_csv

    make_folder(out, out)
    runs = [each.measured for each in results]
    for each in runs:
        folder = out / slug(each.policy) if many else out
        make_folder(folder, out)
        write_jobs_csv(each.run, experiment.topology, folder / "jobs.csv")
    lasting, timing = [each.lasting() for each in runs], {each.policy: each.timing() for each in runs}
    if runs:
        write_json(lasting if many else lasting[0], out / "summary.json")
        write_json(timing, out / "timing.json")
    for failure in failures:
        details = getattr(failure.error, "details", "")
        (out / f"{slug(failure.policy)}.error.txt").write_text(f"{failure.error}\n\n{details}".rstrip() + "\n",
                                                               encoding="utf-8")  # fmt: skip
    named = list(policies) or [each.policy for each in runs] + [each.policy for each in failures]
    about = provenance(experiment, [policy_record(policy) for policy in named], many=many)
    write_json(about, out / PROVENANCE)
    scenario = experiment.scenario
    if scenario is not None and isinstance(scenario.trace, Trace):
        from dally.traces.own import write_trace

        write_trace(scenario.trace, out / TRACE)
    if runs:
        from dally.experiments.measuring import notes_of

        title = f"{experiment.trace.name} on {experiment.topology.name}"
        notes = [*notes_of(experiment, runs), *(str(each.error) for each in failures), *made_again(about)]
        write_report([report_run(each, experiment) for each in runs], out / "report.html", title=title,
                     baseline=runs[0].policy if many else None, notes=notes,
                     assumed=assumed_text(experiment))  # fmt: skip


def report_run(measured: Measured, experiment: Experiment) -> ReportRun:
    """The whole run for the pictures of the cluster; jobs that are not measured count as not finished."""
    from dally.report.html import ReportRun

    run = measured.run
    made = ReportRun(run.policy, measured.summary, run.ledger, experiment.topology)
    if run.window is not None:
        inside = run.window.holding(made.jobs.job_id, made.jobs.submit)
        made.jobs = replace(made.jobs, outcome=np.where(inside, made.jobs.outcome, -1))
    return made


def made_again(about: dict[str, Any]) -> list[str]:
    """How a page was made, in its notes."""
    trace = ""
    if "trace_digest" in about:  # of one trace
        trace = f", trace of {about['jobs']:,} jobs (sha256 {about['trace_digest'][:16]}…)"
    return [f"made by: {command_of(about)}",
            f"dally {about['dally']} (code {about['code'][:12]}){trace}; the whole configuration is in {PROVENANCE}, "
            "`dally rerun` makes it again"]  # fmt: skip


@contextmanager
def result_folder(out: Path | None, scenario: Scenario, policies: Sequence[AnyPolicy], *, many: bool,
                  force: bool = False) -> Iterator[Output | None]:  # fmt: skip
    """The folder `out` for the results of this scenario under these policies; None where none is wanted."""
    if out is None:
        yield None
        return
    unique_names(policies)
    about = inputs_of(scenario, [policy_record(policy) for policy in policies], many=many)
    with Output.claimed(out, about, force=force) as output:
        yield output


def write_json(content: Any, path: Path) -> None:
    """Whole or not at all."""
    part = path.with_name(path.name + ".new")
    part.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(path)
