"""`dally wait`: until jobs have ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dally.cli.live.common import ENDED, client, json_option, print_json, whole
from dally.core.units import seconds

if TYPE_CHECKING:
    from dally.live.client import Client

NOT_IN_TIME = 5  # exit code


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID…")
@click.option("--timeout", metavar="TIME", help="Give up after this time; exit code 5.")
@json_option
def command(jobs: tuple[str, ...], timeout: str | None, as_json: bool) -> None:
    """Wait until all these jobs have ended. A service that is restarted meanwhile is waited for.

    The exit code is 0 if all of them finished, 1 if one failed, was cancelled or was rejected, 5 if the time was up.

    \b
    dally wait 42 43
    dally wait --timeout 1h 42
    """
    limit = None if timeout is None else seconds(timeout)
    found = client().follow()
    meant = whole(found, jobs)
    ended = wait_for(found, meant, limit)
    if as_json:
        print_json(ended)
    sys.exit(report(ended, len(meant), quiet=as_json))


def wait_for(found: Client, jobs: Sequence[str], limit: float | None = None) -> list[dict[str, Any]]:
    """Rows of the jobs that ended in time. One request at a time, however many jobs there are."""
    until = None if limit is None else time.monotonic() + limit
    ended = []
    for id in jobs:
        pause = 0.05
        while True:
            row = found.get("jobs", id)
            if row["state"] in ENDED:
                ended.append({name: value for name, value in row.items() if name not in ("spec", "history")})
                break
            if until is not None and time.monotonic() >= until:
                return ended
            time.sleep(pause if until is None else max(0.0, min(pause, until - time.monotonic())))
            pause = min(1.0, pause * 1.3)
    return ended


def report(ended: list[dict[str, Any]], wanted: int, quiet: bool = False) -> int:
    """What to say of them, and the exit code."""
    bad = [row for row in ended if row["state"] != "finished"]
    for row in bad if not quiet else ():
        code = f", exit code {row['exit_code']}" if row["exit_code"] is not None else ""
        why = f": {row['why']}" if row["why"] and f", {row['why']}" != code else ""
        print(f"dally: job {row['id']} ({row['name']}) {row['state']}{code}{why}", file=sys.stderr)
    if len(ended) < wanted:
        print("dally: the time was up and not all jobs have ended", file=sys.stderr)
        return NOT_IN_TIME
    return 1 if bad else 0
