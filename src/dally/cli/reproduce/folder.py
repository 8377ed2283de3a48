"""What every reproduction does with its runs: measured against their bound, pages, and a record of how it was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dally.cli.given import given

if TYPE_CHECKING:
    from dally.experiments.output import Output
    from dally.report.metrics import Summary
    from dally.simulator.experiment import Experiment
    from dally.simulator.run import Run

_FILES = ("traces", "trace", "layers", "throughputs")  # options that name one


class Reproduction:
    """One `dally reproduce PAPER`, from its options to its end.

    Made inside the command, whose options it reads: they are the record that makes the folder again.
    """

    def __init__(self, out: Path | None) -> None:
        context = click.get_current_context()
        self.out: Path | None = None
        self._paper = str(context.info_name)
        self._arguments, self._files = given(context, _FILES)
        self._experiments: list[dict[str, Any]] = []
        self._pages: list[str] = []
        self._alarms: list[str] = []
        self._output: Output | None = None
        if out is not None:
            from dally.experiments.output import Output

            claim = Output.claimed(out, self._record(), force=bool(context.params.get("force")))
            self._output = context.with_resource(claim)
            self.out = self._output.part  # beside the folder until all pages are there

    def measured(self, name: str, experiment: Experiment, runs: Sequence[Run]) -> list[Summary]:
        """The figures of runs that are compared, against one bound; whoever is below it is remembered."""
        from dally.report.alarm import below_bound
        from dally.report.bound import bounds_of
        from dally.report.metrics import summarise

        topology = experiment.topology
        found = [summarise(run, topology, bound) for run, bound in zip(runs, bounds_of(runs, topology), strict=True)]
        found = [replace(each, alarm=below_bound(run, each)) for run, each in zip(runs, found, strict=True)]
        self.ran(name, experiment, found)
        return found

    def ran(self, name: str, experiment: Experiment, summaries: Sequence[Summary]) -> None:
        """Write down what was run, where somebody else measured it."""
        self._alarms += [f"{name}: {summary.alarm}" for summary in summaries if summary.alarm]
        if self.out is None:
            return
        from dally.simulator.digests import trace_digest

        trace = experiment.trace
        self._experiments.append({
            "name": name, "trace": trace.name, "jobs": len(trace), "trace_digest": trace_digest(trace),
            "gpus": experiment.topology.gpus, "network": experiment.network, "seed": experiment.seed,
            "policies": [summary.policy for summary in summaries],
        })  # fmt: skip

    def page(self, name: str) -> Path:
        """Where a page goes; one that is written again is the same page."""
        assert self.out is not None
        if name not in self._pages:
            self._pages.append(name)
        return self.out / name

    def report(self, name: str, title: str, experiment: Experiment, runs: Sequence[Run], summaries: Sequence[Summary],
               notes: Sequence[str]) -> None:  # fmt: skip
        from dally.report.html import ReportRun, write_report

        if self.out is None:
            return
        parts = [ReportRun(run.policy, summary, run.ledger, experiment.topology)
                 for run, summary in zip(runs, summaries, strict=True)]  # fmt: skip
        write_report(parts, self.page(name), title=title, baseline=parts[0].name, notes=[*notes, *self.made_by()])

    def made_by(self) -> list[str]:
        """How a page was made, for its notes."""
        from dally.experiments.folder import made_again

        return made_again(self._record())

    def _record(self) -> dict[str, Any]:
        from dally.simulator.digests import code_digest
        from dally.version import __version__

        return {"dally": __version__, "code": code_digest(), "reproduce": self._paper, "arguments": self._arguments,
                "files": self._files, "experiments": self._experiments, "pages": self._pages,
                "folder": str(Path.cwd())}  # fmt: skip

    @property
    def alarms(self) -> list[str]:
        return list(self._alarms)

    def end(self) -> None:
        """The record beside the pages, and exit code 3 where a run was below its bound."""
        from dally.cli.ending import end
        from dally.experiments.folder import write_json
        from dally.experiments.provenance import PROVENANCE

        if self.out is not None:
            write_json(self._record(), self.out / PROVENANCE)
            assert self._output is not None
            self._output.swap_in()
        end(self._alarms)


def check_all_ran(runs: Sequence[Run], wanted: int) -> None:
    if len(runs) < wanted or not all(run.complete for run in runs):
        raise KeyboardInterrupt
