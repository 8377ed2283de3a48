"""The released Gavel simulator (stanford-futuredata/gavel), run on jobs drawn here, against our same objectives.

Their program needs a Python with numpy, scipy and cvxpy (by default the one that runs this). Its RPC layer, and modules
it imports for other purposes where they are not installed, are replaced by empty stand-ins. Nothing of theirs is
changed or kept. With another solver than theirs, or another version of it, ties between jobs are broken in another way.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dally.catalog.clusters import load_cluster
from dally.catalog.throughputs import read_throughputs
from dally.core.errors import UserError
from dally.experiments.released.comparing import Compared, compared, jcts, run_program, their_file
from dally.simulator.experiment import Experiment
from dally.traces import load_trace

REPOSITORY = "stanford-futuredata/gavel"
LIMIT = 3600.0  # seconds for one run of theirs
GPUS = (8, 16, 24)  # V100, P100, K80

# what they call it → the same objective here
POLICIES = {
    "fifo_perf": "gavel[objective=fifo,variant=released]",
    "min_total_duration_perf": "gavel[objective=makespan,variant=released]",
    "max_min_fairness_perf": "gavel[variant=released]",
    "max_min_fairness": "gavel[aware=false,variant=released]",
    "finish_time_fairness_perf": "gavel[objective=finish-time-fairness,variant=released]",
}

# Runs inside their folder `scheduler`, with their modules: what their own driver does, and the JCTs as JSON.
_DRIVER = """
import importlib, json, sys, types

def stands_in(name, **parts):
    module = types.ModuleType(name)
    module.__dict__.update(parts)
    sys.modules[name] = module
    return module

for name in ("matrix_completion", "psutil"):
    try:
        importlib.import_module(name)
    except ImportError:
        stands_in(name)
rpc = stands_in("runtime.rpc", scheduler_server=None, scheduler_client=None)
stands_in("runtime", rpc=rpc)
sys.path.insert(0, ".")
import scheduler, utils

trace, policy, throughputs, gpus, solver, out = sys.argv[1:]
if solver == "any":
    import cvxpy
    solver = next(name for name in ("ECOS", "CLARABEL", "SCS") if name in cvxpy.installed_solvers())
jobs, arrivals = utils.parse_trace(trace)
made = scheduler.Scheduler(utils.get_policy(policy, solver=solver, seed=0), throughputs_file=throughputs, simulate=True,
                           seed=0, time_per_iteration=360)
counts = dict(zip(("v100", "p100", "k80"), map(int, gpus.split(":"))))
made.simulate(counts, arrivals, jobs, num_gpus_per_server=dict.fromkeys(counts, 1))
with open(out, "w") as file:
    json.dump({"solver": solver, "jct": {str(job): time for job, time in made._job_completion_times.items()}}, file)
"""


_SLOWER = {"v100": (1.0, 1.0), "p100": (0.4, 0.8), "k80": (0.08, 0.3)}  # than a V100: from, to
CLUSTER = ",".join(f"{kind}={count}" for kind, count in zip(_SLOWER, GPUS, strict=True))


def draw(jobs: int, seed: int) -> tuple[str, str]:
    """Throughputs and a trace in their formats, all made up: eight types of jobs on gangs of 1, 2 and 4 GPUs, an hour
    of a V100's work on average, forty jobs an hour."""
    chance = random.Random(f"released gavel {seed}")
    names = [f"Type-{letter} (batch size 16)" for letter in "ABCDEFGH"]
    table: dict[str, dict[str, dict[str, float]]] = {kind: {} for kind in _SLOWER}
    steps: dict[str, float] = {}
    for name in names:
        steps[name] = chance.uniform(0.5, 20.0)
        for kind, (low, high) in _SLOWER.items():
            rate = steps[name] * chance.uniform(low, high)
            for gang in (1, 2, 4):
                table[kind][str((name, gang))] = {"null": rate * gang ** chance.uniform(0.7, 0.95)}
    lines, now = [], 0.0
    for _ in range(jobs):
        gang = chance.choices((1, 2, 4), (70, 20, 10))[0]
        name = chance.choice(names)
        total = max(1, round(table["v100"][str((name, gang))]["null"] * chance.uniform(0.2, 1.8) * 3600.0))
        lines.append("\t".join((name, "command", "folder", "--steps", "0", str(total), str(gang), "1", "-1.000000",
                                f"{now:.6f}")))  # fmt: skip
        now += chance.expovariate(40 / 3600.0)
    return json.dumps(table), "\n".join(lines) + "\n"


def write_input(folder: Path, jobs: int, seed: int) -> Experiment:
    """`throughputs.json` and `jobs.trace` there, and the experiment of ours with them."""
    table, trace = draw(jobs, seed)
    (folder / "throughputs.json").write_text(table, encoding="ascii")
    (folder / "jobs.trace").write_text(trace, encoding="ascii")
    return Experiment(load_trace(str(folder / "jobs.trace")), load_cluster(CLUSTER), "ideal", "0",
                      throughputs=read_throughputs(folder / "throughputs.json"))  # fmt: skip


def against(repository: Path, python: str | None, *, jobs: int, seed: int, policies: Sequence[str] = (),
            solver: str = "any") -> Iterator[tuple[Compared, str]]:  # fmt: skip
    """Both programs on the same jobs, on 8 V100, 16 P100 and 24 K80; with the solver theirs used."""
    unknown = [name for name in policies if name not in POLICIES]
    if unknown:
        raise UserError(f"{unknown[0]!r} is not one of {', '.join(POLICIES)}")
    their_file(repository, "scheduler/scheduler.py", REPOSITORY)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        experiment = write_input(folder, jobs, seed)
        (folder / "driver.py").write_text(_DRIVER, encoding="ascii")
        submitted = {job.id: job.submit_time for job in experiment.trace.jobs}
        for name in policies or POLICIES:
            out = folder / f"{name}.json"
            words = [python or sys.executable, str(folder / "driver.py"), str(folder / "jobs.trace"), name,
                     str(folder / "throughputs.json"), ":".join(map(str, GPUS)), solver, str(out)]  # fmt: skip
            ran = run_program(words, cwd=repository / "scheduler", environment=clean | {"PYTHONDONTWRITEBYTECODE": "1"},
                              what=f"their simulator with {name}", limit=LIMIT)  # fmt: skip
            found = json.loads(out.read_text(encoding="utf-8"))
            theirs = {job: float(jct) for job, jct in found["jct"].items() if jct is not None}
            run = experiment.run(POLICIES[name])
            yield (compared(name, POLICIES[name], theirs, jcts(run), submitted, ran.cpu, run.cpu_seconds),
                   found["solver"])  # fmt: skip
