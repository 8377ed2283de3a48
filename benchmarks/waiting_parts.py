"""The studies `parts` and `constants` of `waiting.py`: dally with one part after the other taken out, or one constant
changed.

A part is taken out here, by putting something in its place for the time of one run: none of this is an option.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from dally.core.ranking import Rank
from dally.experiments.sweeps.statistics import paired
from dally.policies.dally import dealing, order, poles, value, waiting
from dally.policies.dally.forecast import Forecast
from dally.policies.dally.tiers import Tiers

Change = tuple[Any, str, Any]  # of what, which name, and what it is for one run


def _in_order_of_arrival(rules: value.Value, view: Any, memory: Any, job: Any, now: float) -> Rank:
    return Rank(job.job.submit_time)


# part → the policy, and what is changed; `dally` as it is comes first
PARTS: dict[str, tuple[str, Sequence[Change]]] = {
    "dally": ("dally", ()),
    "order: arrival instead": ("dally", [(value.Value, "rank", _in_order_of_arrival)]),
    "order: GPU time however few wait": ("dally", [(order, "weight", lambda gpus, *_: float(gpus))]),
    "order: time however many wait": ("dally[breadth=0]", ()),
    "order: √GPUs": ("dally", [(order, "weight", lambda gpus, *_: math.sqrt(gpus))]),
    "units: work, not time": ("dally", [(Forecast, "_near_speed", lambda forecast, job: 1.0)]),
    "placement: first fit": ("dally[fit=first]", ()),
    "local preemption: none": ("dally", [(dealing.Dealing, "_take_from_others", lambda *_: None)]),
    "no preemption, no moves": ("dally[preempt=never]", ()),
    "stopping rule: never wait": ("dally[waits=never]", ()),
    "stopping rule: always wait": ("dally[waits=always]", ()),
    "poles: none": ("dally", [(poles, "URGENT", math.inf)]),
    "shapes: GPUs of a domain, wherever": ("dally", [(Tiers, "machines_for", lambda *_: 1),
                                                     (Tiers, "scattered", lambda *_: False)]),
    "ageing: none": ("dally", [(order, "AGEING", 0.0)]),
    "AGEING 0.03": ("dally", [(order, "AGEING", 0.03)]),
    "AGEING 0.3": ("dally", [(order, "AGEING", 0.3)]),
    "MARGIN 1.2": ("dally", [(dealing, "MARGIN", 1.2)]),
    "MARGIN 4": ("dally", [(dealing, "MARGIN", 4.0)]),
    "order: breadth 1/2": ("dally[breadth=0.5]", ()),
    "starved: nothing kept for them": ("dally", [(dealing.Dealing, "_starved", lambda *_: False)]),
    "URGENT 2": ("dally", [(poles, "URGENT", 2.0)]),
    "SHARE 1/4": ("dally", [(poles, "SHARE", 1 / 4)]),
    "lease 2 min": ("dally[lease=2m]", ()),
}  # fmt: skip
_LASTING = "dally[preempt=never]"
# the same where nobody is preempted
CONSTANTS: dict[str, tuple[str, Sequence[Change]]] = {
    "dally": (_LASTING, ()),
    "never wait": ("dally[waits=never,preempt=never]", ()),
    "always wait": ("dally[waits=always,preempt=never]", ()),
    "the load declines nothing": (_LASTING, [(waiting, "FULL", 0.0)]),
    "FULL 1/5": (_LASTING, [(waiting, "FULL", 1 / 5)]),
    "FULL 2/3": (_LASTING, [(waiting, "FULL", 2 / 3)]),
    "IDLE 1": (_LASTING, [(waiting, "IDLE", 1.0)]),
    "IDLE 1/4": (_LASTING, [(waiting, "IDLE", 1 / 4)]),
    "IDLE 1/32": (_LASTING, [(waiting, "IDLE", 1 / 32)]),
    "nothing kept for the starved": (_LASTING, [(dealing.Dealing, "_starved", lambda *_: False)]),
    "poles: none": (_LASTING, [(poles, "URGENT", math.inf)]),
    "ageing: none": (_LASTING, [(order, "AGEING", 0.0)]),
    "AGEING 0.3": (_LASTING, [(order, "AGEING", 0.3)]),
}  # fmt: skip
FIGURES = {"avg_jct": "average JCT", "p99_jct": "p99 JCT", "wide": "slowdown over 8 GPUs",
           "worst_class": "worst class", "longest_queueing": "longest queueing", "makespan": "makespan"}  # fmt: skip


@contextmanager
def taken_out(changes: Sequence[Change]) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, put in changes:
            setattr(owner, name, put)
        yield
    finally:
        for owner, name, was in before:
            setattr(owner, name, was)


def tables(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Every part over dally as it is: the mean over cells of the logarithms, paired by seed. Without a part that earns
    something the figures are above 1."""
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    yield "| without, or instead | " + " | ".join(FIGURES.values()) + " | average JCT by cell |"
    yield "|---" * (len(FIGURES) + 2) + "|"
    for part in dict.fromkeys((*PARTS, *CONSTANTS)):
        if part == "dally" or not any(row["policy"] == part for row in rows):
            continue
        found = [_over_cells(rows, cells, part, figure) for figure in FIGURES]
        single = []
        for cell in cells:
            ratio = paired(_by_seed(rows, cell, part), _by_seed(rows, cell, "dally"))
            single.append("" if ratio is None else f"{ratio.value:.2f}")
        yield f"| {part} | {' | '.join(found)} | {', '.join(single)} |"
    yield ""
    yield "Cells, in the order of the last column: " + "; ".join(cells) + "."


def _over_cells(rows: Sequence[Mapping[str, Any]], cells: Sequence[str], part: str, figure: str) -> str:
    """The seeds are the sample: per seed the geometric mean over the cells."""
    ours, theirs = ({cell: _by_seed(rows, cell, name, figure) for cell in cells} for name in (part, "dally"))
    seeds = set.intersection(*(set(values) for made in (ours, theirs) for values in made.values()))
    if not seeds:
        return ""
    good = [cell for cell in cells if all(made[cell][seed] > 0 for made in (ours, theirs) for seed in seeds)]
    if not good:
        return ""
    per_seed = {seed: math.exp(fmean(math.log(ours[cell][seed] / theirs[cell][seed]) for cell in good))
                for seed in seeds}  # fmt: skip
    ratio = paired(per_seed, dict.fromkeys(per_seed, 1.0))
    assert ratio is not None
    return f"{ratio.value:.2f}" if ratio.low is None else f"{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def _by_seed(rows: Sequence[Mapping[str, Any]], cell: str, policy: str, figure: str = "avg_jct") -> dict[int, float]:
    return {row["seed"]: row[figure] for row in rows if row["cell"] == cell and row["policy"] == policy}
