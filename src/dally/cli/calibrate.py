"""`dally calibrate`: the links of a cluster file by the training steps that were measured on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dally.cli.writing import check_free, force_file_option, write_whole
from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.core.topology import Topology
    from dally.profiler.calibrate import MeasuredStep


@click.command()
@click.argument("steps", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--cluster", "-c", required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False),
              metavar="FILE", help="The cluster file that the steps were measured on.")  # fmt: skip
@click.option("--out", "-o", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The file to write.")
@force_file_option
@click.option("--network", "-n", default="analytic", show_default=True, help="Network model whose links are fitted.")
@click.option("--hold-out", type=float, default=0.3, show_default=True, help="Share of the steps kept out of the fit.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which ones those are.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing.")
def command(steps: tuple[Path, ...], cluster: Path, out: Path, force: bool, network: str, hold_out: float,
            seed: int, quiet: bool) -> None:  # fmt: skip
    """Fit latency and bandwidth of every level, and overlap, to measured STEPS; say how far off it is on others.

    \b
    dally calibrate steps.csv --cluster lab.yaml --out measured.yaml
    dally calibrate ~/.local/state/dally --cluster lab.yaml --out measured.yaml

    STEPS are CSV files with the columns model, placement and seconds, records of a service or of a run, or both
    (docs/calibrate.md).
    """
    from datetime import UTC, datetime

    import yaml

    from dally.catalog.clusters import load_cluster
    from dally.cli.printing import print_table
    from dally.core.units import show_bytes, show_time
    from dally.profiler.calibrate import calibrate, cluster_text

    check_free(out, force)
    topology = load_cluster(str(cluster))
    given = yaml.safe_load(cluster.read_text())
    if not isinstance(given, dict) or "dally-cluster" not in given:
        raise UserError(f"{cluster} is no cluster file (docs/formats/cluster-yaml.md): only those can be written anew")
    measured = [step for path in steps for step in _read(path, topology)]
    found = calibrate(topology, measured, network, hold_out, seed)
    write_whole(out, cluster_text(given, topology, found, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"), force=True)
    if quiet:
        return
    rows = []
    for before, after in zip(topology.levels, found.levels, strict=True):
        if after.name in found.fitted_levels:
            rows.append((after.name, f"{show_bytes(before.bandwidth)}/s", f"{show_bytes(after.bandwidth)}/s",
                         show_time(before.latency), show_time(after.latency)))  # fmt: skip
    print_table(("level", "bandwidth was", "is", "latency was", "is"), rows, "Links")
    print(f"network model: {found.network}")
    errors = [(what, str(e.steps), f"{e.mean:.1%}", f"{e.worst:.1%}", f"{e.bias:+.1%}") for what, e in (
        ("held out, before", found.before), ("held out, after", found.after),
        ("in the fit, before", found.fit_before), ("in the fit, after", found.fit_after))]  # fmt: skip
    print_table(("steps", "", "mean error", "worst", "all together"), errors, "Predicted against measured")


def _read(path: Path, topology: Topology) -> list[MeasuredStep]:
    return _csv(path, topology) if path.suffix.lower() == ".csv" else _record(path, topology)


def _csv(path: Path, topology: Topology) -> list[MeasuredStep]:
    import csv

    from dally.network.explain import parse_placement
    from dally.profiler.calibrate import MeasuredStep

    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        if not {"model", "placement", "seconds"} <= set(reader.fieldnames or ()):
            raise UserError(f"{path}, line 1: measured steps have the columns model, placement and seconds")
        found = []
        for row in reader:
            try:
                _known(row["model"])
                found.append(MeasuredStep(row["model"], parse_placement(row["placement"], topology, None),
                                          float(row["seconds"])))  # fmt: skip
            except (UserError, ValueError) as error:
                raise UserError(f"{path}, line {reader.line_num}: {error}") from None
    return found


def _known(model: str) -> None:
    """A model that nobody knows would be timed as another one, and its steps fitted to that."""
    from dally.catalog import find_model

    find_model(model)


def _record(path: Path, topology: Topology) -> list[MeasuredStep]:
    """What jobs reported while they ran: the median of every stay of a job on its GPUs."""
    from statistics import median

    from dally.cli.journal import _open
    from dally.core import events as ev
    from dally.core import plan as pl
    from dally.core.placement import Placement
    from dally.profiler.calibrate import MeasuredStep

    models: dict[str, str] = {}
    places: dict[str, Placement] = {}
    seen: dict[tuple[str, Placement], list[float]] = {}
    reader: Any = _open(path)
    for instant in reader:
        for event in instant.happened:
            if isinstance(event, ev.Arrived) and event.job.model is not None:
                models[event.job.id] = event.job.model
            elif isinstance(event, ev.Measured) and event.job in places and event.job in models:
                seen.setdefault((event.job, places[event.job]), []).append(event.step_time)
        for action in instant.decided or ():
            if isinstance(action, (pl.Start, pl.Migrate)):
                places[action.job] = action.placement
    machines = len(topology.machines)
    if any(index >= machines for _, placement in seen for index, _ in placement.slices):
        raise UserError(f"{path}: the record has more machines than the cluster file")
    if not seen:
        raise UserError(f"{path}: no job that names a model has reported a step")
    for job, _ in seen:
        _known(models[job])
    return [MeasuredStep(models[job], placement, median(times)) for (job, placement), times in seen.items()]
