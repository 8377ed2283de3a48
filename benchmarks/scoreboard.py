"""Jobs per CPU second where there is something to decide, for every policy; beside another build, with the ratio.

    python benchmarks/scoreboard.py                                # 5,000 Philly-shaped jobs at load 0.9 on 640 GPUs
    python benchmarks/scoreboard.py --load 1.1 --policies las,dally
    python benchmarks/scoreboard.py --beside ../other/.venv/bin/python --digest    # another Dally, and its journals

CPU seconds are of the simulation alone, both builds in turn, policy by policy, so that whatever else the machine does
meets both. With --digest the journals of both are compared, too, and a difference ends the run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from typing import Any

from dally.core.journal_text import JournalText
from dally.policies.options import split_policies
from dally.simulator.scenario import Scenario

POLICIES = "fifo,fifo[backfill=true],smallest,srtf,las,tiresias,gandiva,gavel,slurm,dally[timers=auto],dally"


def measured(options: argparse.Namespace, policy: str) -> dict[str, Any]:
    """One run in this process."""
    experiment = Scenario.of({"trace": options.trace, "cluster": options.cluster, "jobs": options.jobs,
                              "load": options.load, "seed": options.seed}).prepare()  # fmt: skip
    run = experiment.run(policy)
    figures = {"policy": policy, "jobs": len(run.ledger.rows), "cpu": run.cpu_seconds, "events": run.events,
               "preempted": sum(row.preemptions for row in run.ledger.rows),
               "queue": max(run.ledger.queue)}  # fmt: skip
    if options.digest:
        digest, text = hashlib.sha256(), JournalText(experiment.topology)
        experiment.run(policy, listeners=(lambda instant: digest.update(text.encode(instant).encode()),))
        figures["journal"] = digest.hexdigest()
    return figures


def asked(python: str, options: argparse.Namespace, policy: str) -> dict[str, Any]:
    """The same in a fresh process of an interpreter: nobody inherits what another run has warmed."""
    words = ["--trace", options.trace, "--cluster", options.cluster, "--jobs", str(options.jobs), "--load",
             str(options.load), "--seed", str(options.seed), "--one", policy]  # fmt: skip
    words += ["--digest"] if options.digest else []
    # sources named there would come before what the other interpreter has installed
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or python == sys.executable}
    done = subprocess.run([python, __file__, *words], capture_output=True, text=True, check=False, env=own)
    if done.returncode:
        sys.exit(f"{policy} under {python} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--trace", default="synth:philly")
    parser.add_argument("--cluster", default="8x10x8")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beside", metavar="PYTHON", help="an interpreter with another build of Dally")
    parser.add_argument("--digest", action="store_true", help="also compare the journals of both, byte for byte")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options, options.one)))
        return
    print(f"{options.jobs:,} jobs of {options.trace}, load {options.load:g}, {options.cluster}, seed {options.seed}")
    beside = f" {'CPU s there':>11} {'jobs/CPU s':>10} {'there/here':>10}" if options.beside else ""
    print(f"{'policy':20} {'CPU s':>7} {'jobs/CPU s':>10} {'µs/event':>8} {'events':>9} {'queue':>6} {'preempted':>9}"
          f"{beside}")  # fmt: skip
    for policy in split_policies(options.policies):
        here = asked(sys.executable, options, policy)
        line = (f"{policy:20} {here['cpu']:7.2f} {here['jobs'] / here['cpu']:10,.0f} "
                f"{here['cpu'] / here['events'] * 1e6:8.0f} {here['events']:9,} {here['queue']:6,} "
                f"{here['preempted']:9,}")  # fmt: skip
        if options.beside:
            there = asked(options.beside, options, policy)
            if here.get("journal") != there.get("journal"):
                sys.exit(f"{policy}: the two do not decide the same: their journals differ")
            line += f" {there['cpu']:11.2f} {there['jobs'] / there['cpu']:10,.0f} {there['cpu'] / here['cpu']:9.2f}×"
        print(line, flush=True)


if __name__ == "__main__":
    main()
