"""The reproduction of Dally's comparison: its network is the authors', its timers are the policy's, its cells run."""

from __future__ import annotations

import csv
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from dally.catalog.clusters import load_cluster
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Instant
from dally.core.placement import Placement
from dally.core.plan import Demand, Wait
from dally.core.reasons import Reason, Token
from dally.network.artist import ArtistDimension, artist_step_ns
from dally.report.metrics import summarise
from dally.simulator.reproduce import dally as paper
from dally.simulator.reproduce.dally_network import COMPUTE, CONGESTION, PaperNetwork, TimedRun
from dally.simulator.reproduce.timer_log import Timer, TimerLog

HOUR = 3600.0
NEAR = Placement.of([(0, 0b11111111)])
RACK = Placement.of([(0, 0b1111), (1, 0b1111)])
FAR = Placement.of([(0, 0b1111), (8, 0b1111)])
MODELS = ("vgg11", "alexnet", "mobilenetv3-small", "resnet18", "resnet50", "bert-large")


def network(congestion: float = 1.0) -> PaperNetwork:
    return PaperNetwork(load_cluster("2x8x8", fabric="dally"), None, congestion)


@pytest.mark.parametrize("model", MODELS)
def test_a_step_computes_for_as_long_as_in_the_authors_runs(model: str) -> None:
    step = network().step_time(Job("a", 0.0, 8, model=model), NEAR, 0.0)
    assert step.compute == pytest.approx(COMPUTE[model], rel=0.01)


@pytest.mark.parametrize("model", MODELS)
def test_congestion_slows_what_leaves_the_machine_and_nothing_else(model: str) -> None:
    job = Job("a", 0.0, 8, model=model)
    free, congested = network(), network(10.0)
    assert congested.step_time(job, NEAR, 0.0) == free.step_time(job, NEAR, 0.0)
    for place in (RACK, FAR):
        assert congested.step_time(job, place, 0.0).seconds >= free.step_time(job, place, 0.0).seconds
    slower, before = congested.step_time(job, FAR, 0.0), free.step_time(job, FAR, 0.0)
    assert slower.seconds - slower.compute > 5 * (before.seconds - before.compute)


def test_timers_are_read_from_the_reasons_of_demands_when_they_change() -> None:
    log = TimerLog()

    def says(now: float, who: str | Demand, *evidence: float | str, token: Token = Token.WAITING_FOR_LOCALITY) -> None:
        log(Instant(now, (), (Wait(who, Reason(token, "not near enough", None, evidence)),)))

    eight = Demand(8, None)
    says(0.0, eight, "machine", 6 * HOUR, "rack", 12 * HOUR)
    says(5.0, eight, "machine", 6 * HOUR, "rack", 13 * HOUR)
    says(6.0, "job 3", "machine", 9 * HOUR)
    says(7.0, eight, "machine", 9 * HOUR, token=Token.WAITING_FOR_GPUS)
    says(8.0, Demand(16, None), "rack", "without limit")
    log(Instant(9.0, (), None))
    assert log.timers == [Timer(0.0, 8, "machine", 21600.0), Timer(0.0, 8, "rack", 43200.0),
                          Timer(5.0, 8, "rack", 46800.0), Timer(8.0, 16, "rack", math.inf)]  # fmt: skip


def small(jobs: int = 60) -> paper.Setting:
    return paper.Setting(paper.Load(paper.BATCH, None, jobs), "2x4x8", "dally")


def test_what_dally_says_of_its_timers_can_be_read_in_a_run() -> None:
    run = paper.compare(paper.experiment(small()), [paper.AUTO], workers=1)[0]
    assert isinstance(run, TimedRun)
    machine = [timer for timer in run.timers if timer.level == "machine"]
    assert machine, "nobody declined anything: the workload is too small for this test"
    # between the floor of 6 leases and the ceiling of 20, in whole leases of an hour
    assert all(6 <= timer.wait / 3600 <= 20 and timer.wait % 3600 == 0 for timer in machine)
    assert all(timer.gpus <= 8 for timer in machine)


def test_manual_timers_are_said_as_given_and_waiting_by_value_has_none() -> None:
    manual, value = paper.compare(paper.experiment(small()), ["dally[timers=manual]", paper.VALUE], workers=1)
    assert {timer.wait for timer in manual.timers if timer.level == "machine"} == {3600.0}
    assert value.timers == ()


def test_runs_come_back_in_the_order_asked_though_the_slowest_is_begun_first() -> None:
    runs = paper.compare(paper.experiment(small(jobs=10)), ["fifo", paper.TIRESIAS, paper.AUTO], workers=1)
    assert [run.policy.partition("[")[0] for run in runs] == ["fifo", "tiresias", "dally"]


def test_gandiva_in_full_shares_gpus_and_the_authors_variant_only_moves_jobs() -> None:
    made = paper.experiment(small())
    variant, full = paper.compare(made, [paper.GANDIVA, "gandiva"], workers=1)
    assert all(row.end is not None for run in (variant, full) for row in run.ledger.rows)
    told, shared = (summarise(run, made.topology) for run in (variant, full))
    assert shared.suspensions > 0 and shared.packs > 0
    assert full.packed_throughput > 1.0, "packed without the world's interference"
    assert (told.suspensions, told.packs, told.resizes) == (0, 0, 0)


def test_what_gandiva_measures_is_noisy_by_the_experiments_seed() -> None:
    made = paper.experiment(small(jobs=30))
    ends = {seed: [row.end for row in replace(made, seed=seed).run("gandiva").ledger.rows] for seed in (0, 1)}
    exact = {seed: [row.end for row in replace(made, seed=seed, measurement_noise=0.0).run("gandiva").ledger.rows]
             for seed in (0, 1)}  # fmt: skip
    assert ends[0] != ends[1] and exact[0] == exact[1]


def test_the_same_seed_draws_the_same_jobs_and_another_does_not() -> None:
    first, again, other = (paper.experiment(small(), seed).trace for seed in (1, 1, 2))
    assert first.jobs == again.jobs and first.jobs != other.jobs


def test_every_contender_of_the_list_can_be_made_and_is_named_once() -> None:
    from dally.policies.options import make_policy

    assert len({make_policy(each.policy).name for each in paper.CONTENDERS}) == len(paper.CONTENDERS)
    assert len({each.title for each in paper.CONTENDERS}) == len(paper.CONTENDERS)
    assert set(MODELS) == set(COMPUTE)


def test_the_comparison_needs_dally_and_takes_any_policy_beside_it() -> None:
    found = paper.contenders(["las", paper.AUTO])
    assert [each.title for each in found] == ["las", "Dally (auto-tuned)"]
    with pytest.raises(UserError, match="must be among them"):
        paper.contenders(["fifo"])
    with pytest.raises(UserError, match="named twice"):
        paper.contenders([paper.AUTO, "dally[window=24,timers=auto]"])


def test_an_entry_is_found_however_its_options_are_written() -> None:
    found = paper.contenders(["dally[lease=none,timers=auto]", "tiresias[quantum=60m,variant=dally-paper]"])
    assert [each.title for each in found] == ["Dally (auto-tuned)", "Tiresias (authors' variant)"]
    assert found[0].policy == paper.AUTO


def beside() -> Path:
    chosen = os.environ.get("DALLY_REFERENCE")
    base = Path(chosen) if chosen else Path(__file__).parents[3].parent / "shared"
    if not (base / "reference/dally/step_share.csv").is_file():
        pytest.skip("the reference results are not beside the repository; set DALLY_REFERENCE")
    return base


KINDS = {"Ring": "ring", "Switch": "switch", "FullyConnected": "fully-connected"}


@pytest.mark.reference
def test_congested_steps_are_those_of_the_authors_congested_runs() -> None:
    """Every run of theirs with ten times the latency: our congestion makes the same dimensions of the near ones."""
    base = beside() / "reference/dally"
    slow = network(CONGESTION["dally-congested"])
    tables = PaperNetwork(load_cluster("2x8x8", fabric="dally"), base)
    near = {("fully-connected", 0, 600): "mesh", ("ring", 500, 600): "machine", ("ring", 50_000, 20): "rack",
            ("switch", 500_000, 40): "cluster"}  # fmt: skip
    checked = 0
    with (base / "step_share.csv").open() as file:
        for row in csv.DictReader(file):
            latencies = [int(part) for part in row["latency_ns"].split("/")]
            bandwidths = [int(part) for part in row["bandwidth_GBps"].split("/")]
            if not {20, 40} & set(bandwidths):
                continue
            kinds = [KINDS[part] for part in row["topologies"].split("/")]
            units = [int(part) for part in row["units"].split("x")]
            dims: list[ArtistDimension] = []
            for kind, unit, latency, bandwidth in zip(kinds, units, latencies, bandwidths, strict=True):
                dims.append(slow.dimension(near[kind, latency, bandwidth], unit))
            table, silent = tables.table(row["model"], "A100-40GB")
            step = artist_step_ns(table, dims, silent)
            assert step.exposed / 1000 == pytest.approx(float(row["exposed_comm_us"]), rel=0.01), row
            checked += 1
    assert checked == 73
