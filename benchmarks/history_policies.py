"""CPU seconds that a recorded history takes under several policies, one after the other.

    python -m tests.twin.history FOLDER 401 20000
    DALLY_PURE=1 python benchmarks/history_policies.py FOLDER/sacct.txt [--policies "fifo[backfill=easy],las"]

The cluster is the nodes of the history, placement costs no time, policies know the time limits: as in `dally twin`.
"""

from __future__ import annotations

import argparse
import time

POLICIES = "fifo[backfill=easy],srtf,las,tiresias,slurm,dally"


def main() -> None:
    from dally.compiled import build_text
    from dally.experiments.twin.history import history_of
    from dally.experiments.twin.replaying import replay
    from dally.experiments.twin.site import Site
    from dally.policies.options import split_policies
    from dally.simulator.scenario import Scenario
    from dally.traces import load_trace

    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("history", help="what sacct printed, or any trace with starts")
    asked.add_argument("--policies", default=POLICIES)
    given = asked.parse_args()
    began = time.process_time()
    history = history_of(load_trace(given.history))
    topology, _ = Site(history.trace).topology()
    scenario = Scenario.of({"trace": history.trace, "cluster": topology, "network": "ideal",
                            "knowledge": "limits"})  # fmt: skip
    print(f"{len(history.trace.jobs):,} jobs, {build_text()}; read in {time.process_time() - began:.1f} CPU s")
    whole = 0.0
    for policy in split_policies(given.policies):
        began = time.process_time()
        found = replay(history, scenario, policy, history.measured)
        took = time.process_time() - began
        whole += took
        wait, jct = found.lives.averages
        print(f"{found.policy:24} {took:6.1f} CPU s   wait {wait:8.0f} s   JCT {jct:8.0f} s", flush=True)
    print(f"{'together':24} {whole:6.1f} CPU s")


if __name__ == "__main__":
    main()
