"""`dally cancel`, `hold`, `release`, `requeue`: one request per job."""

from __future__ import annotations

import sys

import click

from dally.cli.live.common import client, json_option, print_json, whole
from dally.core.errors import UserError
from dally.live.errors import NotFound, ServiceError

_ABOUT = {
    "cancel": "Cancel jobs: those that run are stopped at once, and nothing is tried again.",
    "hold": "Keep jobs from starting until they are released.",
    "release": "Let held jobs start again.",
    "requeue": "Stop jobs and put them back into the queue; those with a checkpoint save it first.",
}
_DONE = {"cancel": "cancelled", "hold": "held", "release": "released", "requeue": "put back into the queue"}


def _command(what: str) -> click.Command:
    @click.command(what, help=f"{_ABOUT[what]} The id of an array stands for all its members. Every job is tried; the "
                              f"exit code is 2 if one could not be changed.\n\n\b\ndally {what} 42 43")  # fmt: skip
    @click.argument("jobs", nargs=-1, required=True, metavar="ID…")
    @json_option
    def act(jobs: tuple[str, ...], as_json: bool) -> None:
        found, done, wrong = client(), [], 0
        for given in jobs:
            try:
                meant = whole(found, [given])
            except NotFound as error:
                print(f"dally: {error}", file=sys.stderr)
                wrong += 1
                continue
            for id in meant:
                try:
                    done.append(found.post("jobs", id, what))
                except ServiceError as error:
                    if error.exit_code != UserError.exit_code:
                        raise
                    if len(meant) == 1:  # of an array, those that are over already are no surprise
                        print(f"dally: {error}", file=sys.stderr)
                        wrong += 1
                    continue
                if not as_json:
                    print(f"{id} {_DONE[what]}")
        if as_json:
            print_json(done)
        if wrong:
            sys.exit(2)

    return act


cancel, hold, release, requeue = (_command(what) for what in _ABOUT)
