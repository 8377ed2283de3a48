"""`dally explain`: why a job of the service waits, or a job's life from a run's journal."""

from __future__ import annotations

from pathlib import Path

import click

from dally.core.errors import UserError


@click.command()
@click.argument("job")
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print as JSON; of the service's jobs only.")
def command(job: str, run: Path | None, as_json: bool) -> None:
    """Say what JOB waits for: of the service that schedules real jobs, or, with RUN, in a simulation.

    RUN is the folder `--out` wrote, or a journal file; then it is said what the job waited for and when it ran.

    \b
    dally explain 42
    dally simulate -t synth:philly -c 2x4x8 -p fifo --load 1 --out out
    dally explain 42 out
    """
    if run is None:
        from dally.cli.live.common import client, print_json
        from dally.live.telling import explain_text

        found = client().get("jobs", job, "explain")
        if as_json:
            print_json(found)
        else:
            print(explain_text(found))
        return
    if as_json:
        raise UserError("--json goes with jobs of the service; `dally journal show` prints a run's journal")
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
