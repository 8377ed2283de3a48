"""Two processes with different hash seeds write the same bytes, under every policy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

SCRIPT = """
import hashlib, sys
sys.path[:0] = [{tests!r}, {tests!r} + "/properties"]
from builders import mixed_cluster, play, seeded_trace, Flat
from every_policy import NAMES, variants
from dally.core.journal_text import encode_all
from dally.simulator.faults import Faults
tree = mixed_cluster(v100=(4, 4, 4), a100=(8, 2))
trace = seeded_trace(5, types=(None, None, "v100", "a100"))
for name in NAMES:
    for policy in variants(name):
        faults = Faults(5, mtbf=2000.0, mttr=60.0, checkpoint_interval=30.0, seed=3)
        played = play(trace, tree, policy, network="level-penalty", cost=Flat(2.0, 3.0), faults=faults)
        text = encode_all(tree, played.instants)
        print(policy, len(text), hashlib.sha256(text.encode()).hexdigest())
"""


def journals(hash_seed: str) -> str:
    run = subprocess.run([sys.executable, "-c", SCRIPT.format(tests=str(TESTS))], capture_output=True, text=True,
                         env={**os.environ, "PYTHONHASHSEED": hash_seed}, timeout=100, check=False)  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_journals_do_not_depend_on_the_process_that_wrote_them() -> None:
    first = journals("1")
    assert len(first.splitlines()) >= 10
    assert first == journals("2")
