"""Links fitted to steps: found again where a model made the steps, and told honestly where something else did."""

from __future__ import annotations

import csv
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.catalog.clusters import load_cluster
from dally.cli.main import cli
from dally.core.errors import UserError
from dally.core.placement import Placement
from dally.core.topology import Topology
from dally.network.explain import parse_placement
from dally.profiler.calibrate import MeasuredStep, calibrate, having, predicted

CLUSTER = """\
dally-cluster: 1
name: lab
fabric:
  levels:
    - {name: rack, kind: switch, bandwidth: 10 Gbit/s, per: machine, latency: 20us}
    - {name: cluster, kind: switch, bandwidth: 20 Gbit/s, per: unit, latency: 20us}
racks: 2
machines: 4
machine: {gpu: V100, gpus: 4, links: [{kind: switch, bandwidth: 12 GB/s, latency: 5us}]}
"""
MODELS = ("resnet50", "vgg16", "bert-base", "alexnet")
PLACES = ("2", "4", "1+1", "4+4", "2+2+2+2", "1|1", "4|4", "4+4|4+4")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "lab.yaml"
    path.write_text(CLUSTER)
    return path


def truth(topology: Topology) -> Topology:
    """The same cluster with other links, as if its file had been wrong."""
    levels = list(topology.levels)
    factors = {"rack": (0.4, 3.0), "cluster": (0.1, 2.0)}
    for index, level in enumerate(levels):
        if level.name in factors:
            wide, late = factors[level.name]
            levels[index] = replace(level, bandwidth=level.bandwidth * wide, latency=level.latency * late)
    return having(topology, levels)


def steps_on(real: Topology, noise: float = 0.0, seed: int = 1) -> list[MeasuredStep]:
    chance = random.Random(seed)
    plain = [MeasuredStep(model, parse_placement(place, real, None), 1.0) for model in MODELS for place in PLACES]
    said = predicted(real, real.levels, plain, "analytic")
    return [replace(step, seconds=value * chance.lognormvariate(0, noise)) for step, value in zip(plain, said, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "near"), [(0.0, 0.03), (0.03, 0.12)])
def test_the_bandwidths_that_made_the_steps_are_found_again(lab: Path, noise: float, near: float) -> None:
    topology = load_cluster(str(lab))
    real = truth(topology)
    found = calibrate(topology, steps_on(real, noise))
    for index, level in enumerate(real.levels):
        if level.name in ("rack", "cluster"):
            assert found.levels[index].bandwidth == pytest.approx(level.bandwidth, rel=near)
    assert found.after.mean < 0.25 * found.before.mean and found.after.mean < 0.01 + noise
    assert {step.placement for step in found.held_out} and not set(found.held_out) & set(found.fit)


def test_what_no_step_crossed_or_felt_stays_as_it_was(lab: Path) -> None:
    topology = load_cluster(str(lab))
    inside = [step for step in steps_on(truth(topology)) if len(step.placement.slices) == 1 or step.placement.gpus == 2]
    near = [step for step in inside if step.placement.level(topology) < len(topology.levels) - 1]
    found = calibrate(topology, near)
    assert "cluster" not in found.fitted_levels
    assert found.levels[-1] == topology.levels[-1]


@pytest.mark.slow
def test_steps_that_no_link_explains_do_not_get_a_good_error(lab: Path) -> None:
    topology = load_cluster(str(lab))
    chance = random.Random(3)
    wild = [replace(step, seconds=step.seconds * chance.choice((0.3, 1, 3))) for step in steps_on(topology)]
    assert calibrate(topology, wild).after.mean > 0.2


@pytest.mark.slow
def test_measurements_of_one_pair_are_one_step_so_that_none_is_on_both_sides(lab: Path) -> None:
    topology = load_cluster(str(lab))
    once = steps_on(topology)
    thrice = [replace(step, seconds=step.seconds * factor) for step in once for factor in (0.5, 1.0, 9.0)]
    assert calibrate(topology, thrice) == calibrate(topology, once)


def test_too_little_to_fit_is_said(lab: Path) -> None:
    topology = load_cluster(str(lab))
    alone = MeasuredStep("resnet50", Placement.of([(0, 1)]), 0.2)
    with pytest.raises(UserError, match="too few"):
        calibrate(topology, [alone])
    with pytest.raises(UserError, match="more than one GPU"):
        calibrate(topology, [alone, replace(alone, model="vgg16")])
    with pytest.raises(UserError, match="above 0"):
        calibrate(topology, [replace(alone, seconds=0.0)])


def write_steps(path: Path, steps: list[MeasuredStep], topology: Topology) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("model", "placement", "seconds"))
        for step in steps:
            places = ",".join(f"{topology.machines[m].name}:{mask.bit_count()}" for m, mask in step.placement.slices)
            writer.writerow((step.model, places, step.seconds))
    return path


def test_the_command_writes_a_cluster_file_that_predicts_the_steps(lab: Path, tmp_path: Path) -> None:
    topology = load_cluster(str(lab))
    real = truth(topology)
    steps = steps_on(real)
    table, out = write_steps(tmp_path / "steps.csv", steps, topology), tmp_path / "out.yaml"
    done = CliRunner().invoke(cli, ["calibrate", str(table), "--cluster", str(lab), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "held out, after" in done.output
    read = load_cluster(str(out))
    assert [machine.name for machine in read.machines] == [machine.name for machine in topology.machines]
    said = predicted(read, read.levels, steps, "analytic")
    assert max(abs(value / step.seconds - 1) for value, step in zip(said, steps, strict=True)) < 0.05


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,seconds\nresnet50,1\n", "line 1.*placement"),
        ("model,placement,seconds\nnobody,2,1\n", "line 2.*nobody"),
        ("model,placement,seconds\nresnet50,9+9,1\n", "line 2"),
        ("model,placement,seconds\nresnet50,2,soon\n", "line 2"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_its_line(lab: Path, tmp_path: Path, text: str, said: str) -> None:
    table = tmp_path / "steps.csv"
    table.write_text(text)
    done = CliRunner().invoke(cli, ["calibrate", str(table), "--cluster", str(lab), "--out", str(tmp_path / "o.yaml")])
    assert isinstance(done.exception, UserError)
    assert re.search(said, str(done.exception))


def test_a_runs_record_is_measured_steps_too(lab: Path, tmp_path: Path) -> None:
    """The journal of a simulated run on the true links has the steps that its jobs reported."""
    import dally

    topology = load_cluster(str(lab))
    real = truth(topology)
    jobs = "\n".join(f"{n},{1000 * n},{gpus},{model},600" for n, (model, gpus) in enumerate(
        (model, gpus) for model in MODELS for gpus in (1, 2, 4, 8, 16, 32)))  # fmt: skip
    trace = tmp_path / "jobs.csv"
    trace.write_text(f"# dally-trace 1\nid,submit_time,gpus,model,duration\n{jobs}\n")
    dally.simulate("fifo", trace=str(trace), cluster=real, out=tmp_path / "run")
    out = tmp_path / "out.yaml"
    done = CliRunner().invoke(cli, ["calibrate", str(tmp_path / "run"), "--cluster", str(lab), "--out", str(out)])
    assert done.exit_code == 0, (done.output, done.exception)
    found = load_cluster(str(out))
    rack = [level.name for level in real.levels].index("rack")
    assert found.levels[rack].bandwidth == pytest.approx(real.levels[rack].bandwidth, rel=0.05)


@pytest.mark.slow
def test_an_exchange_that_hides_behind_less_of_backward_is_found_as_that_and_not_as_slow_links(lab: Path) -> None:
    cluster = load_cluster(str(lab))
    steps = []
    for model in MODELS:
        for place in ("2", "1+1", "2+2", "1|1", "2|2"):
            step = MeasuredStep(model, parse_placement(place, cluster, None), 1.0)
            (seconds,) = predicted(cluster, cluster.levels, [step], "analytic[overlap=0.4]")
            steps.append(MeasuredStep(model, step.placement, seconds))
    free = calibrate(cluster, steps)
    tied = calibrate(cluster, steps, "analytic[overlap=1]")
    assert free.network in ("analytic[overlap=0.3]", "analytic[overlap=0.4]", "analytic[overlap=0.5]")
    assert tied.network == "analytic[overlap=1]"
    assert free.after.mean < 0.5 * tied.after.mean
