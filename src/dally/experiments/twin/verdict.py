"""How far a replay may be trusted, in words, with the limits by which that is decided."""

from __future__ import annotations

from dally.core.records import dataclass
from dally.experiments.twin.backtest import FEW, BackTest
from dally.report.wording import listed, share_text, time_text

CLOSE = "close"
ROUGH = "rough"
OFF = "off"
# Relative error of the averages up to which a replay is close, or rough: (wait, JCT, waits by partition and size).
LIMITS = {CLOSE: (0.10, 0.05, 0.25), ROUGH: (0.30, 0.15, 0.75)}
LITTLE = 0.02  # of the average JCT: waits shorter than that are none, and are not divided by


@dataclass(frozen=True, slots=True)
class Verdict:
    grade: str
    headline: str
    advice: str  # what may be read out of the what-ifs

    @property
    def usable(self) -> bool:
        return self.grade != OFF


def wait_off(test: BackTest) -> float:
    """Error of the average wait as a share of it; where hardly anybody waits, of a small part of the JCT."""
    return abs(test.whole.wait_bias) / max(test.whole.actual_wait, LITTLE * test.whole.actual_jct, 1e-9)


def jct_off(test: BackTest) -> float:
    return abs(test.whole.jct_bias) / max(test.whole.actual_jct, 1e-9)


def groups_off(test: BackTest) -> float:
    """Mean error of the average waits of partitions, or of sizes if that is more, by their numbers of jobs, over the
    average wait: an average may be right because what is wrong in it cancels out."""
    usual = max(test.whole.actual_wait, LITTLE * test.whole.actual_jct, 1e-9)
    return max(sum(abs(each.wait_bias) * each.jobs for each in test.groups[what]) / len(test.jobs) / usual
               for what in ("partition", "size"))  # fmt: skip


def grade_of(test: BackTest) -> str:
    for grade, (wait, jct, groups) in LIMITS.items():
        if (wait_off(test) <= wait and jct_off(test) <= jct and groups_off(test) <= groups
                and (test.partitions_in_order or grade == ROUGH)):  # fmt: skip
            return grade
    return OFF


def _worst_groups(test: BackTest) -> str:
    """Partitions and sizes whose waits are off by more than a fifth, where that is worth more than a minute."""
    groups = [(what, each) for what in ("partition", "size") for each in test.groups[what] if each.jobs >= FEW]
    found = [f"{what} {each.name} by {_signed(each.wait_bias, each.actual_wait)}" for what, each in groups
             if abs(each.wait_bias) > max(60.0, 0.2 * each.actual_wait)]  # fmt: skip
    return f" Parts of it are not to be trusted alone: waits of {listed(found)} are off." if found else ""


def judge(test: BackTest) -> Verdict:
    grade, whole = grade_of(test), test.whole
    waits = _signed(whole.wait_bias, whole.actual_wait)
    figures = (f"average wait {time_text(whole.simulated_wait)} simulated against {time_text(whole.actual_wait)} in "
               f"the record ({waits}), average JCT {time_text(whole.simulated_jct)} against "
               f"{time_text(whole.actual_jct)} ({_signed(whole.jct_bias, whole.actual_jct)})")  # fmt: skip
    first = {
        CLOSE: "The replay is close to what happened",
        ROUGH: "The replay is roughly what happened",
        OFF: "The replay is NOT what happened",
    }[grade]
    single = (f" Single jobs are off by {time_text(whole.wait_error)} on average: a queue amplifies small differences, "
              "so that averages may be trusted where single jobs may not.")  # fmt: skip
    smallest = f"Differences below {time_text(test.wait.most)} of wait or {time_text(test.jct.most)} of JCT are noise."
    advice = {
        CLOSE: f"What follows may be trusted as far as averages go. {smallest}",
        ROUGH: f"What follows shows directions; sizes may be off by as much as the replay is. {smallest}",
        OFF: "What follows is no statement about this cluster until the replay is mended; read first what may explain "
             f"the difference. {smallest}",
    }[grade]
    if not test.partitions_in_order:
        advice = "The partitions do not even come in the order of their real waits. " + advice
    return Verdict(grade, f"{first}: {figures}.", advice + _worst_groups(test) + single)


def _signed(bias: float, actual: float) -> str:
    if not actual:
        return f"{'+' if bias >= 0 else '−'}{time_text(abs(bias))}"
    return f"{'+' if bias >= 0 else '−'}{share_text(abs(bias) / actual)}"
