"""One cell, measured in this process: a run of a policy, a whole command, or one of the questions inside a run."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from speed.cells import Cell, Row

FIRST = 5000  # jobs of the run that warms a process: what it asks of the network, the next one remembers
PHILLY = "philly"  # the trace that a file of its own is given for


def measured(cell: Cell) -> Row:
    return {"run": _run, "command": _command, "live": _live, "contention": _contention, "network": _network, "lp": _lp}[
        cell["kind"]
    ](cell)


def _scenario(cell: Cell, jobs: int | None) -> Any:
    from dally.simulator.scenario import Scenario

    trace = cell["philly"] if cell["trace"] == PHILLY else cell["trace"]
    if trace is None:
        sys.exit("this cell needs --philly FILE")
    return Scenario.of(
        {
            "trace": trace,
            "cluster": cell["cluster"],
            "jobs": jobs,
            "load": cell.get("load"),
            "seed": cell["seed"],
            "network": cell.get("network"),
        }
    )


def _run(cell: Cell) -> Row:
    """CPU seconds of the simulation, and of what comes before it; stopped after `limit` of them."""
    if cell["warm"]:
        _scenario(cell, min(FIRST, cell.get("jobs") or FIRST)).prepare().run(cell["policy"])
    began = time.process_time()
    experiment = _scenario(cell, cell.get("jobs")).prepare()
    ready = time.process_time()
    ended = 0

    def go_on(now: float, done: int, jobs: int) -> bool:
        nonlocal ended
        ended = done
        return time.process_time() - ready < float(cell["limit"])

    run = experiment.run(cell["policy"], progress=go_on)
    whole = time.process_time() - ready
    from dally.report.columns import job_columns

    columns = job_columns(run.ledger)
    done = len(columns.job_id) if run.complete else ended
    waited = columns.queueing > 1e-6 * abs(columns.submit).clip(min=1.0)  # NaN of those that have not ended: False
    return {
        "gpus": experiment.topology.gpus,
        "done": done,
        "complete": run.complete,
        "cpu": run.cpu_seconds,
        "setup": ready - began + whole - run.cpu_seconds,
        "events": run.events,
        "queue": max(run.ledger.queue),
        "waited": float(waited.mean()),
        "preempted": int(columns.preemptions.sum()),
        "peak_mb": _peak(),
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _command(cell: Cell) -> Row:
    """All of `dally simulate`, from the shell: the smallest of five (of one where it takes long)."""
    words = [
        sys.executable,
        "-m",
        "dally.cli.main",
        "simulate",
        "-t",
        cell["trace"],
        "--jobs",
        str(cell["jobs"]),
        "--load",
        str(cell["load"]),
        "-c",
        cell["cluster"],
        "-p",
        cell["policy"],
        "-q",
    ]
    spent: list[float] = []
    walls: list[float] = []
    while not spent or (len(spent) < 5 and sum(walls) < 20.0):
        before, begin = os.times(), time.perf_counter()
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        walls.append(time.perf_counter() - begin)
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return {
        "cpu": min(spent),
        "wall": min(walls),
        "peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }


def _live(cell: Cell) -> Row:
    import live

    took = sorted(live.decisions(cell["policy"], cell["pending"], cell["cluster"], 200))
    return {"median_ms": statistics.median(took) * 1e3, "p99_ms": took[int(len(took) * 0.99)] * 1e3}


def _contention(cell: Cell) -> Row:
    import contention

    return contention.changes(cell["gangs"], near=0.9)


def _network(cell: Cell) -> Row:
    import steps

    return {name: seconds * 1e6 for name, seconds, _ in steps.timed(steps.dally_cluster())}


def _lp(cell: Cell) -> Row:
    import gavel_lp

    from dally.policies.gavel.allocation.max_min_fairness import max_min_fairness
    from dally.policies.gavel.allocation.solver import Solver

    jobs = gavel_lp.rows(cell["jobs"], None, seed=1)
    _, cpu, _ = gavel_lp.timed(
        lambda asked, solver: max_min_fairness(asked, solver=solver), gavel_lp.problem(jobs), Solver()
    )
    return {"cpu": cpu}
