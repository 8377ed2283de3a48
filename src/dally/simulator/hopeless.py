"""Runs that would never end, or not in any time worth waiting for, refused in one sentence before they begin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dally.core.errors import UserError
from dally.core.topology import Topology
from dally.core.units import show_time
from dally.simulator.faults import StartRules
from dally.simulator.workload import Workload

if TYPE_CHECKING:
    from dally.simulator.experiment import FaultRules

LONGEST = 1e11  # seconds, three thousand years: no trace is of that, and sums of such times lose their seconds
MOST_GPUS = 10**9  # of a job
MOST_FAILURES = 1e6  # of jobs, expected in all: hours of simulation
MOST_OUTAGES = 1e7  # of machines
_LARGEST = 700.0  # exponent of what a float can hold


def refuse_hopeless(workload: Workload, topology: Topology, faults: FaultRules, starts: StartRules) -> None:
    """Times that are none, and faults under which jobs get nowhere."""
    trace = workload.trace
    for job in trace.jobs:
        if not abs(job.submit_time) <= LONGEST:
            raise UserError(f"trace {trace.name}, job {job.id}: it is submitted at {job.submit_time:.3g} s, thousands "
                            "of years from its origin")  # fmt: skip
        if job.gpus > MOST_GPUS:
            raise UserError(f"trace {trace.name}, job {job.id}: it asks for more than a billion GPUs")
    for name, seconds in workload.best_run_time.items():
        if not seconds <= LONGEST:
            raise UserError(f"trace {trace.name}, job {name}: it would run for {seconds:.3g} s at its best placement, "
                            "longer than three thousand years")  # fmt: skip
    refused = len(trace.jobs) * (1.0 / (1.0 - starts.failures) - 1.0)
    if refused > MOST_FAILURES:
        raise UserError(f"--start-failures {starts.failures:g}: about {refused:.2g} starts would be refused in all, "
                        "more than can be simulated")  # fmt: skip
    if faults.mtbf is None and faults.job_mtbf is None:
        return
    largest = max(machine.gpus for machine in topology.machines)
    longest, failures = 0.0, 0.0
    for job in trace.jobs:
        takes = workload.best_run_time.get(job.id)
        if takes is not None:
            longest = max(longest, job.submit_time + takes)
            failures += _failures(takes, math.ceil(job.gpus / largest), faults)
    given = " and ".join(f"--{name.replace('_', '-')} {show_time(value)}" for name in ("mtbf", "job_mtbf")
                         if (value := getattr(faults, name)) is not None)  # fmt: skip
    if failures > MOST_FAILURES:
        every = faults.checkpoint_interval
        saved = f"checkpoints every {show_time(every)}" if every else "no work lost"
        raise UserError(f"{given}, with {saved}: jobs would fail about {failures:.2g} times in all, more than can be "
                        "simulated; raise the mean times, lower --retries or --checkpoint-interval")  # fmt: skip
    if faults.mtbf is not None:
        outages = len(topology.machines) * longest / (faults.mtbf + faults.mttr)
        if outages > MOST_OUTAGES:
            raise UserError(f"--mtbf {show_time(faults.mtbf)} and --mttr {show_time(faults.mttr)}: machines would fail "
                            f"about {outages:.2g} times while the trace runs, more than can be simulated")  # fmt: skip


def _failures(seconds: float, machines: int, faults: FaultRules) -> float:
    """Attempts that a job is expected to lose. Failures come by chance at a rate r; between two checkpoints, L seconds
    apart, e^(rL) attempts are needed. Crashes of its own end it after so many."""
    own = 1.0 / faults.job_mtbf if faults.job_mtbf is not None else 0.0
    rate = own + (machines / faults.mtbf if faults.mtbf is not None else 0.0)
    if faults.checkpoint_interval == 0:
        needed = rate * seconds
    else:
        between = min(faults.checkpoint_interval, seconds)
        needed = seconds / between * math.expm1(min(_LARGEST, rate * between)) if between > 0 else 0.0
    return min(needed, (faults.retries + 1) * rate / own) if own > 0 else needed
