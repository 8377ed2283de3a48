"""What the simulator says of the same runs: the same stream, the measured models and links, and nothing of the runs."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from testbed.models import MODELS
from testbed.runs import figures, write_json
from testbed.stream import StreamJob, stream
from testbed.ways import WAYS, Way

NETWORK = "analytic[algorithm=ring]"  # gloo's all-reduce is a ring
DRAWS = 10  # of the starts' times


def trace_text(asked: list[StreamJob], way: Way) -> str:
    """The stream as a trace: declared times as everybody was told them, steps as only the world knows them."""
    lines = ["# dally-trace 1", "id,submit_time,gpus,nodes,model,declared_duration,steps,prefers,wait,preemptible"]
    for job in asked:
        wish = f"rack,{way.switches}" if way.switches is not None and job.nodes > 1 else ","
        preemptible = "true" if way.service else "false"
        told = f"{job.minutes * 60},{job.steps},{wish},{preemptible}"
        lines.append(f"{job.name},{job.submit},{job.gpus},{job.nodes},{job.model},{told}")
    return "\n".join(lines) + "\n"


def predict(way: Way, seed: int, jobs: int, measured: Path) -> dict[str, Any]:
    """The mean over draws of how long each start takes, and what the draws span: a moment more at one start may send a
    gang elsewhere, so that a single draw says less than it seems to."""
    asked = stream(seed, jobs)
    draws = [_draw(way, asked, measured, draw) for draw in range(DRAWS)]
    all_figures = [figures(jobs_of_draw) for jobs_of_draw in draws]
    spans = {f"{name}_span": [min(one[name] for one in all_figures), max(one[name] for one in all_figures)]
             for name in all_figures[0]}  # fmt: skip
    averaged = {name: mean(one[name] for one in all_figures) for name in all_figures[0]}
    jcts = [{**job, "jct": mean(draw[k]["jct"] for draw in draws)} for k, job in enumerate(draws[0])]
    return {"way": way.name, "seed": seed, "jobs": jcts, **averaged, **spans}


def _draw(way: Way, asked: list[StreamJob], measured: Path, draw: int) -> list[dict[str, Any]]:
    import dally

    starts = json.loads((measured / "starts.json").read_text())[way.name]
    leaving = json.loads((measured / "measured.json").read_text())["leaving"]
    # GPUs stay taken for a while after a job's last step. In the simulator they are taken so much earlier instead,
    # which is as long; a job's own times do not have it.
    release = starts["release"]
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "stream.csv"
        trace.write_text(trace_text(asked, way))
        run = dally.simulate(way.policy.format(conf=measured / "slurm.conf"), trace=str(trace),
                             cluster=str(measured / "cluster.yaml"), network=_network(measured), seed=draw,
                             start_latency=release + starts["start"], preemption_cost=f"{leaving}s",
                             knowledge="limits")  # fmt: skip
    rows = {row["job_id"]: row for row in run.jobs.iter_rows(named=True)}
    found = []
    for job in asked:
        row = rows[job.name]
        compute = job.steps * MODELS[job.model].compute
        found.append({"name": job.name, "gpus": job.gpus, "model": job.model, "submit": job.submit,
                      "start": row["start_time"], "end": row["end_time"] - release, "jct": row["jct"] - release,
                      "compute": compute, "step_seconds": compute + float(row["comm"] or 0.0)})  # fmt: skip
    return found


def _network(measured: Path) -> str:
    """As `dally calibrate` found it: the overlap stands beside the links."""
    found = re.search(r"analytic\[[^]]*\]", (measured / "cluster.yaml").read_text())
    return NETWORK if found is None else found[0]


def predict_all(out: Path, seeds: list[int], ways: list[str], jobs: int) -> None:
    for seed in seeds:
        (out / f"seed-{seed}").mkdir(exist_ok=True)
        for name in ways:
            write_json(out / f"seed-{seed}" / f"{name}.predicted.json",
                       predict(WAYS[name], seed, jobs, out / "measured"))  # fmt: skip
