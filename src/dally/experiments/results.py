"""What an experiment gives back: frames of jobs and figures, and the folder they are written to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dally.core.records import dataclass
from dally.experiments.measuring import Measured, measure_all, notes_of
from dally.experiments.naming import folders_of, unique_names
from dally.report.metrics import job_rows
from dally.simulator.experiment import Experiment
from dally.simulator.pool import Report
from dally.simulator.run import Run
from dally.simulator.scenario import Scenario
from dally.simulator.stopping import asked, heeded
from dally.simulator.sweep import AnyPolicy, Failure, run_each

if TYPE_CHECKING:
    import polars as pl

    from dally.experiments.kept import Keeper

JOURNAL = "journal.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Result:
    """One policy's run of a scenario."""

    measured: Measured
    experiment: Experiment

    @property
    def policy(self) -> str:
        return self.measured.policy

    @property
    def figures(self) -> dict[str, Any]:
        """The figures by name (docs/metrics.md); times in seconds."""
        return self.measured.figures()

    @property
    def notes(self) -> list[str]:
        return notes_of(self.experiment, [self.measured])

    @property
    def jobs(self) -> pl.DataFrame:
        """One row per job, in order of submission: the columns of `jobs.csv`."""
        import polars as pl

        head, *rows = job_rows(self.measured.run, self.experiment.topology)
        return pl.DataFrame(rows, schema=list(head), orient="row", infer_schema_length=None)

    @property
    def summary(self) -> pl.DataFrame:
        """One row of figures; those in groups are named `lower_bound.avg_jct`."""
        return _frame([self])

    def to_pandas(self) -> Any:
        """The jobs as a pandas frame."""
        return to_pandas(self.jobs)

    def write(self, folder: str | Path) -> None:
        """`summary.json`, `jobs.csv`, `report.html` and how it was made, as the command line writes them."""
        from dally.experiments.folder import write_folder

        write_folder(self.experiment, [self], Path(folder), many=False)

    def _repr_html_(self) -> str:
        return _table_html([self])


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several policies on one scenario; those that failed are there with the reason."""

    results: tuple[Result, ...]
    failures: tuple[Failure, ...]
    experiment: Experiment
    interrupted: bool = False  # Ctrl-C came before the last one was done
    found: tuple[str, ...] = ()  # policies that an earlier run of the same had finished

    def __getitem__(self, policy: str) -> Result:
        for each in self.results:
            if each.policy == policy:
                return each
        raise KeyError(f"{policy!r} is not one of {', '.join(each.policy for each in self.results)}")

    @property
    def notes(self) -> list[str]:
        return notes_of(self.experiment, [each.measured for each in self.results])

    @property
    def summary(self) -> pl.DataFrame:
        """One row of figures per policy."""
        return _frame(self.results)

    @property
    def jobs(self) -> pl.DataFrame:
        """The jobs of every run, with the policy in the first column."""
        import polars as pl

        return pl.concat([each.jobs.insert_column(0, pl.lit(each.policy).alias("policy")) for each in self.results],
                         how="vertical_relaxed")  # fmt: skip

    def to_pandas(self) -> Any:
        """The figures as a pandas frame."""
        return to_pandas(self.summary)

    def write(self, folder: str | Path) -> None:
        from dally.experiments.folder import write_folder

        write_folder(self.experiment, self.results, Path(folder), many=True, failures=self.failures)

    def _repr_html_(self) -> str:
        return _table_html(self.results)


def run_policies(scenario: Scenario, policies: Sequence[AnyPolicy], *, out: Path | None, many: bool,
                 workers: int | None = None, report: Report | None = None, resumable: bool = False) -> Comparison:
    """The one way from a scenario to results: under the command line, the API and a re-run alike.

    With `out`, journals are written there as the runs go; `Comparison.write` adds the rest. `resumable`: policies that
    are finished there are read back and not run again, and each one that ends is kept for that.
    """
    names = unique_names(policies)
    experiment = scenario.prepare()
    folders = folders_of(out, names, many)
    keepers: list[Keeper | None] = [None] * len(policies)
    if resumable and out is not None:
        from dally.experiments.kept import keeper

        keepers = [None if folder is None else keeper(out, folder, policy)
                   for folder, policy in zip(folders, policies, strict=True)]  # fmt: skip
    there = {index: run for index, each in enumerate(keepers) if each is not None
             and (run := each.find(experiment)) is not None}  # fmt: skip
    left = [index for index in range(len(policies)) if index not in there]
    journals = [str(folder / JOURNAL) if folder else None for folder in folders]
    if out is not None and left:
        experiment.described()  # before it is handed to workers, each of whom would have to
    with heeded():
        done = run_each(experiment, [policies[index] for index in left], journals=[journals[index] for index in left],
                        workers=workers, report=report, keep=[keepers[index] for index in left]) if left else []
        interrupted = asked()
    found: list[Run | Failure] = sorted([*done, *there.values()], key=lambda each: names.index(each.policy))
    runs = measure_all([each for each in found if isinstance(each, Run)], experiment)
    results = tuple(Result(each, experiment) for each in runs)
    return Comparison(results, tuple(each for each in found if isinstance(each, Failure)), experiment, interrupted,
                      tuple(names[index] for index in there))  # fmt: skip


def flat(figures: dict[str, Any]) -> dict[str, Any]:
    """Groups of figures spread out: `lower_bound.avg_jct`."""
    made: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            made |= {f"{name}.{key}": inner for key, inner in flat(value).items()}
        else:
            made[name] = value
    return made


def _frame(results: Sequence[Result]) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame([flat(each.figures) for each in results], infer_schema_length=None)


def to_pandas(frame: pl.DataFrame) -> Any:
    from dally.core.errors import UserError

    try:
        import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise UserError("pandas is not installed; the same table is there as a polars frame") from None
    return pandas.DataFrame(frame.to_dict(as_series=False))


def _table_html(results: Sequence[Result]) -> str:
    from dally.report.groups import groups_of
    from dally.report.markup import table
    from dally.report.table import column_texts, columns_for

    summaries = [each.measured.summary for each in results]
    columns = columns_for(summaries)
    texts = [column_texts(column, summaries)[0] for column in columns]
    order = [row for group in groups_of(summaries) for row in group.members]
    rows = [[results[row].policy, summaries[row].told, *(column[row] for column in texts)] for row in order]
    return table(["policy", "told", *(column.title for column in columns)], rows)
