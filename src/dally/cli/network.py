"""`dally network`: the anatomy of a training step, and checks of the network model against recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dally.network.explain import StepReport


@click.group()
def command() -> None:
    """Say what a training step is made of, or check the network model against recorded runs.

    \b
    dally network step --model resnet50 --gpus 16 --cluster 4x8x8 --levels
    dally network check astra_allreduce.csv --tolerance 0.0001
    dally network collective network.yml system.json --size 100MB
    """


@command.command()
@click.option("--model", "-m", required=True, metavar="M", help="A model of the catalog.")
@click.option("--gpus", "-g", type=click.IntRange(min=1), help="GPUs of the gang; --placement may say it instead.")
@click.option("--cluster", "-c", default="4x8x8", show_default=True, metavar="C", help="As for `dally simulate`.")
@click.option("--fabric", metavar="PRESET", help="Links of a cluster given by its shape.")
@click.option("--placement", "-p", metavar="P",
              help="4+4: machines of one rack; 4|4: of two racks; rack0/m1:4,rack1/m0:4: by name.")  # fmt: skip
@click.option("--network", "-n", default="analytic", show_default=True, metavar="N",
              help="analytic[algorithm=…,bucket=25MB|layer].")  # fmt: skip
@click.option("--levels", is_flag=True, help="Compare with the same gang at each level of the cluster.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.html",
              help="Draw a timeline.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print figures as JSON (seconds and bytes).")
def step(model: str, gpus: int | None, cluster: str, fabric: str | None, placement: str | None, network: str,
         levels: bool, plot: Path | None, as_json: bool) -> None:  # fmt: skip
    """Time one training step on given GPUs and say where the time goes.

    \b
    dally network step --model resnet50 --gpus 16 --cluster 4x8x8 --levels
    dally network step --model bert-large --placement "4+4" --fabric ethernet-25g
    """
    from dally.catalog.clusters import load_cluster
    from dally.cli.printing import console, print_notes, print_table
    from dally.core.errors import UserError
    from dally.network.analytic import Analytic
    from dally.network.explain import explain_step, parse_placement
    from dally.network.registry import make_network

    topology = load_cluster(cluster, fabric=fabric)
    made = make_network(network, topology)
    if not isinstance(made, Analytic):
        raise UserError(f"network {network!r} gives no anatomy of a step; take analytic")
    report = explain_step(made, model, parse_placement(placement, topology, gpus), levels=levels)
    if plot is not None:
        _draw(report, plot)
    print_notes(report.notes)
    if as_json:
        import json

        click.echo(json.dumps(_figures(report), indent=1))
        return
    console().print(report.sentence, soft_wrap=True)
    print_table(("lane", "what", "start", "end", "bytes", "algorithm"), report.phases())
    print_table(("level", "busiest port", "sent by all"), report.bytes_rows(), "Bytes per step")
    if levels:
        print_table(("level", "GPUs per machine", "step", "exposed", "× one machine"), report.sensitivity_rows(),
                    "Network sensitivity")  # fmt: skip


def _figures(report: StepReport) -> dict[str, object]:
    found = report.profile
    return {
        "model": report.model, "gpu": report.gpu, "gpus": report.gpus, "placement": report.placement,
        "layout": found.layout.text(), "step_seconds": found.alone, "compute_seconds": found.compute,
        "exposed_seconds": found.exposed, "algorithm": found.algorithm,
        "bytes_through_busiest_port": dict(zip(report.levels, found.bytes_per_level, strict=True)),
        "bytes_sent": dict(zip(report.levels, found.traffic_per_level, strict=True)),
        "timeline": [moment._asdict() for moment in report.timeline],
        "sensitivity": [
            {"level": s.level, "placement": s.shape, "step_seconds": s.profile.alone, "ratio": s.ratio,
             "imagined": s.imagined}
            for s in report.sensitivity
        ],
    }  # fmt: skip


def _draw(report: StepReport, path: Path) -> None:
    """A timeline with one bar per moment, in a page that needs nothing else."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for lane, colour in (("compute", "#4c78a8"), ("network", "#f58518")):
        moments = [moment for moment in report.timeline if moment.lane == lane]
        figure.add_bar(
            orientation="h", name=lane, marker={"color": colour, "line": {"color": "white", "width": 1}},
            y=[lane] * len(moments), base=[m.start * 1e3 for m in moments],
            x=[(m.end - m.start) * 1e3 for m in moments],
            customdata=[[m.what, m.algorithm, m.size / 1e6] for m in moments],
            hovertemplate="%{customdata[0]} %{customdata[1]}<br>%{customdata[2]:.1f} MB<br>from %{base:.3f} ms, "
                          "%{x:.3f} ms long<extra></extra>",
        )  # fmt: skip
    figure.add_vline(x=report.profile.compute * 1e3, line_dash="dot", annotation_text="compute alone")
    figure.update_layout(title=report.sentence, barmode="overlay", xaxis_title="milliseconds", title_font_size=13,
                         template="plotly_white", yaxis={"autorange": "reversed"})  # fmt: skip
    from dally.core.errors import UserError

    try:
        figure.write_html(path, include_plotlyjs=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


@command.command()
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--layers", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder of layers_<model>.csv for step shares; by default the table's own.")  # fmt: skip
@click.option("--tolerance", type=click.FloatRange(min=0), default=0.01, show_default=True,
              help="Largest relative error that passes.")  # fmt: skip
@click.option("--rows", type=click.IntRange(min=0), default=10, show_default=True, help="Worst rows to show.")
def check(table: Path, layers: Path | None, tolerance: float, rows: int) -> None:
    """Predict every row of a table of ASTRA-sim runs and say how far off the model is.

    Ends with exit code 1 if any row is off by more than the tolerance. Formats: docs/network/astra.md.
    """
    from dally.cli.printing import print_table
    from dally.network.check import check as check_table

    result = check_table(table, layers)
    worst = sorted((row for row in result.rows if row.error > 0), key=lambda row: -row.error)[:rows]
    if worst:
        print_table(
            ("line", "what", "measured", "predicted", "error"),
            [
                (str(r.line), r.what, f"{r.measured:.6g}", f"{r.predicted:.6g}", f"{100 * r.error:.2g} %")
                for r in worst
            ],
            "Worst rows",
        )
    click.echo(
        f"{len(result.rows)} rows of {result.kind}, {result.exact} exact; relative error: "
        f"mean {100 * result.mean:.4f} %, p99 {100 * result.p99:.4f} %, max {100 * result.max:.4f} % "
        f"(tolerance {100 * tolerance:g} %)"
    )
    if result.max > tolerance:
        raise click.exceptions.Exit(1)


@command.command()
@click.argument("network", type=click.Path(path_type=Path))
@click.argument("system", type=click.Path(path_type=Path))
@click.option("--size", "-s", required=True, metavar="BYTES", help="Of the collective, e.g. 25MB or 1GiB.")
@click.option("--op", default="all-reduce", show_default=True,
              type=click.Choice(["all-reduce", "reduce-scatter", "all-gather", "all-to-all"]))  # fmt: skip
@click.option("--backend", default="unaware", show_default=True, type=click.Choice(["unaware", "aware"]),
              help="ASTRA-sim's congestion-unaware or -aware analytical backend.")  # fmt: skip
@click.option("--queues", default=1, show_default=True, type=click.IntRange(min=1), help="Queues per dimension.")
@click.option("--run", is_flag=True, help="Run an installed ASTRA-sim on the same files and show it beside ours.")
def collective(network: Path, system: Path, size: str, op: str, backend: str, queues: int, run: bool) -> None:
    """Time one collective on ASTRA-sim's own NETWORK.yml and SYSTEM.json, to the nanosecond.

    \b
    dally network collective network.yml system.json --size 100MB
    """
    from dally.core.units import show_time, size_bytes
    from dally.network.astra import Fabric
    from dally.network.astra.bridge_files import read_network, read_system

    fabric = Fabric(read_network(network), read_system(system, queues), backend)  # type: ignore[arg-type]
    message = int(size_bytes(size))
    ours = fabric.collective_ns(op, message)  # type: ignore[arg-type]
    click.echo(f"{op} of {message:,} bytes: {ours:,} ns ({show_time(ours * 1e-9)})")
    if run:
        from dally.network.astra.bridge import AstraSim

        theirs = AstraSim().collective_ns(op, message, fabric)  # type: ignore[arg-type]
        click.echo(f"ASTRA-sim says {theirs:,} ns, {abs(ours - theirs) / theirs:.4%} apart")
