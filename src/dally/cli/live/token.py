"""`dally token`: who may use a service that others can reach."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dally.cli.live.common import clock, json_option, print_json

if TYPE_CHECKING:
    from dally.live.tokens import TokenFile

_state = click.option("--state", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
                      show_default="$DALLY_STATE or ~/.local/state/dally", help="State of the service.")  # fmt: skip


@click.group()
def command() -> None:
    """Make, list and remove tokens (docs/security.md).

    With the first token everybody needs one. The service reads the file again by itself.

    \b
    dally token add alice --admin
    DALLY_API_TOKEN=dally_… dally queue
    """


@command.command()
@click.argument("user")
@click.option("--admin", is_flag=True, help="Sees and changes everything.")
@_state
@json_option
def add(user: str, admin: bool, state: Path | None, as_json: bool) -> None:
    """Make a token for USER and print it, once: only a digest of it is kept."""
    token = _file(state).add(user, admin)
    if as_json:
        print_json({"user": user, "admin": admin, "token": token})
    else:
        print(token)


@command.command("list")
@_state
@json_option
def list_(state: Path | None, as_json: bool) -> None:
    """List the tokens: whose, since when, and the id to remove one by."""
    rows = _file(state).rows()
    if as_json:
        print_json([{"id": row.id, "user": row.user, "admin": row.admin, "made": row.made} for row in rows])
        return
    from dally.cli.printing import print_table

    if not rows:
        print("no tokens")
        return
    print_table(("id", "user", "admin", "made"),
                [(row.id, row.user, "yes" if row.admin else "no", clock(row.made)) for row in rows])  # fmt: skip


@command.command()
@click.argument("which", metavar="ID|USER")
@_state
def remove(which: str, state: Path | None) -> None:
    """Remove one token by its id, or all of a user. When the last one goes, nobody gets in."""
    for row in _file(state).remove(which):
        print(f"removed {row.id} of {row.user}")


def _file(state: Path | None) -> TokenFile:
    from dally.live.places import default_state
    from dally.live.tokens import TokenFile

    return TokenFile((state or default_state()) / "tokens.json")
