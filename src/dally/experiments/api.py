"""The functions of `import dally`: what the command line does, with frames for results and classes for policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dally.core.errors import UserError
from dally.experiments.results import Comparison, Result, run_policies
from dally.simulator.pool import Report
from dally.simulator.scenario import Scenario
from dally.simulator.sweep import AnyPolicy

if TYPE_CHECKING:
    from dally.experiments.rerun import Rerun
    from dally.experiments.sweeps.results import SweepResult


def simulate(policy: AnyPolicy, *, out: str | Path | None = None, force: bool = False,
             scenario: Scenario | None = None, report: Report | None = None, **fields: Any) -> Result:  # fmt: skip
    """One policy on one scenario. `fields` are those of `Scenario`: trace, cluster, load, seed, …

    `policy`: text (`"srtf[gpu_time=true]"`), a class, or an instance. `out`: a folder for what the command line
    writes with `--out`; `force`: over what another run left there. A failure is raised.
    """
    made = _run(_scenario(scenario, fields), [policy], out, force, many=False, workers=1, report=report)
    if made.failures:
        raise made.failures[0].error
    return made.results[0]


def compare(policies: Sequence[AnyPolicy] | str, *, out: str | Path | None = None, force: bool = False,
            scenario: Scenario | None = None, workers: int | None = None, report: Report | None = None,
            **fields: Any) -> Comparison:  # fmt: skip
    """Several policies on one scenario, side by side on the cores there are; the first is the baseline.

    Policies that fail are in `failures` with the reason; the others keep their results. A class that lives in a
    script or a notebook alone cannot be handed to another process: then all run here, one after the other.
    """
    from dally.policies.options import split_policies

    named: list[AnyPolicy] = list(split_policies(policies)) if isinstance(policies, str) else list(policies)
    return _run(_scenario(scenario, fields), named, out, force, many=True, workers=workers, report=report)


def _run(scenario: Scenario, policies: Sequence[AnyPolicy], out: str | Path | None, force: bool, *, many: bool,
         workers: int | None, report: Report | None) -> Comparison:  # fmt: skip
    """As the command does it: what is interrupted is given back as far as it got, and is no folder of results yet."""
    from dally.experiments.folder import result_folder, write_folder

    folder = None if out is None else Path(out)
    with result_folder(folder, scenario, policies, many=many, force=force) as output:
        part = None if output is None else output.part
        made = run_policies(scenario, policies, out=part, many=many, workers=workers, report=report, resumable=True)
        if made.interrupted and not made.results:
            raise KeyboardInterrupt
        if output is not None and (many or not made.failures):
            write_folder(made.experiment, made.results, output.part, many=many, failures=made.failures,
                         policies=policies)  # fmt: skip
            if not made.interrupted:
                output.swap_in()
        return made


def sweep(spec: str | Path | Mapping[str, Any], *, out: str | Path, workers: int | None = None, on: str | None = None,
          quiet: bool = True, force: bool = False) -> SweepResult:  # fmt: skip
    """Policies × traces × clusters × loads × seeds × whatever else (docs/sweep.md). Cells that are finished in `out`
    are not run again. `force`: `out` may hold the table of another sweep, or another run's results."""
    from dally.experiments.sweeps.running import run_sweep
    from dally.experiments.sweeps.spec import SweepSpec

    read = SweepSpec.of(spec) if isinstance(spec, Mapping) else SweepSpec.read(spec)
    return run_sweep(read, Path(out), workers=workers, on=on, quiet=quiet, force=force)


def rerun(folder: str | Path, *, out: str | Path | None = None) -> Rerun:
    """Make a folder of results again and compare the two byte for byte."""
    from dally.experiments.rerun import run_again

    return run_again(Path(folder), None if out is None else Path(out))


def _scenario(scenario: Scenario | None, fields: Mapping[str, Any]) -> Scenario:
    if scenario is None:
        return Scenario.of(fields)
    if not isinstance(scenario, Scenario):
        raise UserError("scenario: give a dally.Scenario; one in a file is read with dally.Scenario.read")
    return scenario.having(**fields) if fields else scenario
