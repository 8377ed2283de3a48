"""Whole runs, byte for byte. `pytest tests/golden --update-golden` writes them anew; read the difference first."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

import pytest

from builders import Flat, Pairwise, Spec, Timed, at, cluster, job, mixed_cluster, outages, play, seeded_trace, trace
from dally.core import plan as pl
from dally.core.journal_text import encode_all
from dally.core.sharing import Share
from dally.core.topology import Topology
from dally.simulator.faults import Faults
from dally.traces.trace import Trace

FOLDER = Path(__file__).parent
RACKS = cluster(2, 2, 4)
MIXED = mixed_cluster(v100=(4, 4), a100=(8,))


def eventful(made: Trace) -> Trace:
    """The same jobs, some of which are cancelled, retried, of no duration or too large."""
    specs = [Spec(j, t) for j, t in zip(made.jobs, made.truths, strict=True)]
    odd = [job("cancelled", 8, 50, 100, cancel_at=130.0), job("retried", 1, 60, 110, failures=(0.5,)),
           job("nothing", 1, 0, 120), job("too large", 99, 10, 130)]  # fmt: skip
    return trace([*specs, *odd], made.name)


def modelled(made: Trace) -> Trace:
    """The same jobs, of models that Tiresias' profile tells apart."""
    models = ("vgg16", "resnet50", "bert", "alexnet", "unheard-of")
    jobs = [replace(job, model=models[i % len(models)]) for i, job in enumerate(made.jobs)]
    return Trace(made.name, made.format, jobs, made.truths)


def with_limits(made: Trace) -> Trace:
    """The same jobs, of two users and two partitions, with limits and some with a wish for one rack."""
    jobs = [replace(job, declared_duration=60.0 * (1 + i % 9), user=("ann", "bob", None)[i % 3],
                    tenant="paid" if i % 5 == 0 else "free", prefers="rack" if i % 4 == 0 else None,
                    wait=90.0 if i % 8 == 0 else None) for i, job in enumerate(made.jobs)]
    return Trace(made.name, made.format, jobs, made.truths)


def elastic(made: Trace, every: int = 3) -> Trace:
    """Every third job can run on up to twice its GPUs."""
    jobs = [replace(j, max_gpus=2 * j.gpus) if i % every == 0 else j for i, j in enumerate(made.jobs)]
    return replace(made, jobs=jobs)


def sharing() -> Timed:
    """Everything a plan can do with shares, on the jobs of `SHARED`."""
    return Timed({
        0.0: [pl.Start("a", at((0, 1))), pl.Start("b", at((0, 1)), None, Share(2.0)),
              pl.Start("e", at((1, 3)), 60.0, Share(quantum=30.0))],
        50.0: [pl.Start("c", at((0, 1)), None, Share(beside="a"))],
        100.0: [pl.Reshare("c", Share()), pl.Resize("e", at((1, 15)))],
        150.0: [pl.Migrate("b", at((2, 1))), pl.Preempt("a")],
        200.0: [pl.Start("a", at((2, 1)), None, Share(beside="b"))],
        250.0: [pl.Resize("e", at((1, 1))), pl.Migrate("c", at((2, 1)), None, Share(3.0))],
    })  # fmt: skip


SHARED = trace([job("a", 1, 200), job("b", 1, 200), job("c", 1, 300, 20), job("e", 2, 400, limits=(1, 4))], "shared")

# file → trace, cluster, policy, network, (save, restore), faults
RUNS: dict[str, tuple[Trace, Topology, str, str, tuple[float, float], Faults | None]] = {
    "sharing": (SHARED, RACKS, "timed", "level-penalty", (2, 3), None),
    "fifo": (eventful(seeded_trace(1, span=200)), RACKS, "fifo", "ideal", (0, 0), None),
    "smallest-with-outages": (seeded_trace(2, span=300), RACKS, "smallest", "level-penalty", (0, 5),
                              outages(RACKS, {0: [(200, 260), (500, 520)], 3: [(300, 900)]},
                                      checkpoint_interval=60)),
    "srtf-on-mixed-gpus": (seeded_trace(3, span=300, types=(None, None, "v100", "a100")), MIXED, "srtf",
                           "level-penalty", (3, 4), None),
    "dally-timers": (eventful(seeded_trace(4, jobs=40, sizes=(1, 2, 3, 4, 4, 8), span=1200)), RACKS,
                     "dally[timers=auto,lease=1m,floors=0.5/1]", "level-penalty[rack=2,cluster=4]", (2, 3),
                     outages(RACKS, {1: [(250, 400)]}, checkpoint_interval=60)),
    "dally-value": (eventful(seeded_trace(6, jobs=40, sizes=(1, 2, 3, 4, 4, 8), span=3000, longest=1500)), RACKS,
                    "dally[lease=1m]", "level-penalty[rack=2,cluster=4]", (2, 3),
                    outages(RACKS, {1: [(250, 400)]}, checkpoint_interval=60)),
    # one GPU type, so that the fairest allocation is the only one; and rules that solve no program
    "gavel": (seeded_trace(6, span=200), RACKS, "gavel[round=1m,reallocate=3m]", "level-penalty", (2, 3), None),
    "gavel-released": (seeded_trace(7, span=200), MIXED, "gavel[variant=released,objective=fifo,round=1m,reallocate=3m]",
                       "level-penalty", (2, 3), None),
    "tiresias": (modelled(seeded_trace(5, span=300)), RACKS, "tiresias[index=gittins,thresholds=200,promote=2]",
                 "level-penalty[cluster=3]", (2, 3), outages(RACKS, {1: [(150, 400)]}, checkpoint_interval=60)),
    "tiresias-released": (seeded_trace(6, span=300), RACKS,
                          "tiresias[variant=released,thresholds=100/300,promote=1]", "ideal", (0, 0), None),
    "slurm": (with_limits(eventful(seeded_trace(8, jobs=40, sizes=(1, 1, 2, 3, 4, 8), span=900, longest=500))), RACKS,
              "slurm[bf_interval=10,priority=multifactor,weight_age=1000,weight_fairshare=500,calc_period=1m,max_age=10m,"
              "tiers=paid:2/free:1,preempt=partition]", "level-penalty[rack=2,cluster=4]", (2, 3),
              outages(RACKS, {1: [(250, 400)]}, checkpoint_interval=60)),
    "las": (seeded_trace(4, span=200), RACKS, "las[quantum=1m]", "ideal", (2, 3), None),
    "gandiva": (elastic(eventful(seeded_trace(7, jobs=40, span=900, longest=500))), RACKS,
                "gandiva[minibatches=5,quantum=10,grow_after=20,starvation=150]", "level-penalty[rack=2,cluster=4]",
                (2, 3), outages(RACKS, {1: [(250, 400)]}, checkpoint_interval=60)),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_the_journal_of(name: str, update_golden: bool) -> None:
    made, topology, policy, network, cost, faults = RUNS[name]
    played = play(made, topology, sharing() if policy == "timed" else policy, network=network, cost=Flat(*cost),
                  faults=faults, interference=Pairwise(1.19))  # fmt: skip
    text = encode_all(topology, played.instants, policy=policy, trace=made.name, network=network)
    file = FOLDER / f"{name}.jsonl"
    if update_golden:
        file.write_text(text)
    golden = file.read_text()
    if text != golden:
        changed = list(
            difflib.unified_diff(golden.splitlines(), text.splitlines(), "golden", "now", n=2, lineterm="")
        )
        pytest.fail("\n".join([f"{name}: the run is not what it was (renew with --update-golden):", *changed[:30]]))


def test_no_golden_file_is_without_its_run() -> None:
    assert {file.stem for file in FOLDER.glob("*.jsonl")} == set(RUNS)
