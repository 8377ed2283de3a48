"""Tables and the page: measured beside predicted, way by way, from whatever results there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from testbed.picture import picture
from testbed.rehearsal import SEED as REHEARSAL
from testbed.ways import WAYS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "live-vs-simulated.md"
PICTURE = PAGE.parent / "images" / "live-vs-simulated.svg"
BEGIN, END = "<!-- made by benchmarks/slurm.py write -->", "<!-- to here -->"
FIGURES = ("average_jct", "p95_jct", "makespan")
Result = dict[str, Any]
Pair = tuple[Result | None, Result | None]  # the run, and what was predicted of it
Found = dict[str, dict[int, Pair]]  # by way and seed


def results(out: Path) -> Found:
    found: Found = {}
    for way in WAYS:
        for folder in sorted((f for f in out.glob("seed-*") if _seed(f) != REHEARSAL), key=_seed):
            pair = _read(folder / f"{way}.json"), _read(folder / f"{way}.predicted.json")
            if pair != (None, None):
                found.setdefault(way, {})[_seed(folder)] = pair
    return found


def _seed(folder: Path) -> int:
    return int(folder.name.removeprefix("seed-"))


def _read(path: Path) -> Result | None:
    return json.loads(path.read_text()) if path.exists() else None


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*cells: str) -> list[str]:
    return [_row(*cells), "|" + "---|" * len(cells)]


def lines(out: Path) -> list[str]:
    """The tables as Markdown."""
    found = results(out)
    return [*_measured(found), "", *_against(found), "", *_predictions(found), "", *_ranking(found)]


def _measured(found: Found) -> list[str]:
    text = _head("", "seeds", "average JCT, s", "p95, s", "makespan, s", "communication", "host CPU: mean, p95")
    for way, runs in found.items():
        real = [one for one, _ in runs.values() if one is not None]
        if real:
            seeds = ", ".join(str(one["seed"]) for one in real)
            host = [f"{mean(one['host'].get(key, 0.0) for one in real):.0%}" for key in ("mean", "p95")]
            figures = [_spread([one[name] for one in real]) for name in FIGURES]
            share = f"{mean(one['communication'] for one in real):.0%}"
            text.append(_row(WAYS[way].title, seeds, *figures, share, ", ".join(host)))
    return text


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.0f}"
    return f"{mean(values):.0f} ({min(values):.0f}–{max(values):.0f})"


def _against(found: Found) -> list[str]:
    """Dally's average JCT as a ratio to the others', seed by seed: pairs, since a seed is a workload."""
    text = ["Average JCT of Dally over that of the other, on the same seed (below 1: Dally is ahead):", ""]
    text += _head("against", "by seed, measured", "mean", "by seed, predicted")
    ours = found.get("dally", {})
    for way, runs in found.items():
        if way == "dally":
            continue
        real, said = (_ratios(ours, runs, k) for k in (0, 1))
        average = f"{mean(real):.2f}" if real else "—"
        text.append(_row(WAYS[way].title, _list(real), average, _list(said)))
    return text


def _ratios(ours: dict[int, Pair], theirs: dict[int, Pair], k: int) -> list[float]:
    found = []
    for seed in sorted(set(ours) & set(theirs)):
        one, other = ours[seed][k], theirs[seed][k]
        if one is not None and other is not None:
            found.append(one["average_jct"] / other["average_jct"])
    return found


def _list(ratios: Sequence[float]) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in ratios) or "—"


def _predictions(found: Found) -> list[str]:
    text = ["Predicted is the mean over ten draws of how long starts take, with the least and the most by seed;"
            " the error is that of the mean over seeds, and by seed.", ""]  # fmt: skip
    text += _head("predicted", "average JCT, s", "draws by seed", "error", "makespan, s", "draws by seed", "error",
                  "median error of a job's JCT", "communication")  # fmt: skip
    for way, runs in found.items():
        both = [(real, said) for real, said in runs.values() if real is not None and said is not None]
        if not both:
            continue
        cells = [WAYS[way].title]
        for name in ("average_jct", "makespan"):
            cells.append(_spread([said[name] for _, said in both]))
            cells.append(", ".join("{:.0f}–{:.0f}".format(*said[f"{name}_span"]) for _, said in both))
            off_by = mean(said[name] for _, said in both) / mean(real[name] for real, _ in both) - 1
            by_seed = ", ".join(f"{said[name] / real[name] - 1:+.1%}" for real, said in both)
            cells.append(f"**{off_by:+.1%}** ({by_seed})")
        off = []
        for real, said in both:
            jcts = {job["name"]: job["jct"] for job in said["jobs"]}
            off += [abs(jcts[job["name"]] / job["jct"] - 1) for job in real["jobs"]]
        share = mean(said["communication"] for _, said in both)
        text.append(_row(*cells, f"{median(off):.0%}", f"{share:.0%}"))
    return text


def _ranking(found: Found) -> list[str]:
    """Only over seeds for which every way has both."""
    whole = [{seed for seed, pair in runs.items() if None not in pair} for runs in found.values()]
    seeds = sorted(set.intersection(*whole)) if whole else []
    if not seeds:
        return []
    orders = []
    for k in (0, 1):
        score = {way: mean((runs[seed][k] or {})["average_jct"] for seed in seeds) for way, runs in found.items()}
        orders.append(sorted(score, key=score.__getitem__))
    word = "the same" if orders[0] == orders[1] else "not the same"
    return [
        f"Order by average JCT over seeds {', '.join(map(str, seeds))}, measured: {', '.join(orders[0])}; "
        f"predicted: {', '.join(orders[1])} ({word})."
    ]


def show(out: Path) -> int:
    print("\n".join(lines(out)))
    for path in sorted(out.glob("seed-*/*.error")):
        print(f"failed: {path}: {path.read_text().strip().splitlines()[-1]}")
    return 0


def write(out: Path) -> int:
    """The page between its two marks, and the picture; the words around are written by people."""
    page = PAGE.read_text()
    if BEGIN not in page or END not in page:
        print(f"{PAGE} has no {BEGIN} … {END}")
        return 1
    head, tail = page.partition(BEGIN)[0], page.partition(END)[2]
    found = results(out)
    PICTURE.write_text(picture({way: list(runs.values()) for way, runs in found.items()}))
    middle = "\n".join([*lines(out), "", f"![measured and predicted](images/{PICTURE.name})"])
    PAGE.write_text(f"{head}{BEGIN}\n\n{middle}\n\n{END}{tail}")
    print(f"{PAGE}, {PICTURE}")
    return 0
