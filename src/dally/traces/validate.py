"""Validating a trace: every problem found in a file, with its line where the format has lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dally.core.records import dataclass
from dally.traces.load import find_reader
from dally.traces.readers.dally_trace import parse
from dally.traces.source import open_source
from dally.traces.trace import Problem, Trace


@dataclass(frozen=True, slots=True)
class Validation:
    """What was found. `ok` when no row had to be dropped; repairs are reported but do no harm."""

    format: str
    trace: Trace
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not any(problem.dropped for problem in self.problems)

    def counts(self) -> list[tuple[str, str, int]]:
        """(what was done, reason, rows), most frequent first."""
        found = Counter((problem.dropped, problem.reason) for problem in self.problems)
        return [("dropped" if dropped else "repaired", reason, n) for (dropped, reason), n in found.most_common()]

    def sentences(self) -> list[str]:
        """The problems, numbered, one sentence each."""
        return [f"{index}. {sentence(problem)}" for index, problem in enumerate(self.problems, start=1)]


def sentence(problem: Problem) -> str:
    """One problem for people: where, what, and what was done about it."""
    where = [f"line {problem.line}"] if problem.line is not None else []
    where += [f"job {problem.job!r}"] if problem.job is not None else []
    prefix = f"{', '.join(where)}: " if where else ""
    return f"{prefix}{problem.reason} ({'dropped' if problem.dropped else 'kept'})"


def validate_trace(path: str | Path, format: str | None = None) -> Validation:
    """Read the file and report every row that had to be dropped or changed; what is no trace raises `UserError`."""
    source = open_source(path)
    reader = find_reader(source, format)
    if reader.name == "dally":
        trace, problems = parse(source)
    else:
        trace = reader.read(source)
        problems = trace.problems
    ordered = sorted(problems, key=lambda problem: problem.line or 0)  # stable: found order without lines
    return Validation(reader.title, trace, tuple(ordered))
