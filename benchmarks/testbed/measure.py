"""Profiles of the four models, measured on a bed before any run: steps alone, in a machine, in a rack and across racks.

What comes of them is all that the simulator and the service are told: a catalog of models with their measured compute
time, a cluster file with links as calibrated, and what leaving takes; what starts take is rehearsed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from dally.live.testbed.bed import Bed
from testbed.host import Load
from testbed.models import MODELS
from testbed.runs import Say, bed_for, finished_at, read_log, starter_in, write_json
from testbed.ways import HERE, RANK

STEPS = 9
LEAVE = (("language", ("n1", "n2", "n3", "n4"), 2), ("speech", ("n1", "n2"), 2), ("vision", ("n1",), 2))
NAMES = tuple(sorted(MODELS))
Wave = list[tuple[str, tuple[str, ...], int]]  # (model, nodes, GPUs on each): all at once, on links of their own


def waves() -> list[Wave]:
    """Gangs inside racks go side by side, since they share no link; those across racks one at a time."""
    pairs = (("n1", "n2"), ("n3", "n4"), ("n5", "n6"), ("n7", "n8"))
    alone: Wave = [(name, (f"n{k}",), 1) for k, name in enumerate(NAMES, start=1)]
    alone += [(name, (f"n{k}",), 2) for k, name in enumerate(NAMES, start=5)]
    found = [alone]
    for gpus in (1, 2):
        found.append([(name, pair, gpus) for name, pair in zip(NAMES, pairs, strict=True)])
    for k in (0, 2):
        found.append([(NAMES[k], ("n1", "n2", "n3", "n4"), 2), (NAMES[k + 1], ("n5", "n6", "n7", "n8"), 2)])
    for name in NAMES:
        found += [[(name, ("n1", "n5"), 1)], [(name, ("n2", "n6"), 2)], [(name, ("n1", "n2", "n5", "n6"), 2)]]
    return found


def measure(folder: Path, say: Say, steps: int = STEPS) -> dict[str, Any]:
    """Run all waves and write measured.json, cluster.yaml and the catalog into `folder`."""
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    todo = waves()
    with bed_for("b-measure", folder) as bed, starter_in(folder) as starter, Load() as load:
        for number, wave in enumerate(todo):
            say(f"wave {number + 1} of {len(todo)}")
            rows += _wave(bed, wave, starter, logs, number, steps)
        say("asked to leave")
        leaving = [_leaving(bed, starter, logs, *gang) for gang in LEAVE]
        write_models(folder / "catalog", rows)
    found = {"steps": rows, "host": load.figures(), "leaving": statistics.median(leaving)}
    write_json(folder / "measured.json", found)
    return found


def _wave(bed: Bed, wave: Wave, starter: Path, logs: Path, number: int, steps: int) -> list[dict[str, Any]]:
    files = {}
    for index, (model, nodes, gpus) in enumerate(wave):
        log = files[index] = logs / f"{number}-{index}.jsonl"
        log.unlink(missing_ok=True)
        _sbatch(bed, starter, log, nodes, gpus, _words(model, steps, log))
    ended = f"wave {number} does not end: see {logs}"
    _until(lambda: all(finished_at(read_log(log)) for log in files.values()), ended, 300)
    time.sleep(0.5)
    rows = []
    for index, (model, nodes, gpus) in enumerate(wave):
        events = {event["event"]: event for event in read_log(files[index])}
        rows.append({"model": model, "nodes": nodes, "gpus": gpus, "seconds": events["end"]["median"],
                     "ready": events["ready"]["time"] - events["begin"]["time"]})  # fmt: skip
    return rows


def _leaving(bed: Bed, starter: Path, logs: Path, model: str, nodes: tuple[str, ...], gpus: int) -> float:
    """Seconds from the signal to the end of a gang that saves and leaves."""
    log = logs / f"leaves-{model}.jsonl"
    log.unlink(missing_ok=True)
    checkpoint = ["--checkpoint", str(logs / f"checkpoint-{model}-{time.time():.0f}")]
    job = _sbatch(bed, starter, log, nodes, gpus, [*_words(model, 1000, log), *checkpoint])
    _until(lambda: any(event["event"] == "steps" for event in read_log(log)), f"{model} does not begin: see {log}")
    asked = time.time()
    bed.client("scancel", "--signal=TERM", job)
    _until(lambda: any(event["event"] == "end" for event in read_log(log)), f"{model} does not leave: see {log}")
    left = next(event["time"] for event in read_log(log) if event["event"] == "end")
    _until(lambda: not bed.client("squeue", "-h", "-j", job, "-t", "R", "-o", "%i").strip(), f"{model} does not end")
    return float(left - asked)


def _sbatch(bed: Bed, starter: Path, log: Path, nodes: Sequence[str], gpus: int, words: Sequence[str]) -> str:
    options = ["--parsable", f"-N{len(nodes)}", "-w", ",".join(nodes), f"--gres=gpu:{gpus}", "--time=10",
               f"--ntasks-per-node={gpus}", "-o", str(log.with_suffix(".txt")),
               f"--export=ALL,BENCHMARK_STARTER={starter}"]  # fmt: skip
    return bed.client("sbatch", *options, str(HERE / "job.sh"), *words, patience=60.0).strip()


def _until(met: Callable[[], bool], what: str, patience: float = 120.0) -> None:
    end = time.monotonic() + patience
    while not met():
        if time.monotonic() > end:
            raise RuntimeError(what)
        time.sleep(0.2)


def _words(model: str, steps: int, log: Path) -> list[str]:
    return [sys.executable, "-I", "-S", str(RANK), "--model", model, "--steps", str(steps), "--log", str(log)]


def write_models(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A catalog in which a layer takes its part of the step that one GPU was seen to take."""
    folder.mkdir(parents=True, exist_ok=True)
    models = {}
    for name, kind in MODELS.items():
        alone = next(row["seconds"] for row in rows if row["model"] == name and len(row["nodes"]) * row["gpus"] == 1)
        longer = alone / kind.compute
        models[name] = {
            "family": "cnn", "batch_size": 1, "measured_on": "CPU", "update": 1e-6,
            "source": "measured by benchmarks/slurm.py on a test bed",
            "buckets": [kind.bucket] * kind.pieces,
            "layers": [{"name": f"layer{number}", "kind": "linear", "parameters": layer.parameters,
                        "gradient_bytes": layer.parameters * 4,
                        "measured": {"forward": layer.forward * longer, "backward": layer.backward * longer}}
                       for number, layer in enumerate(kind.layers)],
        }  # fmt: skip
    (folder / "models.yaml").write_text(yaml.safe_dump({"models": models}, sort_keys=False))
