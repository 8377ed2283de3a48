"""The twin's tables, the same for terminal and page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dally.experiments.twin.backtest import FEW, BackTest, Held
from dally.experiments.twin.fitting import Fit
from dally.experiments.twin.trip import Twin
from dally.experiments.twin.whatif import Difference
from dally.report.wording import time_text

Table = tuple[list[str], list[list[str]]]
MOST_TRIED = 8
_WAIT_AND_JCT = ["jobs", "wait recorded", "simulated", "off by", "JCT recorded", "simulated", "off by",
                 "single waits off by"]  # fmt: skip


def groups_table(test: BackTest, what: Sequence[str] = ("partition", "size")) -> Table:
    rows = [held_row(test.whole, "")]
    for name in what:
        rows += [held_row(each, f"{name} ") for each in test.groups[name] if each.jobs >= FEW]
    return ["", *_WAIT_AND_JCT], rows


def held_row(held: Held, kind: str) -> list[str]:
    return [f"{kind}{held.name}", f"{held.jobs:,}", time_text(held.actual_wait), time_text(held.simulated_wait),
            off_text(held.wait_bias, held.actual_wait), time_text(held.actual_jct), time_text(held.simulated_jct),
            off_text(held.jct_bias, held.actual_jct), time_text(held.wait_error)]  # fmt: skip


def off_text(bias: float, actual: float) -> str:
    """`+12 %`; in seconds where there is nothing to take a share of."""
    if actual < 1.0:
        return signed(bias)
    text = f"{100 * bias / actual:+.1f} %"
    return text.replace("-", "−")


def signed(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    if round(seconds, 3) == 0:
        return "0 s"
    return f"{'+' if seconds > 0 else '−'}{time_text(abs(seconds))}"


def tried_table(fit: Fit) -> Table:
    rows = [[each.policy, f"{each.jobs:,}", f"{each.off:.2f}", time_text(each.wait)] for each in fit.tried[:MOST_TRIED]]
    recorded = ["recorded", f"{fit.fitted_on:,}", "", time_text(fit.actual_wait)]
    return ["policy", "jobs", "misfit", "average wait"], [*rows, recorded]


def what_if_table(twin: Twin) -> Table:
    whole, present = twin.test.whole, twin.test.replay
    head = ["", "told", "avg wait", "difference", "avg JCT", "difference", "makespan", "not compared"]
    rows = [["recorded", "", time_text(whole.actual_wait), "", time_text(whole.actual_jct), "", "", ""],
            [f"replayed: {twin.test.policy}", present.told, time_text(whole.simulated_wait), "",
             time_text(whole.simulated_jct), "", time_text(present.makespan), ""]]  # fmt: skip
    for each in twin.what_ifs:
        rows.append([each.title, each.replay.told, time_text(each.avg_wait), difference_text(each.wait),
                     time_text(each.avg_jct), difference_text(each.jct), time_text(each.replay.makespan),
                     f"{each.replay.unfinished:,}" if each.replay.unfinished else ""])  # fmt: skip
    return head, rows


def groups_if_table(twin: Twin, what: str) -> Table:
    """Average waits of groups: the replayed present, and what each what-if would change."""
    groups = [each for each in twin.test.groups[what] if each.jobs >= FEW]
    others = [{held.name: held for held in each.groups[what]} for each in twin.what_ifs]
    rows = [[each.name, f"{each.jobs:,}", time_text(each.simulated_wait),
             *(signed(other[each.name].wait_bias) if each.name in other else "–" for other in others)]
            for each in groups]  # fmt: skip
    return ["", "jobs", "wait replayed", *(each.title for each in twin.what_ifs)], rows


def difference_text(found: Difference) -> str:
    text = f"{signed(found.value)} ({signed(found.low)} … {signed(found.high)})"
    return text if found.sure else f"{text}, within the model's error"
