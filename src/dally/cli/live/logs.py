"""`dally logs`: what a job printed."""

from __future__ import annotations

import sys
import time

import click

from dally.cli.live.common import client

_PIECE = 1_000_000


@click.command()
@click.argument("job", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Go on as more is printed, through restarts, until the job ends.")
@click.option("--tail", "-n", type=click.IntRange(min=0, max=100_000), metavar="N", help="Only the last N lines.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Of this attempt; default: the newest.")
def command(job: str, follow: bool, tail: int | None, attempt: int | None) -> None:
    """Print what a job printed, output and errors together. What was rotated away is not there any more.

    \b
    dally logs 42
    dally logs -f 42
    dally logs --tail 20 42
    """
    found = client().follow() if follow else client()
    offset, seen = 0, None
    while True:
        answer = found.send("GET", ("jobs", job, "logs"),
                            query={"offset": offset, "limit": _PIECE, "tail": tail, "attempt": attempt})  # fmt: skip
        now = answer.headers.get("dally-attempt")
        if seen is not None and now != seen:
            seen, offset = now, 0  # it was started again: from the beginning of the new one
            continue
        seen = now
        sys.stdout.buffer.write(answer.body)
        sys.stdout.buffer.flush()
        was, offset, tail = offset, int(answer.headers["dally-next-offset"]), None
        if offset > was and answer.body:
            continue
        if not follow or answer.headers.get("dally-ended") == "true":
            return
        time.sleep(0.3)
