"""A service that is killed again and again while it works, and what is left of it: nothing lost, nothing twice.

    python benchmarks/kills.py --kills 500 --store sqlite
    python benchmarks/kills.py --kills 500 --store postgresql     two services, the one that leads is killed

Needs the repository (the storm itself is tests/live/chaos.py), and for PostgreSQL its programs: a server of its own
is started. Exit code 1 where a check fails; then everything is left in the folder that is named.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import uuid
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "live")]

from chaos import Tally, storm  # noqa: E402 - where it is found is said above

from postgres import Postgres, programs  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--jobs", type=int, help="how many are submitted (as many as come in until the last kill)")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default="dally")
    parser.add_argument("--minutes", type=float, help="end after so long, with as many kills as there were by then")
    parser.add_argument("--afresh", action="store_true", help="a new interpreter for every start, not a fork")
    options = parser.parse_args()
    if options.store == "postgresql" and programs() is None:
        print("kills.py: PostgreSQL is not installed", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="dally-kills-"))
    server = Postgres() if options.store == "postgresql" else None
    try:
        url = None if server is None else server.database(f"k{uuid.uuid4().hex}")
        begin = time.monotonic()
        tally = storm(folder, kills=options.kills, jobs=options.jobs, seed=options.seed,
                      services=1 if server is None else 2, store=url, policy=options.policy, pace=0.8,
                      forks=not options.afresh, seconds=None if options.minutes is None else 60 * options.minutes,
                      say=lambda text: print(f"{time.monotonic() - begin:7.0f} s  {text}", flush=True))  # fmt: skip
        print(told(tally, options.store, time.monotonic() - begin))
    finally:
        if server is not None:
            server.close()
    if tally.wrong:
        print("\n".join(tally.wrong[:50]))
        print(f"everything is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def told(tally: Tally, store: str, seconds: float) -> str:
    """The figures, and every check with how often it failed."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(tally.states.items()))
    lines = [f"{store}: {tally.kills} kills in {seconds:.0f} s, {tally.jobs} jobs ({states}), {tally.attempts} "
             f"attempts, {tally.requeued} put back into the queue, {tally.instants} instants"]  # fmt: skip
    lines += [f"  {kind:<12} {len(found)}" for kind, found in tally.found.items() if kind != "journal"]
    lines.append(f"  journal      {'executes again, rows follow' if not tally.found['journal'] else 'DIFFERS'}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
