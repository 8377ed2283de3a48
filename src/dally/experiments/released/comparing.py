"""Completion times of two programs side by side, job by job."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.simulator.run import Run

SAME = 1e-6  # seconds, and of a second of JCT: what is rounding


@dataclass(frozen=True, slots=True)
class Compared:
    """One policy under both programs."""

    theirs: str  # what it is called there
    ours: str
    jobs: int
    missing: int  # finished in one of the two only
    same: int  # with the same completion time
    within_a_second: int
    their_average: float
    our_average: float
    their_makespan: float
    our_makespan: float
    their_cpu: float = 0.0  # seconds of the whole program, its start included
    our_cpu: float = 0.0  # of the simulation alone

    @property
    def exact(self) -> bool:
        return self.same == self.jobs and not self.missing

    @property
    def average_error(self) -> float:
        return abs(self.our_average / self.their_average - 1.0) if self.their_average else 0.0


def compared(theirs: str, ours: str, their_jcts: Mapping[str, float], our_jcts: Mapping[str, float],
             submitted: Mapping[str, float], their_cpu: float = 0.0, our_cpu: float = 0.0) -> Compared:  # fmt: skip
    """JCTs by job id; `submitted`: when each job was, for the makespan."""
    both = [name for name in their_jcts if name in our_jcts]
    if not both:
        raise UserError(f"{theirs} and {ours} have no finished job in common")
    gaps = [abs(their_jcts[name] - our_jcts[name]) for name in both]
    same = sum(gap <= SAME * max(1.0, their_jcts[name]) for name, gap in zip(both, gaps, strict=True))
    first = min(submitted[name] for name in both)
    their_end, our_end = (max(submitted[name] + jcts[name] for name in both) - first for jcts in (their_jcts, our_jcts))
    return Compared(theirs, ours, len(both), len(set(their_jcts) ^ set(our_jcts)), same,
                    sum(gap <= 1.0 for gap in gaps), sum(their_jcts[name] for name in both) / len(both),
                    sum(our_jcts[name] for name in both) / len(both), their_end, our_end, their_cpu,
                    our_cpu)  # fmt: skip


def jcts(run: Run) -> dict[str, float]:
    return {row.job_id: row.jct for row in run.ledger.rows if row.jct is not None and row.outcome == "finished"}


class Ran(NamedTuple):
    """What a program printed, and the CPU seconds it took in all."""

    said: str
    cpu: float


def run_program(words: Sequence[str], *, cwd: Path, environment: Mapping[str, str], what: str, limit: float) -> Ran:
    """Run the authors' program; what it says where it fails is ours to hand on."""
    before = _cpu_of_children()
    try:
        done = subprocess.run(list(words), cwd=cwd, env=dict(environment), capture_output=True, text=True,
                              timeout=limit, check=False)  # fmt: skip
    except OSError as error:
        raise UserError(f"{words[0]} cannot be run: {error.strerror}; name a Python with --python") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{what} is not through after {limit:g} s; take fewer --jobs") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UserError(f"{what} failed: {last}")
    return Ran(done.stdout, _cpu_of_children() - before)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def their_file(repository: Path, name: str, where: str) -> Path:
    path = repository / name
    if not path.is_file():
        raise UserError(f"{repository} is not the repository {where}: it has no {name}")
    return path
