"""`dally profile`: where a training job stalls, what would help, and what to rent."""

from __future__ import annotations

import click

from dally.cli.profile.fabric import fabric
from dally.cli.profile.recommend import recommend
from dally.cli.profile.run import run
from dally.cli.profile.show import compare, diff, show
from dally.cli.profile.whatif import whatif


@click.group()
def command() -> None:
    """Measure where a training script stalls, predict what would help, and say what to rent.

    \b
    dally profile run --processes 2 --out net.yaml train.py --batch-size 32
    dally profile show net.yaml
    dally profile recommend net.yaml --samples 1e6 --epochs 10 --within 12h
    """


for part in (run, show, compare, diff, whatif, recommend, fabric):
    command.add_command(part)
