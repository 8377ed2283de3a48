"""`dally job`: everything about one job."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click

from dally.cli.live.common import client, clock, json_option, print_json, where
from dally.live.telling import step_text


@click.command()
@click.argument("job", metavar="ID")
@json_option
def command(job: str, as_json: bool) -> None:
    """Show one job: what it is, what it does, and what became of its attempts.

    \b
    dally job 42
    """
    row = client().get("jobs", job)
    if as_json:
        print_json(row)
        return
    for label, value in _pairs(row):
        print(f"{label:<11} {value}")
    for attempt in row["history"]:
        ended = f"{clock(attempt['ended'])}, {attempt['how'] or 'ended'}" if attempt["ended"] else "now"
        step = f"; step {step_text(attempt['step'])}" if len(row["history"]) > 1 and attempt.get("step") else ""
        place = where(attempt["machines"])
        print(f"attempt {attempt['number']:<3} {place} from {clock(attempt['began'])} to {ended}{step}")


def _pairs(row: dict[str, Any]) -> list[tuple[str, str]]:
    spec = dict(row["spec"])
    pairs = [("id", row["id"]), ("name", row["name"]), ("user", row["user"] or "–"), ("queue", row["queue"] or "–"),
             ("state", row["state"]), ("why", row["why"]), ("gpus", str(row["gpus"])),
             ("where", where(row["machines"])), ("step", step_text(row["step"]) if row.get("step") else None),
             ("submitted", clock(row["submitted"])), ("started", clock(row["started"])), ("ended", clock(row["ended"])),
             ("exit code", row["exit_code"]), ("restarts", str(row["restarts"])),
             ("command", shlex.join(spec.pop("command", [])))]  # fmt: skip
    rest = {name: value for name, value in spec.items() if name not in ("name", "user", "queue", "gpus", "environment")}
    pairs += [(name.replace("_", " "), value if isinstance(value, str) else json.dumps(value))
              for name, value in rest.items()]  # fmt: skip
    return [(label, str(value)) for label, value in pairs if value not in (None, "–", "")]
