"""The released simulators and ours on the same jobs: CPU seconds, the ratio, and how many jobs end at the same time.

    python benchmarks/peers.py --tiresias ../Tiresias --python2 python2.7 --gavel ../gavel
    python benchmarks/peers.py --tiresias ../Tiresias --schedules dlas-gpu --tiresias-jobs 20000

Their repositories are theirs to clone; nothing of them is changed or kept. In all: CPU seconds of their program, and of
the command `dally simulate` with the same files and rules. Start-up excluded: theirs less what it takes for a
single job, ours the simulation alone. Both run in turn, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dally.core.errors import UserError
from dally.experiments.released import gavel, tiresias
from dally.experiments.released.comparing import Compared, run_program

SCHEDULES = "dlas-gpu,dlas-gpu-gittins,shortest,sjf,fifo"
POLICIES = "max_min_fairness_perf,max_min_fairness,fifo_perf"


def command(words: Sequence[str], folder: Path) -> float:
    """CPU seconds of `dally simulate` in a process of its own, the less of two: the second finds the bytecode of the
    first, as whatever is installed does."""
    same = ["--preemption-cost", "0", "--knowledge", "exact", "--no-bound", "--json", "--quiet"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    first, second = (run_program([sys.executable, "-m", "dally.cli.main", "simulate", *words, *same], cwd=folder,
                                 environment=environment, what="dally simulate", limit=tiresias.LIMIT)
                     for _ in range(2))  # fmt: skip
    return min(first.cpu, second.cpu)


def of_tiresias(options: argparse.Namespace) -> Iterator[tuple[Compared, float, float]]:
    repository = options.tiresias.resolve()
    distribution = repository / "simulator" / "yarn-gput1000.csv"
    for name in options.schedules.split(","):
        (one,) = tiresias.against(repository, options.python2, jobs=1, seed=options.seed, schedules=[name])
        (all_,) = tiresias.against(repository, options.python2, jobs=options.tiresias_jobs, seed=options.seed,
                                   schedules=[name])  # fmt: skip
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            tiresias.write_input(tiresias.draw(options.tiresias_jobs, options.seed), folder)
            ours = command(["-t", "jobs.csv", "-c", "cluster.csv", "-n", "ideal", "-p",
                            tiresias.SCHEDULES[name].format(distribution)], folder)  # fmt: skip
        yield all_, one.their_cpu, ours


def of_gavel(options: argparse.Namespace) -> Iterator[tuple[Compared, float, float]]:
    repository = options.gavel.resolve()
    for name in options.policies.split(","):
        ((one, _),) = gavel.against(repository, options.python, jobs=1, seed=options.seed, policies=[name])
        ((all_, _),) = gavel.against(repository, options.python, jobs=options.gavel_jobs, seed=options.seed,
                                     policies=[name])  # fmt: skip
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            gavel.write_input(folder, options.gavel_jobs, options.seed)
            ours = command(["-t", "jobs.trace", "--throughputs", "throughputs.json", "-c", gavel.CLUSTER, "-p",
                            gavel.POLICIES[name]], folder)  # fmt: skip
        yield all_, one.their_cpu, ours


def show(title: str, found: Iterator[tuple[Compared, float, float]]) -> None:
    print(f"\n{title}\n")
    print("| theirs | ours | theirs, CPU s | ours | ratio | without start-up: theirs | ours | ratio | same JCT | "
          "average JCT off by |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for each, start, ours in found:
        running = max(each.their_cpu - start, 0.0)
        cells = [f"`{each.theirs}`", f"`{each.ours}`", f"{each.their_cpu:.2f}", f"{ours:.2f}",
                 f"{each.their_cpu / ours:.1f} ×", f"{running:.2f}", f"{each.our_cpu:.2f}",
                 f"{running / each.our_cpu:.1f} ×", f"{each.same:,} of {each.jobs:,}",
                 f"{each.average_error:.1%}"]  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiresias", type=Path, metavar="DIR", help="a clone of SymbioticLab/Tiresias")
    parser.add_argument("--gavel", type=Path, metavar="DIR", help="a clone of stanford-futuredata/gavel")
    parser.add_argument("--python2", metavar="PROGRAM", help="the Python 2.7 that runs the released Tiresias")
    parser.add_argument("--python", metavar="PROGRAM", help="the Python with cvxpy that runs the released Gavel")
    parser.add_argument("--tiresias-jobs", type=int, default=4800)
    parser.add_argument("--gavel-jobs", type=int, default=1000)
    parser.add_argument("--schedules", default=SCHEDULES, help="of Tiresias, by the names they have there")
    parser.add_argument("--policies", default=POLICIES, help="of Gavel, by the names they have there")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.tiresias is None and options.gavel is None:  # `make bench` runs everything, repositories or not
        print("nothing to compare with: name a clone of theirs, --tiresias DIR or --gavel DIR")
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # theirs and ours: threads that wait for work burn CPU
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        if options.tiresias is not None:
            show(f"{options.tiresias_jobs:,} jobs on 32 machines of 4 GPUs, seed {options.seed}", of_tiresias(options))
        if options.gavel is not None:
            show(f"{options.gavel_jobs:,} jobs on {gavel.CLUSTER}, seed {options.seed}", of_gavel(options))
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
