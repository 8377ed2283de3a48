"""`dally queue`: the jobs that wait and run."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from dally.cli.live.common import ago, all_rows, client, json_option, print_json, where

COLUMNS = ("id", "name", "user", "queue", "state", "gpus", "attempts", "for", "where", "why")


@click.command()
@click.option("--all", "-a", "every", is_flag=True, help="Also the jobs that have ended.")
@click.option("--state", metavar="S1,S2,…", help="Only these states (docs/states.md), or `active`, `ended`.")
@click.option("--user", "-u", help="Only this user's.")
@click.option("--queue", "-q", "queue_name", help="Only this queue's.")
@click.option("--name", help="Only jobs of this name.")
@click.option("--watch", "-w", is_flag=True, help="Again every second, until interrupted.")
@json_option
def command(every: bool, state: str | None, user: str | None, queue_name: str | None, name: str | None, watch: bool,
            as_json: bool) -> None:  # fmt: skip
    """List the jobs of the service, oldest first.

    \b
    dally queue
    dally queue --all --json
    dally queue --state waiting,held --watch
    """
    found = client().follow() if watch else client()
    wanted = state or (None if every else "active")
    while True:
        rows, others = all_rows(found, state=wanted, user=user, queue=queue_name, name=name)
        if watch and sys.stdout.isatty():
            click.clear()
        if as_json:
            print_json(rows)
        else:
            show(rows, others)
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(1.0)


def show(rows: list[dict[str, Any]], others: dict[str, int]) -> None:
    from dally.cli.printing import print_table

    if rows:
        print_table(COLUMNS, [line(row) for row in rows])
    else:
        print("no jobs")
    if others:
        print("jobs of others: " + ", ".join(f"{count} {state}" for state, count in others.items()))


def line(row: dict[str, Any]) -> list[str]:
    since = {"running": row["started"], "waiting": row["submitted"], "held": row["submitted"]}.get(
        row["state"], row["ended"] or row["started"])  # fmt: skip
    why = row["why"] or (f"exit code {row['exit_code']}" if row["exit_code"] else "")
    return [row["id"], row["name"], row["user"] or "–", row["queue"] or "–", row["state"], str(row["gpus"]),
            str(row["attempts"]), ago(since), where(row["machines"]), why]  # fmt: skip
