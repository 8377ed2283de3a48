"""`dally twin` on the record of a real Slurm: jobs on a test bed, its own log of ended jobs, and the back-test of it.

    python benchmarks/slurm_twin.py                     seed 1, 80 jobs, on 2 racks x 4 nodes x 2 GPUs, about 12 minutes
    python benchmarks/slurm_twin.py --seeds 4 5 --jobs 60 --out records

Needs what `dally testbed up` needs (root, slurm-wlm, munge). Jobs sleep. Two partitions (`wide`, `small`) of nodes of
their own; a few jobs ask for whole nodes (`--exclusive`). The record is Slurm's (jobcomp/filetxt) in the columns of
`sacct`; the twin gets that and the bed's slurm.conf and topology.conf, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dally.core.errors import UserError
from dally.live.testbed.bed import Bed, bring_up
from dally.live.testbed.clusters import read_bed_cluster

_RATES = {"rack": 25e6, "cluster": 6.25e6}
_HEAD = "JobID|User|Partition|Submit|Eligible|Start|End|State|Timelimit|NNodes|AllocTRES|NodeList"
PER_NODE = 2  # GPUs
_KEYS = ("JobId", "UserId", "Partition", "SubmitTime", "EligibleTime", "StartTime", "EndTime", "JobState", "TimeLimit",
         "NodeCnt", "Tres", "NodeList")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    after: float  # seconds from the first
    partition: str
    nodes: int
    gpus: int  # per node
    seconds: int  # it sleeps
    minutes: int  # its limit
    exclusive: bool


def stream(seed: int, jobs: int, gap: float) -> Iterator[Asked]:
    """Jobs of one to four nodes, more than can be served for most of the time."""
    chance = random.Random(f"slurm twin {seed}")
    now = 0.0
    for _ in range(jobs):
        partition = chance.choices(("wide", "small"), (3, 1))[0]
        nodes, gpus, exclusive = chance.choices(
            ((1, 1, False), (1, 2, False), (1, 1, True), (2, 1, False), (2, 2, False), (4, 2, False)),
            (40, 25, 8, 8, 13, 6))[0]  # fmt: skip
        seconds = round(min(240.0, chance.lognormvariate(3.6, 0.8))) + 5
        minutes = -(-seconds // 60) + chance.choice((0, 0, 1, 2, 4))
        yield Asked(now, partition, min(nodes, 2 if partition == "small" else 4), gpus, seconds, minutes, exclusive)
        now += chance.expovariate(1.0 / gap)


def on_slurm(bed: Bed, asked: Sequence[Asked]) -> str:
    """Submit them in time, wait for the last, and give Slurm's log of them in sacct's columns."""
    begin = time.monotonic()
    gpus: dict[str, int] = {}  # without slurmdbd the log has no GPUs: an exclusive job has all of its nodes
    for number, job in enumerate(asked):
        time.sleep(max(0.0, begin + job.after - time.monotonic()))
        words = ["sbatch", "--parsable", f"-Jj{number}", f"-N{job.nodes}", f"--gres=gpu:{job.gpus}", "-o", "/dev/null",
                 f"--time={job.minutes}", f"--partition={job.partition}"]  # fmt: skip
        words += ["--exclusive"] if job.exclusive else []
        name = bed.client(*words, "--wrap", f"sleep {job.seconds}").strip()
        gpus[name] = job.nodes * (PER_NODE if job.exclusive else job.gpus)
    while _queued(bed):
        time.sleep(2.0)
    bed.wait_until_idle()
    lines = [_HEAD]
    for line in (bed.folder / "log" / "completed.log").read_text().splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        fields["UserId"] = fields["UserId"].partition("(")[0]
        fields["TimeLimit"] = f"00:{fields['TimeLimit']}:00" if fields["TimeLimit"].isdigit() else fields["TimeLimit"]
        fields["Tres"] += f",gres/gpu={gpus[fields['JobId']]}"
        lines.append("|".join(fields[key] for key in _KEYS))
    return "\n".join(lines) + "\n"


def _queued(bed: Bed) -> bool:
    """Whether somebody waits or runs; a controller that is slow to answer is asked again."""
    try:
        return bool(bed.client("squeue", "-h", "-o", "%i").strip())
    except UserError:
        return True


def recorded(seed: int, jobs: int, gap: float, folder: Path) -> None:
    """A record with its configuration, in this folder."""
    topology, text, _ = read_bed_cluster(f"2x4x{PER_NODE}")
    place = Path(tempfile.mkdtemp(prefix="slurm-twin-"))
    names = [machine.path[-1] for machine in topology.machines]
    named = names if len(set(names)) == len(names) else [f"n{number}" for number in range(1, len(names) + 1)]
    partitions = [f"PartitionName=wide Nodes={','.join(named[:6])} Default=YES MaxTime=60",
                  f"PartitionName=small Nodes={','.join(named[6:])} MaxTime=60"]  # fmt: skip
    bed = bring_up(f"t{os.getpid()}", topology, text, place / "bed", _RATES, partitions)
    try:
        record = on_slurm(bed, list(stream(seed, jobs, gap)))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sacct.txt").write_text(record)
        for name in ("slurm.conf", "topology.conf", "gres.conf"):
            if (bed.folder / name).exists():
                shutil.copy(bed.folder / name, folder / name)
    finally:
        bed.down()
        shutil.rmtree(place)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--jobs", type=int, default=80)
    parser.add_argument("--gap", type=float, default=6.0, help="average seconds between submissions")
    parser.add_argument("--out", type=Path, help="a folder for the records; there already: not run again")
    chosen = parser.parse_args()
    for seed in chosen.seeds:
        folder = (chosen.out or Path(tempfile.mkdtemp(prefix="slurm-twin-"))) / f"seed-{seed}"
        if not (folder / "sacct.txt").exists():
            recorded(seed, chosen.jobs, chosen.gap, folder)
        words = [sys.executable, "-c", "from dally.cli.main import main; main()", "twin", "--cluster", str(folder),
                 "--history", str(folder / "sacct.txt"), "--policies", "none", "--json", "--quiet"]  # fmt: skip
        found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["backtest"]
        wait, jct = found["avg_wait"], found["avg_jct"]
        off = [100 * (each["simulated"] / each["actual"] - 1) for each in (wait, jct)]
        print(f"seed {seed}: {found['jobs']} jobs measured under {found['policy']}: average wait "
              f"{wait['actual']:.1f} s recorded, {wait['simulated']:.1f} s simulated ({off[0]:+.1f} %); JCT "
              f"{jct['actual']:.1f} s, {jct['simulated']:.1f} s ({off[1]:+.1f} %); partitions in order: "
              f"{found['partitions_in_order']}; {found['verdict']['grade']}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
