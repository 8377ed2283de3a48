"""`dally twin`: a cluster's recorded past replayed, held against what happened, and only then what would have been."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dally.cli.ending import end
from dally.cli.inputs import Time, force_option
from dally.cli.printing import console, print_notes, print_table
from dally.cli.progress import Progress
from dally.cli.twin_folder import PIPE, as_standard_input, twin_folder
from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.experiments.twin.trip import Twin


@click.command()
@click.option("--history", required=True, metavar="FILE",
              help="What ran when: `sacct -aP -o …`, or any trace with start times; `-`: standard input.")  # fmt: skip
@click.option("--cluster", "-c", metavar="C",
              help="A folder such as /etc/slurm, slurm.conf, topology.conf, a YAML, a shape (4x8x8), …; default: the "
                   "nodes of the history.")  # fmt: skip
@click.option("--nodes", metavar="FILE",
              help="Node list of a topology: scontrol show node, sinfo -N -o '%N %G', slurmrestd's, CSV.")  # fmt: skip
@click.option("--conf", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="The slurm.conf in force; default: what --cluster or --nodes is, or is beside.")  # fmt: skip
@click.option("--present", metavar="P",
              help="The policy that was at work; default: slurm[conf=…], or the nearest of several where no slurm.conf "
                   "is given, or with `fit`.")  # fmt: skip
@click.option("--policies", "-p", metavar="P1,P2,…",
              help="What-ifs: other policies (or none); default: fifo[backfill=easy],las,dally.")  # fmt: skip
@click.option("--fabrics", metavar="F1,F2,…", help="What-ifs: the present policy on other links (`dally clusters`).")
@click.option("--more-racks", metavar="R1,R2,…", help="What-ifs: the present policy with one more of these racks.")
@click.option("--limits", metavar="L1,L2,…",
              help="What-ifs: the present policy with other time limits: x0.5, half of what users gave and no less "
                   "than the job took; max=12h, none above that.")  # fmt: skip
@click.option("--fabric", metavar="PRESET", help="The cluster's present links, where its description names none.")
@click.option("--network", "-n", default="ideal", show_default=True, metavar="N",
              help="ideal: a job takes as long as it took, wherever it is placed; analytic: distance costs time, and "
                   "it took so long where it ran.")  # fmt: skip
@click.option("--knowledge", metavar="K", show_default="auto",
              help="What the what-ifs' policies are told of durations: limits, learned, none, exact, …; auto: limits "
                   "where there are any.")  # fmt: skip
@click.option("--preemption-cost", metavar="X", show_default="model", help="Of what-ifs that preempt.")
@click.option("--outages", metavar="FILE", help="CSV machine,down,up, or sacctmgr -P show event.")
@click.option("--warm-up", type=click.FloatRange(0, 90), default=10, show_default=True, metavar="%",
              help="Of the time of submissions: replayed and not measured.")  # fmt: skip
@click.option("--cool-down", type=click.FloatRange(0, 90), default=10, show_default=True, metavar="%")
@click.option("--checkpoint-interval", type=Time(), show_default="30m", help="A fault takes the work since the last.")
@click.option("--seed", type=click.IntRange(min=0), show_default="0", help="Of all that is drawn by chance.")
@click.option("--workers", type=click.IntRange(min=1), help="Runs at a time; default: one per core.")
@click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False),
              help="Folder for twin.json, jobs.csv and twin.html, a page to forward.")  # fmt: skip
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON (times in seconds).")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def command(history: str, cluster: str | None, nodes: str | None, conf: Path | None, present: str | None,
            policies: str | None, fabrics: str | None, more_racks: str | None, limits: str | None, fabric: str | None,
            warm_up: float, cool_down: float, workers: int | None, out: Path | None, force: bool, as_json: bool,
            quiet: bool, **options: Any) -> None:  # fmt: skip
    """Replay a cluster's past and say how near that comes; only then say what other policies would have done.

    \b
    sacct -aP -S 2026-01-01 -o ALL > jobs.txt
    dally twin --history jobs.txt --cluster /etc/slurm --policies "fifo[backfill=easy],dally" --out twin
    dally twin --history jobs.txt --cluster slurm.conf --policies none
    dally twin --history jobs.txt --cluster topology.conf --nodes nodes.txt --present slurm --json
    dally twin --history jobs.txt --cluster lab.yaml --fabric ethernet-100g --fabrics infiniband-hdr
    dally twin --history jobs.txt --cluster /etc/slurm --policies none --limits x0.5,max=12h --more-racks s1

    The back-test comes first: simulated against recorded waits and completion times, by partition, user, size and hour,
    and a verdict on how far the rest may be trusted. Every difference is to the replayed present, with its range over
    the model's error.
    """
    from dally.experiments.twin.assuming import assumptions, conf_of, links_of
    from dally.experiments.twin.document import as_document
    from dally.experiments.twin.history import history_of
    from dally.experiments.twin.limits import limit_changes
    from dally.experiments.twin.site import Site
    from dally.experiments.twin.trip import USUAL, Asked, make_twin
    from dally.policies.options import split_policies
    from dally.simulator.outages import read_outages
    from dally.simulator.scenario import Scenario
    from dally.traces import load_trace

    if warm_up + cool_down >= 100:
        raise UserError(f"--warm-up {warm_up:g} and --cool-down {cool_down:g} leave nothing to measure")
    wanted = USUAL if policies is None else () if policies == "none" else tuple(split_policies(policies))
    if present is not None and conf is not None:
        raise UserError("--present and --conf both say which policy was at work; give one of them")
    other_limits = limit_changes(_names(limits))
    _refuse_unknown(wanted, _names(fabrics), options["knowledge"])
    piped = sys.stdin.buffer.read() if history == PIPE and out is not None else None
    with as_standard_input(piped):
        past = history_of(load_trace(history), (warm_up / 100, 1 - cool_down / 100))
    site = Site(past.trace, cluster, Path(nodes) if nodes else None)
    topology, notes = site.topology(fabric)
    scenario = Scenario.of({"trace": past.trace, "cluster": topology} | options)
    if options["outages"] is not None:  # a mistake in it is said before anything is replayed, and what it leaves out
        read_outages(Path(options["outages"]), topology, past.trace.origin, notes)
    found_conf = conf or (conf_of(cluster, nodes) if present is None else None)
    asked = Asked(present, found_conf, wanted, _names(fabrics), _names(more_racks), other_limits)
    for change in other_limits:
        change.changed(past)  # one that changes nothing is said before anything is replayed
    with twin_folder(out, force, asked, piped, quiet) as folder:
        with Progress(quiet) as progress:
            made = make_twin(past, site, scenario, asked, workers=workers, report=progress)
        said = assumptions(made, notes, links_of(cluster, fabric))
        document = as_document(made, said)
        folder.write(made, document, said)
    if as_json:
        json.dump(document, sys.stdout, indent=2)
        print()
    else:
        _print(made, said)
        if out is not None and not quiet:
            print(f"page: {out / 'twin.html'}")
    if not quiet and as_json:
        print_notes(said)
    for failure in made.failures:
        print(f"dally: {failure.error}", file=sys.stderr)
    end((), failed=bool(made.failures))


def _refuse_unknown(policies: tuple[str, ...], fabrics: tuple[str, ...], knowledge: str | None) -> None:
    """What the what-ifs name is looked up before minutes of back-test are spent, not after."""
    from dally.catalog.store import fabrics as known_fabrics
    from dally.policies.options import make_policy
    from dally.simulator.knowledge import make_estimates

    for policy in policies:
        make_policy(policy)
    for fabric in fabrics:
        known_fabrics().find(fabric)
    if knowledge is not None:
        make_estimates(knowledge, {})


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def _print(twin: Twin, said: list[str]) -> None:
    """Assumptions first, then the back-test with its verdict, then what would have been."""
    from dally.experiments.twin.tables import groups_table, tried_table, what_if_table

    out = console()

    def say(text: str, **style: Any) -> None:
        out.print(text, markup=False, soft_wrap=True, **style)

    say("Assumed", style="bold")
    for text in said:
        say(f"  · {text}")
    say(f"\nBack-test of {twin.test.policy}: {twin.how}", style="bold")
    if twin.fit is not None:
        print_table(*tried_table(twin.fit), "Tried on a part of the window")
    print_table(*groups_table(twin.test), "Simulated against recorded, averages")
    say(twin.verdict.headline, style="bold")
    say(twin.verdict.advice)
    say("What may explain the rest:")
    for text in twin.explained:
        say(f"  · {text}")
    if twin.what_ifs:
        print_table(*what_if_table(twin), "What would have been, against the replayed present "
                                          "(in brackets: over the model's error)")  # fmt: skip
