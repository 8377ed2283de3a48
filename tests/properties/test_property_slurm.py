"""What Slurm promises where nobody lies about limits: what was planned for the first in the queue does not slip."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Spec, cluster, job, play
from dally.core import plan as pl
from dally.core.topology import Topology

CLUSTERS = [cluster(4), cluster(2, 4), cluster(2, 2, 2), cluster(2, 4, 2), cluster(3, 2, 4)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Spec], Topology]:
    topology = draw(st.sampled_from(CLUSTERS))
    rows = st.tuples(st.sampled_from([1, 1, 2, 2, 4, 8]), st.integers(1, 900), st.integers(0, 600), st.integers(0, 1800))
    jobs = []
    for number, (gpus, seconds, submit, more) in enumerate(draw(st.lists(rows, min_size=2, max_size=25))):
        made = job(f"j{number}", gpus, seconds, submit)
        jobs.append(Spec(replace(made.job, declared_duration=float(seconds + more)), made.truth))
    return jobs, topology


@pytest.mark.parametrize("options", ["bf_interval=10", "bf_interval=1,batch_sched_delay=0,bf_resolution=1", ""])
@settings(max_examples=60, deadline=None)
@given(stream=streams())
def test_the_first_in_the_queue_starts_no_later_than_it_was_told(stream: tuple[list[Spec], Topology], options: str) -> None:
    """Slurm takes jobs that end within a window to end at once, and the window is the wider the further away: what it
    foresees may move by that. Here every job ends on its own, so that what remains is the reservation."""
    jobs, topology = stream
    first_never_slips(jobs, topology, ",".join(filter(None, [options, "one_by_one=true"])))


def first_never_slips(jobs: list[Spec], topology: Topology, options: str) -> None:
    played = play(jobs, topology, f"slurm[{options}]" if options else "slurm")
    fits = {spec.job.id: spec for spec in jobs if spec.job.gpus <= topology.gpus}
    order = sorted(fits, key=lambda name: (fits[name].job.submit_time, [s.job.id for s in jobs].index(name)))
    started = {entry.job: time for time, entry in played.of(pl.Start)}  # type: ignore[union-attr]
    delay = 0.0 if "batch_sched_delay=0" in options else 3.0
    promised: dict[str, float] = {}
    for time, entry in played.of(pl.Wait):
        who, until = entry.who, entry.reason.until  # type: ignore[union-attr]
        ahead = [name for name in order if fits[name].job.submit_time <= time < started[name]]
        if until is not None and ahead and who == ahead[0]:
            # within the same wait what it is told only gets better, and what it was told first is kept
            assert until <= promised.get(str(who), math.inf) + 1e-6
            promised[str(who)] = until
    for name, until in promised.items():
        assert started[name] <= until + delay + 1e-6

