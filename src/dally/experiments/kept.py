"""What each policy found, on disk as soon as it has come to its end: a comparison that was stopped goes on from it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from dally.core.records import dataclass
from dally.experiments.output import FINISHED
from dally.simulator.experiment import Experiment
from dally.simulator.run import Run
from dally.simulator.sweep import AnyPolicy


@dataclass(frozen=True, slots=True)
class Keeper:
    """Called in the process that ran the policy: nothing that happens to another one can lose it. Its jobs are there
    to be read, the whole run for a command that goes on."""

    folder: Path  # of the policy's files
    left: Path  # of what a run that goes on reads

    def __call__(self, run: Run) -> None:
        from dally.report.metrics import write_jobs_csv

        write_jobs_csv(run, run.ledger.topology, self.folder / "jobs.csv")
        self.left.parent.mkdir(exist_ok=True)
        part = self.left.with_name(f"{self.left.name}.{os.getpid()}.new")
        # dropped: what a policy remembered is for nobody, and may hold what cannot be written
        memory, run.memory = run.memory, None
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                pickle.dump(run, file, protocol=pickle.HIGHEST_PROTOCOL)
        finally:
            run.memory = memory
        part.replace(self.left)

    def find(self, experiment: Experiment) -> Run | None:
        """The finished run; None where there is none that can be used. Read only where this user has written it: it is
        in Python's own form, which could do anything."""
        try:
            if self.left.stat().st_uid != os.geteuid() or not (self.folder / "journal.jsonl.gz").exists():
                return None
            with self.left.open("rb") as file:
                found = pickle.load(file)
        except Exception:  # damaged: it is run again
            return None
        return found if isinstance(found, Run) and found.complete else None


def keeper(part: Path, folder: Path, policy: AnyPolicy) -> Keeper | None:
    """None for a policy that is a class in Python: nobody can tell whether it is still the same."""
    from dally.experiments.naming import slug
    from dally.experiments.provenance import policy_record
    from dally.simulator.digests import text_digest

    if not isinstance(policy, str):
        return None
    return Keeper(folder, part / FINISHED / f"{slug(policy)[:80]}-{text_digest(policy_record(policy))[:16]}.run")
