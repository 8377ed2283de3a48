"""The run over several hosts, started by torchrun or srun; its result is added to a profile that `run` has made.

torchrun --nnodes 2 --nproc-per-node 4 … -m dally.profiler.join net.yaml train.py --batch-size 32
srun --nodes 2 --ntasks 8 python -m dally.profiler.join net.yaml train.py --batch-size 32
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from dally.core.errors import UserError


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="dally.profiler.join", description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--link", default="", help="what joins the machines, in your words")
    parser.add_argument("profile", type=Path)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args(arguments)
    from_slurm(os.environ)
    try:
        _run(args.profile, args.script, args.arguments, args.steps, args.warmup, args.repeats, args.link)
    except UserError as error:
        print(f"dally: {error}", file=sys.stderr)
        sys.exit(2)


def from_slurm(environment: MutableMapping[str, str]) -> None:
    """The variables torch asks for, from those srun sets; nothing where torchrun has set them already."""
    if "RANK" in environment or "SLURM_PROCID" not in environment:
        return
    from dally.catalog.clusters.hostlist import expand

    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    first = expand(nodes)[0] if nodes else "127.0.0.1"
    environment["RANK"] = environment["SLURM_PROCID"]
    environment["WORLD_SIZE"] = environment["SLURM_NTASKS"]
    environment["LOCAL_RANK"] = environment.get("SLURM_LOCALID", "0")
    environment["GROUP_WORLD_SIZE"] = environment.get("SLURM_NNODES", "1")
    environment.setdefault("MASTER_ADDR", first)
    environment.setdefault("MASTER_PORT", str(20000 + int(environment.get("SLURM_JOB_ID", "0")) % 20000))


def _run(out: Path, script: str, arguments: list[str], steps: int, warmup: int, repeats: int, link: str) -> None:
    from dally.profiler.document import read_profile
    from dally.profiler.inside import hooks
    from dally.profiler.inside.arrival import when_torch_comes
    from dally.profiler.inside.session import Finished
    from dally.profiler.inside.task import VARIABLE, Task

    if "RANK" not in os.environ:
        raise UserError("no rank is known: start this with torchrun or srun")
    if os.environ["RANK"] == "0":
        read_profile(out)  # what cannot be added to is said before anything runs
    with tempfile.TemporaryDirectory(prefix="dally-join-") as folder:
        task = Path(folder) / "task.json"
        Task(folder, "synthetic", warmup, steps, repeats, silent=True, gather=True).write(task)
        os.environ[VARIABLE] = str(task)
        when_torch_comes()
        sys.argv = [script, *arguments]
        sys.path.insert(0, str(Path(script).resolve().parent))
        with suppress(Finished):
            runpy.run_path(script, run_name="__main__")
        session = hooks.session()
        if session is None or not session.gathered:
            raise UserError("the script ended before everything was measured, or it joined no process group")
        if session.rank == 0:
            add(out, session.gathered, int(os.environ.get("GROUP_WORLD_SIZE", "1")), link)


def add(out: Path, gathered: list[list[Mapping[str, object]]], machines: int, link: str) -> None:
    """Add the run to the profile and work out the network stall anew."""
    from dally.profiler.document import read_profile, write_profile
    from dally.profiler.readings import run_of
    from dally.profiler.stalls import stalls

    profile = read_profile(out)
    ranks = {rank: [{"event": "begin", "rank": rank}, *events] for rank, events in enumerate(gathered)}
    run = run_of([ranks], "synthetic", machines, link)
    if run is None:
        raise UserError("not one window was finished by every rank")
    apart = [*profile.apart, run]
    together = profile.runs.get("all")
    notes = list(profile.notes)
    if together is not None and together.processes != run.processes:
        notes.append(
            f"the run over {machines} machines had {run.processes} ranks, that of one machine {together.processes}: "
            "the network stall compares different numbers of devices"
        )
    found = stalls(profile.runs, apart)
    write_profile(profile.model_copy(update={"apart": apart, "stalls": found, "notes": notes}), out)


if __name__ == "__main__":
    main()
