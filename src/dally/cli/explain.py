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
    from dally.store.journal_file import JournalReader

    for line in tell(job, JournalReader(journal_in(run))):
        print(line)


def journal_in(run: Path) -> Path:
    """The journal of a folder that `--out` wrote, or the file itself."""
    if not run.is_dir():
        return run
    found = sorted(run.glob("journal.jsonl*"))
    if not found:
        inside = sorted(path.parent.name for path in run.glob("*/journal.jsonl*"))
        which = f"; name the folder of one policy: {', '.join(inside)}" if inside else ""
        raise UserError(f"{run} holds no journal{which}")
    return found[0]
