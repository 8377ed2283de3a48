"""`dally trace`: convert, describe, validate and synthesise traces."""

from __future__ import annotations

from pathlib import Path

import click

from dally.cli.writing import force_file_option, whole_file
from dally.core.errors import UserError


@click.group(name="trace")
def command() -> None:
    """Convert, describe, validate and synthesise traces. `-` reads standard input.

    \b
    sacct -a -P -o JobID,Submit,Start,End,State,AllocTRES | dally trace describe -
    dally trace convert cluster_log.json jobs.parquet
    dally trace synth helios jobs.csv --jobs 10000 --load 0.8 --cluster 8x8x8 --seed 1
    """


_format = click.option("--format", "-f", "format_", metavar="NAME", help="Say the format instead of detecting it.")


@command.command()
@click.argument("source")
@_format
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def describe(source: str, format_: str | None, as_json: bool) -> None:
    """Jobs, GPUs, quantiles of duration, demand and inter-arrival, and what reading it took."""
    from dally.cli.printing import print_pairs
    from dally.traces import describe_trace, load_trace

    sections = describe_trace(load_trace(source, format_))
    if as_json:
        import json

        print(json.dumps({s.title: {"columns": list(s.columns), "rows": [list(row) for row in s.rows]}
                          for s in sections}, indent=2))  # fmt: skip
        return
    for section in sections:
        print_pairs(section.rows, section.title, section.columns)
        print()


@command.command()
@click.argument("source")
@_format
@click.option("--all", "everything", is_flag=True, help="List every problem, not only the first twenty.")
def validate(source: str, format_: str | None, everything: bool) -> None:
    """Every problem found in a file, with its line. Exit code 1 where rows had to be dropped."""
    from dally.traces import validate_trace

    found = validate_trace(source, format_)
    sentences = found.sentences()
    for sentence in sentences if everything else sentences[:20]:
        print(sentence)
    if not everything and len(sentences) > 20:
        print(f"… and {len(sentences) - 20:,} more (--all lists them)")
    for done, reason, count in found.counts():
        print(f"{count:,} {done}: {reason}")
    print(f"{found.format}: {len(found.trace):,} jobs can be used")
    if not found.ok:
        raise SystemExit(1)


@command.command()
@click.argument("source")
@click.argument("target")
@_format
@force_file_option
def convert(source: str, target: str, format_: str | None, force: bool) -> None:
    """Turn any trace into the own format: TARGET ends in .csv or .parquet."""
    from dally.cli.printing import print_notes
    from dally.traces import load_trace, write_trace

    trace = load_trace(source, format_)
    with whole_file(Path(target), force) as beside:
        write_trace(trace, beside)
    print_notes([f"{count:,} rows left out: {why}" for why, count in trace.dropped.most_common()])
    print_notes([f"{count:,} rows changed: {why}" for why, count in trace.repaired.most_common()])
    print(f"{target}: {len(trace):,} jobs")


@command.command()
@click.argument("name")
@click.argument("target")
@click.option("--jobs", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=0, show_default=True)
@click.option("--load", type=click.FloatRange(min=0, min_open=True), help="Offered load against --cluster.")
@click.option("--cluster", metavar="C", help="The cluster --load refers to; caps the GPUs of a job as well.")
@force_file_option
def synth(name: str, target: str, jobs: int, seed: int, load: float | None, cluster: str | None, force: bool) -> None:
    """Write a synthetic trace shaped like a published one: philly, helios, pai, gavel, dally-batch, …

    \b
    dally trace synth philly jobs.parquet --jobs 100000 --load 0.9 --cluster 30x10x8
    """
    from dally.traces import synthesise, write_trace

    if load is not None and cluster is None:
        raise UserError("--load is measured against a cluster: give --cluster too")
    capacity = most = None
    if cluster is not None:
        from dally.catalog.clusters import load_cluster

        topology = load_cluster(cluster)
        capacity, most = topology.gpus, topology.capacity(None)
    trace = synthesise(name, jobs=jobs, seed=seed, load=load, capacity=capacity, max_gpus=most)
    with whole_file(Path(target), force) as beside:
        write_trace(trace, beside)
    print(f"{target}: {len(trace):,} jobs")
