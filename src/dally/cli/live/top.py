"""`dally top`: machines and jobs as they are, again and again."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from dally.cli.live.common import all_rows, client, json_option, print_json
from dally.cli.live.queue import COLUMNS, line

if TYPE_CHECKING:
    from rich.console import Group

_ORDER = ("running", "yielding", "starting", "lost", "waiting", "held")


@click.command()
@click.option("--every", type=click.FloatRange(min=0.2), default=1.0, show_default=True, metavar="SECONDS")
@click.option("--once", is_flag=True, help="Print it once; the default where the output is no terminal.")
@json_option
def command(every: float, once: bool, as_json: bool) -> None:
    """Watch machines and jobs: how many GPUs are in use, what runs where, what waits and why.

    \b
    dally top
    dally top --every 5
    """
    found = client().follow()

    def look() -> dict[str, Any]:
        rows, others = all_rows(found, state="active")
        rows.sort(key=lambda row: _ORDER.index(row["state"]))
        return {"policy": found.get("policy")["policy"], "nodes": found.get("nodes"),
                "jobs": rows, "others": others}  # fmt: skip

    if as_json:
        print_json(look())
        return
    from dally.cli.printing import console

    if once or not sys.stdout.isatty():
        console().print(picture(look(), None))
        return
    from rich.live import Live

    with Live(console=console(), screen=True, auto_refresh=False) as live:
        while True:
            live.update(picture(look(), live.console.size.height), refresh=True)
            time.sleep(every)


def picture(seen: dict[str, Any], height: int | None) -> Group:
    from rich import box
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    nodes, jobs = seen["nodes"], seen["jobs"]
    gpus, free = sum(node["gpus"] for node in nodes), sum(node["free"] for node in nodes)
    waiting = sum(job["state"] in ("waiting", "held") for job in jobs)
    head = (f"{gpus - free} of {gpus} GPUs in use on {len(nodes)} machines · {len(jobs) - waiting} jobs run, "
            f"{waiting} wait · policy {escape(seen['policy'])} · {time.strftime('%H:%M:%S')}")  # fmt: skip
    room = None if height is None else max(4, height - 8)
    machines = Table("machine", "state", "GPUs in use", box=box.SIMPLE_HEAD)
    shown = nodes if room is None else nodes[: room // 3]
    for node in shown:
        used = node["gpus"] - node["free"]
        machines.add_row(escape(node["name"]), node["state"], f"{'█' * used}{'·' * node['free']} {used}/{node['gpus']}")
    if len(shown) < len(nodes):
        machines.add_row(f"and {len(nodes) - len(shown)} more", "", "")
    table = Table(*COLUMNS, box=box.SIMPLE_HEAD)
    listed = jobs if room is None else jobs[: max(2, room - len(shown))]
    for job in listed:
        table.add_row(*map(escape, line(job)))
    if len(listed) < len(jobs):
        table.add_row(f"and {len(jobs) - len(listed)} more")
    return Group(head, machines, table)
