"""`dally reproduce`: published comparisons run again, the published figure beside the measured one."""

from __future__ import annotations

import click

from dally.cli.reproduce.dally import dally
from dally.cli.reproduce.gandiva import gandiva
from dally.cli.reproduce.gavel import gavel
from dally.cli.reproduce.released import released
from dally.cli.reproduce.stash import stash
from dally.cli.reproduce.tiresias import tiresias


@click.group()
def command() -> None:
    """Run a paper's comparison again and print its figures beside ours.

    \b
    dally reproduce tiresias --quick
    dally reproduce dally --out out
    dally reproduce gandiva --draws 1
    dally reproduce gavel --quick
    dally reproduce stash
    dally reproduce released tiresias --from PATH-TO-THEIR-REPOSITORY
    """


for paper in (dally, gandiva, gavel, released, stash, tiresias):
    command.add_command(paper)
