"""`dally rerun`: a folder of results made again and compared byte for byte."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from dally.cli.inputs import force_option
from dally.cli.progress import Progress

MOST_LINES = 20  # beyond these only what differs is named


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--out", "-o", type=click.Path(path_type=Path, file_okay=False), help="Keep what is made there.")
@force_option
@click.option("--workers", type=click.IntRange(min=1), help="Policies to run at a time; default: one per core.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
def command(folder: Path, out: Path | None, force: bool, workers: int | None, quiet: bool) -> None:
    """Make a folder of results again, from what it says of itself, and compare the two byte for byte.

    \b
    dally simulate --trace synth:helios --jobs 500 --load 0.9 --cluster 2x4x8 --policy las --out out
    dally rerun out

    The exit code is 0 where every file is the same and 1 where one is not.
    """
    from dally.cli.printing import print_notes, print_table
    from dally.experiments.provenance import read_provenance
    from dally.experiments.rerun import made_again, run_again

    about = read_provenance(folder)
    if "reproduce" in about:
        done = made_again(folder, about, partial(_reproduce, force, [about["reproduce"], *about["arguments"]]), out)
    elif "twin" in about:
        from dally.cli.twin_folder import twin_again

        done = twin_again(folder, about, out, force, workers)
    else:
        with Progress(quiet) as progress:
            done = run_again(folder, out, workers=workers, report=progress, force=force)
    if not quiet:
        print_notes(done.notes)
    words = {True: "the same, byte for byte", False: "differs", None: "missing"}
    shown = {name: same for name, same in done.files.items() if not same or len(done.files) <= MOST_LINES}
    print_table(("file", ""), [(name, words[same]) for name, same in shown.items()])
    if len(shown) < len(done.files):
        print(f"{sum(map(bool, done.files.values())):,} of {len(done.files):,} are the same, byte for byte")
    if not done.same:
        sys.exit(1)


def _reproduce(force: bool, words: list[str], out: Path) -> None:
    """The command in here, its tables thrown away: what is compared is what it writes."""
    import contextlib
    import io

    from dally.cli.reproduce import command as reproduce

    with contextlib.redirect_stdout(io.StringIO()):
        reproduce.main([*words, "--out", str(out), "--quiet", *(["--force"] if force else [])], standalone_mode=False)
