"""`dally explain`: a job's life from a run's journal, with the reasons it waited."""

from __future__ import annotations

from pathlib import Path

import click

from dally.core.errors import UserError


@click.command()
@click.argument("job")
@click.argument("run", type=click.Path(path_type=Path))
def command(job: str, run: Path) -> None:
    """Say what JOB waited for and when it ran. RUN is the folder `--out` wrote, or a journal file.

    \b
    dally simulate -t synth:philly -c 2x4x8 -p fifo --load 1 --out out
    dally explain 42 out
    """
    from dally.report.story import tell
    from dally.store.journal_file import read_journal

    if run.is_dir():
        found = sorted(run.glob("journal.jsonl*"))
        if not found:
            inside = sorted(path.parent.name for path in run.glob("*/journal.jsonl*"))
            which = f"; name the folder of one policy: {', '.join(inside)}" if inside else ""
            raise UserError(f"{run} holds no journal{which}")
        run = found[0]
    for line in tell(job, read_journal(run)):
        print(line)
