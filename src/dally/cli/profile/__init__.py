"""`dally profile`: where a training job stalls, what would help, and what to rent."""

from __future__ import annotations

import click

from dally.cli.profile.run import run
from dally.cli.profile.show import compare, diff, show


@click.group()
def command() -> None:
    """Measure where a training script stalls, predict what would help, and say what to rent.

    \b
    dally profile run --processes 2 --out net.yaml train.py --batch-size 32
    dally profile show net.yaml
    """


for part in (run, show, compare, diff):
    command.add_command(part)
