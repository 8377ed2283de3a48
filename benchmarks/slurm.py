"""Sixty real training jobs on a real Slurm, four ways, three seeds; and what the simulator predicts of each.

    python benchmarks/slurm.py measure       profiles and links, in a run of their own (about six minutes)
    python benchmarks/slurm.py run           all runs that have no result yet; measures and rehearses before them
    python benchmarks/slurm.py predict       the same runs in the simulator, from what was measured
    python benchmarks/slurm.py show          tables of what there is
    python benchmarks/slurm.py write         docs/live-vs-simulated.md and its picture, from what there is

Needs what `dally testbed up` needs (root, slurm-wlm, munge) and PyTorch. Every run's result is on disk when it ends
(OUT/seed-N/WAY.json): `run` may be stopped and goes on. Several go side by side, each on a bed of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from testbed.ways import WAYS

SEEDS = (1, 2, 3)
Key = tuple[int, str]  # seed and way


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    whats = ("measure", "run", "predict", "show", "write", "one")
    parser.add_argument("what", nargs="?", choices=whats, default="show")
    parser.add_argument("--out", type=Path, default=Path("slurm-results"), help="folder of results")
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=list(SEEDS))
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--side-by-side", type=int, default=4, help="runs at a time")
    chosen = parser.parse_args()
    for way in chosen.ways:
        if way not in WAYS:
            parser.error(f"there is no way {way!r}; there are {', '.join(WAYS)}")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is born deaf to it
    out = chosen.out.resolve()
    if chosen.what not in ("show", "write"):
        out.mkdir(parents=True, exist_ok=True)
    if (out / "measured" / "catalog").exists():
        os.environ["DALLY_CATALOG"] = str(out / "measured" / "catalog")
    if chosen.what == "measure":
        return measure(out)
    if chosen.what == "run":
        return run_all(out, chosen.seeds, chosen.ways, chosen.jobs, chosen.side_by_side)
    if chosen.what == "one":
        return one(out, chosen.seeds[0], chosen.ways[0], chosen.jobs)
    from testbed import predict, show

    if chosen.what == "predict":
        predict.predict_all(out, chosen.seeds, chosen.ways, chosen.jobs)
        return show.show(out)
    return show.show(out) if chosen.what == "show" else show.write(out)


def measure(out: Path) -> int:
    from testbed.calibrated import calibrate
    from testbed.measure import measure as measured

    if not (out / "measured" / "measured.json").exists():
        measured(out / "measured", lambda text: print(f"measure: {text}", flush=True))
    calibrate(out / "measured")
    return 0


def run_all(out: Path, seeds: list[int], ways: list[str], jobs: int, side_by_side: int) -> int:
    if not (out / "measured" / "cluster.yaml").exists():
        measure(out)
    os.environ["DALLY_CATALOG"] = str(out / "measured" / "catalog")
    waiting = [(seed, way) for seed in seeds for way in ways if not (out / f"seed-{seed}" / f"{way}.json").exists()]
    print(f"{len(waiting)} runs to do", flush=True)
    began = time.monotonic()
    failed = rehearse(out, side_by_side) + _run_side_by_side(out, waiting, jobs, side_by_side)
    print(f"{(time.monotonic() - began) / 60:.1f} min, {failed} runs failed", flush=True)
    return 1 if failed else 0


def rehearse(out: Path, side_by_side: int) -> int:
    """What starts and ends cost here, from a stream that no result is taken from; how many of its runs failed."""
    from testbed.rehearsal import JOBS, SEED, rehearsed
    from testbed.runs import write_json

    starts, folder = out / "measured" / "starts.json", out / f"seed-{SEED}"
    if starts.exists():
        return 0
    waiting = [(SEED, way) for way in WAYS if not (folder / f"{way}.json").exists()]
    failed = _run_side_by_side(out, waiting, JOBS, side_by_side)
    if not failed:
        write_json(starts, rehearsed(folder))
    return failed


def _run_side_by_side(out: Path, waiting: list[Key], jobs: int, side_by_side: int) -> int:
    """How many failed. However it ends, no bed is left behind."""
    running: dict[Key, subprocess.Popen[bytes]] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run_waiting(out, waiting, running, jobs, side_by_side)
    finally:
        for process in running.values():  # each takes its own bed down
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()


def _run_waiting(
    out: Path, waiting: list[Key], running: dict[Key, subprocess.Popen[bytes]], jobs: int, side_by_side: int
) -> int:
    """All of them, so many at a time; how many failed."""
    failed, began, told = 0, time.monotonic(), 0.0
    while waiting or running:
        while waiting and len(running) < side_by_side:
            seed, way = waiting.pop(0)
            words = ["one", "--out", str(out), "--seeds", str(seed), "--ways", way, "--jobs", str(jobs)]
            running[seed, way] = subprocess.Popen([sys.executable, __file__, *words])
        time.sleep(1.0)
        for key, process in list(running.items()):
            if process.poll() is not None:
                del running[key]
                failed += process.returncode != 0
        if time.monotonic() - told > 30:
            told = time.monotonic()
            now = ", ".join(f"seed {seed} {way}: {_progress(out, seed, way)}" for seed, way in running)
            print(f"{(told - began) / 60:.1f} min; {now}; {len(waiting)} runs wait", flush=True)
    return failed


def _progress(out: Path, seed: int, way: str) -> str:
    try:
        return (out / f"seed-{seed}" / way / "progress").read_text()
    except OSError:
        return "begins"


def one(out: Path, seed: int, way: str, jobs: int) -> int:
    """One run; its result is there or not, and an error is beside it."""
    from testbed.runs import one_run, write_json

    folder = out / f"seed-{seed}" / way
    result, error = folder.with_suffix(".json"), folder.with_suffix(".error")
    try:
        found: dict[str, Any] = one_run(WAYS[way], seed, jobs, folder, out / "measured",
                                        lambda text: _tell(folder, text))  # fmt: skip
    except Exception:
        error.write_text(traceback.format_exc())
        print(f"seed {seed} {way}: failed, see {error}", flush=True)
        return 1
    write_json(result, found)
    error.unlink(missing_ok=True)
    host = json.dumps({key: round(value, 2) for key, value in found["host"].items()})
    jct, whole = found["average_jct"], found["makespan"]
    print(f"seed {seed} {way}: average JCT {jct:.1f} s, makespan {whole:.0f} s, host {host}", flush=True)
    return 0


def _tell(folder: Path, text: str) -> None:
    (folder / "progress").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
