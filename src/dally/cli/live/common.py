"""What the commands for a service share: options, the client, tables and times for people."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from dally.core.units import show_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dally.live.client import Client

json_option = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
ENDED = ("finished", "failed", "cancelled", "rejected")


def client() -> Client:
    from dally.live.client import Client

    return Client.found()


def print_json(data: Any) -> None:
    json.dump(data, sys.stdout, indent=2)
    print()


def ago(moment: float | None) -> str:
    """A Unix time as how long ago it was."""
    return "–" if moment is None else show_time(max(0.0, time.time() - moment))


def clock(moment: float | None) -> str:
    return "–" if moment is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def where(machines: dict[str, list[int]] | None) -> str:
    """`rack0/m0:0-3 rack0/m1:5`."""
    if not machines:
        return "–"
    return " ".join(f"{name}:{numbers(gpus)}" for name, gpus in machines.items())


def numbers(found: Iterable[int]) -> str:
    """0, 1, 2, 5 → `0-2,5`."""
    parts: list[list[int]] = []
    for number in sorted(found):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def whole(found: Client, ids: Iterable[str]) -> list[str]:
    """The jobs that are meant: the id of an array stands for all its members."""
    from dally.live.errors import NotFound

    meant: list[str] = []
    for id in ids:
        try:
            found.get("jobs", id)
            meant.append(id)
        except NotFound:
            rows = all_rows(found, array=id)[0] if id.isdigit() else []
            members = [row["id"] for row in rows if row["id"].startswith(f"{id}_")]  # whatever the service filters by
            if not members:
                raise
            meant += members
    return meant


def all_rows(found: Client, **filters: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Every page of a listing, and how many jobs others have."""
    rows: list[dict[str, Any]] = []
    cursor, others = None, None
    while True:
        page = found.get("jobs", limit=1000, cursor=cursor, **filters)
        rows += page["jobs"]
        others = page["others"] if others is None else others
        cursor = page["next"]
        if cursor is None:
            return rows, others or {}
