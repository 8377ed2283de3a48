"""The released Tiresias simulator (SymbioticLab/Tiresias), run on jobs drawn here, against the same rules of ours.

Their program needs Python 2.7. It imports `cplex`, for a placement that is not used here, and `numpy`, for one mean of
a print-out: where they are not installed, empty stand-ins take their place. Nothing of theirs is changed or kept.
"""

from __future__ import annotations

import csv
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.core.topology import Level, regular
from dally.experiments.released.comparing import Compared, compared, jcts, run_program, their_file
from dally.simulator.experiment import Experiment
from dally.traces.trace import Trace

REPOSITORY = "SymbioticLab/Tiresias"
LIMIT = 3600.0  # seconds for one run of theirs

# what they call it → the same rule here
SCHEDULES = {
    "fifo": "fifo[placement=any]",
    "fjf": "fifo[backfill=true,placement=any]",
    "sjf": "smallest[placement=any]",
    "shortest": "srtf[placement=any]",
    "shortest-gpu": "srtf[gpu_time=true,placement=any]",
    "dlas-gpu": "tiresias[variant=released]",
    "dlas-gpu-gittins": "tiresias[variant=released,index=gittins,distribution={}]",
}
_STANDS_IN = {
    "cplex/__init__.py": "",
    "cplex/exceptions.py": "class CplexError(Exception):\n    pass\n",
    "cplex/six/__init__.py": "",
    "cplex/six/moves.py": "range = range\n",
}
_NUMPY = "def mean(values):\n    return sum(values) / float(len(values))\n"
_MODELS = ("vgg19", "vgg16", "vgg11", "alexnet", "resnet50", "resnet101", "inception3", "googlenet")


def draw(jobs: int, seed: int) -> Trace:
    """Jobs with whole-second times, no two submitted at once: at equal times their lists keep an order of their own."""
    chance = random.Random(f"released tiresias {seed}")
    now, made, truths = 0, [], []
    for number in range(jobs):
        gpus = chance.choices((1, 2, 4, 8, 16, 32), (50, 15, 12, 12, 7, 4))[0]
        made.append(Job(str(number), float(now), gpus, model=chance.choice(_MODELS)))
        truths.append(Truth(float(min(40_000, max(20, round(chance.lognormvariate(7.0, 1.4)))))))
        now += 1 + round(chance.expovariate(1 / 60))
    return Trace(f"{jobs} jobs drawn with seed {seed}", "drawn", made, truths)


def experiment_of(trace: Trace) -> Experiment:
    """32 machines of 4 GPUs; neither distance nor preemption costs anything there."""
    return Experiment(trace, regular((1, 32, 4), (Level("machine"), Level("rack"), Level("cluster"))), "ideal", "0")


def against(repository: Path, python: str | None, *, jobs: int, seed: int,
            schedules: Sequence[str] = ()) -> Iterator[Compared]:  # fmt: skip
    """Both programs on the same jobs, by counting GPUs alone (their `count`)."""
    unknown = [name for name in schedules if name not in SCHEDULES]
    if unknown:
        raise UserError(f"{unknown[0]!r} is not one of {', '.join(SCHEDULES)}")
    program = their_file(repository, "simulator/run_sim.py", REPOSITORY)
    interpreter = python or shutil.which("python2.7")
    if interpreter is None:
        raise UserError("their simulator needs Python 2.7, and no python2.7 is on the path; name one with --python")
    trace = draw(jobs, seed)
    experiment = experiment_of(trace)
    submitted = {job.id: job.submit_time for job in trace.jobs}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        environment = _environment(interpreter, folder)
        write_input(trace, folder)
        for name in schedules or SCHEDULES:
            ours = SCHEDULES[name].format(their_file(repository, "simulator/yarn-gput1000.csv", REPOSITORY))
            words = [interpreter, program.name, f"--cluster_spec={folder / 'cluster.csv'}", "--scheme=count",
                     f"--trace_file={folder / 'jobs.csv'}", f"--schedule={name}", f"--log_path={folder / name}"]
            ran = run_program(words, cwd=program.parent, environment=environment,
                              what=f"their simulator with {name}", limit=LIMIT)  # fmt: skip
            shown, run = SCHEDULES[name].replace(",distribution={}", ""), experiment.run(ours)
            yield compared(name, shown, _read(folder / name / "job.csv"), jcts(run), submitted, ran.cpu,
                           run.cpu_seconds)  # fmt: skip


def write_input(trace: Trace, folder: Path) -> None:
    """`jobs.csv` and `cluster.csv` there, in their formats."""
    _write(trace, folder / "jobs.csv")
    (folder / "cluster.csv").write_text(
        "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,32,4,40,256\n", encoding="ascii")


def _environment(interpreter: str, folder: Path) -> dict[str, str]:
    stands_in = folder / "stands-in"
    files = dict(_STANDS_IN)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for module in ("cplex", "numpy"):
        try:
            run_program([interpreter, "-c", f"import {module}"], cwd=folder, environment=clean, what=module, limit=60.0)
        except UserError:
            if module == "numpy":
                files["numpy.py"] = _NUMPY
        else:
            files = {name: text for name, text in files.items() if not name.startswith(module)}
    for name, text in files.items():
        path = stands_in / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return clean | {"PYTHONPATH": str(stands_in), "PYTHONDONTWRITEBYTECODE": "1"}


def _write(trace: Trace, path: Path) -> None:
    with path.open("w", newline="", encoding="ascii") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval"))
        for job, truth in zip(trace.jobs, trace.truths, strict=True):
            writer.writerow((job.id, job.gpus, int(job.submit_time), 100, job.model, int(truth.duration or 0), 0))


def _read(path: Path) -> dict[str, float]:
    try:
        with path.open(encoding="utf-8") as file:
            return {row["job_id"]: float(row["JCT"]) for row in csv.DictReader(file)}
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"their simulator left no results that can be read: {error}") from None
