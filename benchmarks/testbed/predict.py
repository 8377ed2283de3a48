"""What the simulator says of the same runs: the same stream, the measured models and links, and nothing of the runs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from testbed.models import MODELS
from testbed.runs import figures, write_json
from testbed.stream import StreamJob, stream
from testbed.ways import WAYS, Way

NETWORK = "analytic[algorithm=ring]"  # gloo's all-reduce is a ring


def trace_text(asked: list[StreamJob], way: Way) -> str:
    """The stream as a trace: declared times as everybody was told them, steps as only the world knows them."""
    lines = ["# dally-trace 1", "id,submit_time,gpus,model,declared_duration,steps,prefers,wait,preemptible"]
    for job in asked:
        wish = f"rack,{way.switches}" if way.switches is not None and job.nodes > 1 else ","
        preemptible = "true" if way.service else "false"
        lines.append(
            f"{job.name},{job.submit},{job.gpus},{job.model},{job.minutes * 60},{job.steps},{wish},{preemptible}"
        )
    return "\n".join(lines) + "\n"


def predict(way: Way, seed: int, jobs: int, measured: Path) -> dict[str, Any]:
    import dally

    starts = json.loads((measured / "measured.json").read_text())["starts"]
    asked = stream(seed, jobs)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "stream.csv"
        trace.write_text(trace_text(asked, way))
        run = dally.simulate(way.policy.format(conf=measured / "slurm.conf"), trace=str(trace),
                             cluster=str(measured / "cluster.yaml"), network=NETWORK, seed=seed,
                             start_latency=starts["served" if way.service else "launched"] + starts["ready"],
                             preemption_cost=f"{starts['leaving']}s", knowledge="exact")  # fmt: skip
    rows = {row["job_id"]: row for row in run.jobs.iter_rows(named=True)}
    found = []
    for job in asked:
        row = rows[job.name]
        compute = job.steps * MODELS[job.model].compute
        found.append({"name": job.name, "gpus": job.gpus, "model": job.model, "submit": job.submit,
                      "start": row["start_time"], "end": row["end_time"], "jct": row["jct"], "compute": compute,
                      "step_seconds": compute + float(row["comm"] or 0.0)})  # fmt: skip
    return {"way": way.name, "seed": seed, "jobs": found, **figures(found)}


def predict_all(out: Path, seeds: list[int], ways: list[str], jobs: int) -> None:
    for seed in seeds:
        (out / f"seed-{seed}").mkdir(exist_ok=True)
        for name in ways:
            write_json(out / f"seed-{seed}" / f"{name}.predicted.json",
                       predict(WAYS[name], seed, jobs, out / "measured"))  # fmt: skip
