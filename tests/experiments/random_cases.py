"""Random scenarios and policies, small enough to run many of."""

from __future__ import annotations

import os
from random import Random
from typing import Any

POLICIES = ["fifo", "fifo[backfill=true]", "smallest", "srtf", "srtf[gpu_time=true,placement=best-fit]", "las", "las[quantum=5m]",
            "tiresias", "gandiva", "dally", "dally[timers=auto]", "gavel", "gavel[objective=makespan]"]  # fmt: skip


def count(default: int) -> int:
    """How many to try: a few in every run of the tests, as many as one likes with DALLY_RANDOM_CASES=50."""
    return int(os.environ.get("DALLY_RANDOM_CASES", default))


def random_case(number: int) -> tuple[dict[str, Any], str]:
    """Fields of a scenario, and a policy."""
    chance = Random(f"case {number}")
    fields: dict[str, Any] = {
        "trace": chance.choice(["synth:helios", "synth:philly", "synth:gavel", "synth:helios-multi", "synth:dally-poisson", "jobs.csv"]),
        "cluster": chance.choice(["1x2x8", "2x2x4", "v100=8,p100=8", "2x2x8"]),
        "seed": chance.randrange(1000),
        "jobs": chance.randrange(15, 45),
    }
    choices: dict[str, list[Any]] = {
        "load": [0.6, 1.0, 1.4],
        "window": ["all", "20%..80%", "0%..100%"],
        "network": ["analytic", "ideal", "level-penalty[rack=1.2,cluster=2]", "analytic[contention=off]", "astra"],
        "preemption_cost": ["0", "30s", "model[storage=5GB/s]", "original", "gandiva"],
        "knowledge": ["declared", "none", "noisy=0.5"],
        "mtbf": [5 * 86400.0],
        "job_mtbf": [2 * 86400.0],
        "checkpoint_interval": [0.0, 600.0],
        "measurement_noise": [0.0, 0.1],
        "slices": ["quanta"],
        "duration_means": ["one-gpu"],
    }
    for name, values in choices.items():
        if chance.random() < 0.4:
            fields[name] = chance.choice(values)
    if fields["trace"] == "jobs.csv" and chance.random() < 0.5:
        fields["resample"] = True
    return fields, chance.choice(POLICIES)


TRACE = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n" + "".join(
    f"{i},{(1, 2, 4, 8)[i % 4]},{i * 97},100,resnet50,{600 + 937 * i % 8000},7\n" for i in range(60)
)
