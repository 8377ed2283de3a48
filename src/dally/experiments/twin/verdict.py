"""How far a replay may be trusted, in words, with the limits by which that is decided."""

from __future__ import annotations

from dataclasses import dataclass

from dally.experiments.twin.backtest import BackTest
from dally.report.wording import share_text, time_text

CLOSE = "close"
ROUGH = "rough"
OFF = "off"
# Relative error of the averages up to which a replay is close, or rough: (wait, JCT).
LIMITS = {CLOSE: (0.10, 0.05), ROUGH: (0.30, 0.15)}
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


def grade_of(test: BackTest) -> str:
    for grade, (wait, jct) in LIMITS.items():
        if wait_off(test) <= wait and jct_off(test) <= jct and (test.partitions_in_order or grade == ROUGH):
            return grade
    return OFF


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
    return Verdict(grade, f"{first}: {figures}.", advice + single)


def _signed(bias: float, actual: float) -> str:
    if not actual:
        return f"{'+' if bias >= 0 else '−'}{time_text(abs(bias))}"
    return f"{'+' if bias >= 0 else '−'}{share_text(abs(bias) / actual)}"
