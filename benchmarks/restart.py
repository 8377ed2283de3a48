"""How long a restart takes: a store of so many entries, opened from its newest snapshot and the instants after it.

    python benchmarks/restart.py --entries 1000000 --policy srtf

Prints the seconds of a restart by execution and by trust, and the ratio to following the whole journal.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from dally.core.journal import Instant, Journal
from dally.core.scheduler import Scheduler
from dally.core.snapshot import save
from dally.core.states import ENDED
from dally.policies.options import make_policy
from dally.simulator.experiment import Experiment
from dally.simulator.knowledge import tell
from dally.simulator.profiles import Profiles
from dally.simulator.scenario import Scenario
from dally.simulator.world import SimulatedWorld
from dally.store.recovery import Mode, recover, trust
from dally.store.store import Store


def new(made: Experiment, policy: str, journal: Journal) -> tuple[SimulatedWorld, Scheduler]:
    network = made.make_network(made.topology)
    workload = tell(made.workload(network), "declared")
    world = SimulatedWorld(workload, made.topology, network)
    return world, Scheduler(made.topology, make_policy(policy), world, journal, Profiles(network, made.topology))


def fill(made: Experiment, policy: str, folder: Path, entries: int, every: int) -> int:
    """Run until the journal has so many entries; a snapshot after every so many instants."""
    written = 0

    def count(instant: Instant) -> None:
        nonlocal written
        written += len(instant.happened) + len(instant.decided or ())

    with Store.create(folder, made.topology, policy=make_policy(policy).name) as store:
        store.synced = False  # a simulated cluster can be run again
        _, scheduler = new(made, policy, Journal(store, count))
        last = 0

        def between(now: float) -> bool:
            nonlocal last
            if store.instants - last >= every:
                last = store.instants
                store.snapshot(save(scheduler))
            return written < entries

        scheduler.run(between)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=20_000, help="instants between two snapshots")
    parser.add_argument("--policy", default="srtf")
    args = parser.parse_args()
    jobs = args.entries // 3
    made = Scenario.of({"trace": "synth:philly", "jobs": jobs, "load": 0.9, "cluster": "4x8x8", "network": "ideal",
                        "seed": 1, "warm_start": False, "window": "all"}).prepare()  # fmt: skip
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where) / "store"
        entries = fill(made, args.policy, folder, args.entries, args.every)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        with Store.open(folder) as store:
            print(f"{args.policy}: {entries:,} entries in {store.instants:,} instants, {size:,.0f} MB with snapshots")
            took: dict[str, float] = {}
            modes: tuple[Mode, ...] = ("verify", "trust")
            for mode in modes:
                _, scheduler = new(made, args.policy, Journal())
                started = time.process_time()
                found = recover(store, scheduler, make_policy, mode)
                took[mode] = time.process_time() - started
                alive = sum(job.state not in ENDED for job in scheduler.jobs.values())
                print(f"restart, {mode}: {took[mode]:.2f} CPU s from a snapshot of {found.from_snapshot:,} instants "
                      f"and {found.followed:,} after it; {len(scheduler.jobs):,} jobs, {alive:,} open")
            _, scheduler = new(made, args.policy, Journal())
            started = time.process_time()
            trust(scheduler, store.since(0), make_policy)
            whole = time.process_time() - started
        print(f"the whole journal, trusted from its beginning: {whole:.1f} CPU s; ratio {whole / took['verify']:.0f}")


if __name__ == "__main__":
    main()
