"""Further figures, by hand on the run that is small enough for it."""

from __future__ import annotations

import numpy as np
import pytest

from dally.core.topology import Topology
from dally.report.figures import _jain, figures_of
from dally.report.metrics import summarise
from dally.report.more import FIGURES, figure_rows
from dally.simulator.run import Run


def test_slowdown_is_against_the_run_time_alone_and_short_jobs_count_as_ten_seconds(hand_run: Run, two_machines: Topology) -> None:
    more = figures_of(hand_run, two_machines)
    # a: 10 s, alone 8 s; b: 21 s, alone 10 s
    assert more.avg_bounded_slowdown == pytest.approx((10 / 10 + 21 / 10) / 2)


def test_fairness_is_against_the_share_of_those_who_were_there(hand_run: Run, two_machines: Topology) -> None:
    more = figures_of(hand_run, two_machines)
    # a lives 0..10: b is there from 5: 1.5 jobs on average, its share is 4/1.5 = 2.67 GPUs and it asks for 2
    # b lives 5..26: a until 10 (c is turned away): 1 + 5/21 jobs, it asks for 4 of its 3.2 GPUs
    b = 21 / (10 * (1 + 5 / 21))
    assert more.avg_finish_time_fairness == pytest.approx((10 / 8 + b) / 2)
    assert more.unfairly_treated_share == 1.0
    x = np.array([8 / 10, 10 / 21])
    assert more.jain_index == pytest.approx(x.sum() ** 2 / (2 * (x**2).sum()))
    assert _jain(np.array([1.0, 0, 0, 0])) == 0.25 and _jain(np.ones(3)) == 1.0


def test_idle_gpus_count_while_somebody_waits_and_fragments_on_machines_partly_used(hand_run: Run, two_machines: Topology) -> None:
    more = figures_of(hand_run, two_machines)
    # from 0 to 26: b waits 5..10 beside two free GPUs and 15..20 beside four
    assert more.idle_while_waiting_share == pytest.approx((5 * 2 + 5 * 4) / (4 * 26))
    assert more.fragmentation == 0.0  # whole machines are free or not
    assert more.availability == 1.0 and more.interruptions == more.failed_starts == 0
    assert more.restarts == 1
    assert more.energy_kwh is None  # a GPU called gpu has no data sheet


def test_useful_is_what_is_left_of_utilisation_without_communication(hand_run: Run, two_machines: Topology) -> None:
    summary = summarise(hand_run, two_machines)
    assert summary.useful_utilization is not None and summary.gpu_utilization is not None
    assert summary.useful_utilization < summary.gpu_utilization
    head, rows = figure_rows([summary])
    assert head == ["figure", "hand"] and len(rows) == len(FIGURES) + 1
