"""Speed, claim by claim: a table, a ratio and a plot each; or every policy once, beside another build of Dally.

    python benchmarks/scoreboard.py                                # 5,000 Philly-shaped jobs at load 0.9 on 640 GPUs
    python benchmarks/scoreboard.py --load 1.1 --policies las,dally
    python benchmarks/scoreboard.py --beside ../other/.venv/bin/python --digest    # another Dally, and its journals

    python benchmarks/scoreboard.py claims                         # what is claimed, and what is measured of it
    python benchmarks/scoreboard.py queueing --builds pure,compiled
    python benchmarks/scoreboard.py jobs --most 100000 --policies srtf,dally       # up to 100,000 jobs for now
    python benchmarks/scoreboard.py philly --philly FILE           # Philly's own trace, which is not part of Dally
    python benchmarks/scoreboard.py page                           # docs/speed.md from all that is kept

CPU seconds are of the simulation alone. Every measurement is made in a process of its own and kept in
docs/speed/rows.jsonl: a command that is called again measures what is missing (--again: everything it names), so the
expensive ones can be done bit by bit. Warm: a run of the same policy on 5,000 jobs came before it in the same process,
so that the network remembers the steps that one asked for.

Beside another build both are measured in turn, policy by policy, so that whatever else the machine does meets both.
With --digest the journals of both are compared, too, and a difference ends the run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from speed.base import Asked
from speed.cells import Kept, measure
from speed.claims import CLAIMS
from speed.measuring import measured as measured_cell
from speed.page import draw, shown, text_table, write_page

from dally.core.journal_text import JournalText
from dally.policies.options import split_policies
from dally.simulator.scenario import Scenario

HOME = Path(__file__).parent.parent
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


def claimed(options: argparse.Namespace) -> None:
    """Measure what is missing of a claim, then print its table and its ratio and draw its plot."""
    kept = Kept(options.rows)
    claim = CLAIMS[options.claim]
    asked = Asked(split_policies(options.policies), options.builds.split(","), options.most)
    print(f"{claim.title}\n", flush=True)
    for row in measure(claim.cells(asked), kept, again=options.again, limit=options.limit, philly=options.philly):
        numbers = {name: value for name, value in row.items() if type(value) in (int, float)}
        said = row.get("failed") or ", ".join(f"{name} {value:,.4g}" for name, value in numbers.items())
        print(f"measured: {row.get('policy') or claim.name}, {row['build']}: {said}", file=sys.stderr, flush=True)
    found = shown(claim.name, kept)
    print(text_table(found.table))
    print(f"\n{found.ratio}")
    plot = draw(claim.name, found, options.page.parent / "speed")
    print(f"plot: {plot}" if plot is not None else "plot: there are no two points to join")


def listed(options: argparse.Namespace) -> None:
    kept = Kept(options.rows)
    asked = Asked(split_policies(options.policies), options.builds.split(","), options.most)
    for claim in CLAIMS.values():
        cells = claim.cells(asked)
        print(f"{claim.name:12} {len(kept.of(cells)):4} of {len(cells):4} measured   {claim.title}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claim", nargs="?", choices=["claims", *CLAIMS, "page"], metavar="CLAIM",
                        help=f"{', '.join(CLAIMS)}; claims: list them; page: write docs/speed.md")  # fmt: skip
    parser.add_argument("--builds", default="pure", help="pure, compiled, or both with a comma")
    parser.add_argument("--most", type=int, default=10**9, metavar="N", help="no cell of more jobs than this")
    parser.add_argument("--again", action="store_true", help="measure what is there, too")
    parser.add_argument("--limit", type=float, default=3600.0, metavar="S", help="CPU seconds until a run is stopped")
    parser.add_argument("--philly", metavar="FILE", help="Philly's trace")
    parser.add_argument("--rows", type=Path, default=HOME / "docs" / "speed" / "rows.jsonl", metavar="FILE")
    parser.add_argument("--page", type=Path, default=HOME / "docs" / "speed.md", metavar="FILE")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
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
    if options.cell:
        print(json.dumps(measured_cell(json.loads(options.cell))))
        return
    if options.claim == "claims":
        listed(options)
        return
    if options.claim == "page":
        print(f"{options.page}: {', '.join(write_page(options.page, Kept(options.rows))) or 'no part is marked there'}")
        return
    if options.claim:
        claimed(options)
        return
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
