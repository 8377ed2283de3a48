"""`dally profile run`: the five measurements of a training script, without an edit to it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dally.cli.inputs import Time
from dally.cli.writing import check_free, force_file_option, set_aside

if TYPE_CHECKING:
    from dally.profiler.measure import Found


class Talk:
    """Progress on standard error: one line that changes on a terminal, a line now and then elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self._said, self._title = quiet, 0.0, ""

    def __call__(self, text: str) -> None:
        title = text.partition(":")[0]
        now = time.monotonic()
        if self.quiet:
            return
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        elif title != self._title or now - self._said > 10:
            print(text, file=sys.stderr, flush=True)
            self._said = now
        self._title = title

    def end(self) -> None:
        if not self.quiet and sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--processes",
    "-n",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Ranks on this machine: one per GPU, or per share of the CPUs.",
)
@click.option(
    "--out", "-o", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The profile to write."
)
@force_file_option
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True, help="Steps in a window.")
@click.option(
    "--warmup", type=click.IntRange(min=1), default=5, show_default=True, help="Steps before the first window."
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Windows in a run.")
@click.option(
    "--launches",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Times the whole set of runs is started anew; the spread then has what differs between starts.",
)
@click.option("--machines", metavar="netns:A,B", help="Also measure the same ranks over these network namespaces.")
@click.option("--link", default="", help="What joins them, in your words: kept in the profile.")
@click.option("--threads", type=click.IntRange(min=1), help="OMP_NUM_THREADS of each rank; default: cores / processes.")
@click.option(
    "--patience",
    type=Time(),
    default="5m",
    show_default=True,
    help="A script without a sign of life for so long hangs and is ended.",
)
@click.option(
    "--only", type=click.Choice(["one", "all", "cold", "cached", "apart"]), multiple=True, help="Make only these runs."
)
@click.option(
    "--trace/--no-trace", default=True, show_default=True, help="Keep a Chrome trace of two steps beside the profile."
)
@click.option(
    "--drop-caches", is_flag=True, help="Drop the whole page cache before the cold run (root; slows this host)."
)
@click.option("--name", default="", help="The model's name in the profile; default: the script's.")
@click.option(
    "--python", "interpreter", default=None, metavar="PYTHON", help="Interpreter of the script; default: ours."
)
@click.option("--quiet", "-q", is_flag=True, help="No progress, no notes.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    processes: int,
    out: Path,
    force: bool,
    steps: int,
    warmup: int,
    repeats: int,
    launches: int,
    machines: str | None,
    link: str,
    threads: int | None,
    patience: float,
    only: tuple[str, ...],
    trace: bool,
    drop_caches: bool,
    name: str,
    interpreter: str | None,
    quiet: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Measure where SCRIPT stalls: one device, all devices, real data cold and cached, several machines.

    \b
    dally profile run --processes 2 --out net.yaml train.py --batch-size 32
    dally profile run -n 2 --out net.yaml --machines netns:m0,m1 --link "1 Gbit" train.py

    The script needs no edit if it uses a DataLoader and DistributedDataParallel. It is started once per run as torchrun
    would start it, and ended when enough steps are measured.
    """
    from dally.core.errors import UserError
    from dally.profiler.machines import parse_machines
    from dally.profiler.measure import Found, Wish, measure

    if not Path(script).is_file():
        raise UserError(f"{script}: there is no such script")
    check_free(out, force)
    if interpreter is None:
        _need_torch()
    chosen = parse_machines(machines) if machines else ()
    kept = out.with_suffix(".trace.json").absolute() if trace else None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: its folder cannot be made: {error.strerror}") from None
    if "apart" in only and not chosen:
        raise UserError("--only apart needs --machines")
    wish = Wish(
        [interpreter or sys.executable, script, *arguments],
        processes,
        warmup,
        steps,
        repeats,
        launches,
        patience,
        threads,
        chosen,
        link,
        name,
        kept,
        drop_caches,
        only,
    )
    found = Found(wish)
    talk = Talk(quiet)
    interrupted = False
    with set_aside(kept):  # a timeline of another run is none of this one's, and comes back if there is none
        try:
            measure(wish, talk, found)
        except KeyboardInterrupt:
            interrupted = True
            found.troubles.append("interrupted before everything was measured")
        finally:
            talk.end()
        _keep(found, out, quiet)
    if interrupted:
        raise KeyboardInterrupt
    if found.troubles:
        raise click.exceptions.Exit(1)


def _keep(found: Found, out: Path, quiet: bool) -> None:
    from dally.cli.profile.show import print_profile
    from dally.core.errors import UserError
    from dally.profiler.document import write_profile

    profile = found.profile()
    if profile is None:
        if found.log:
            out.with_suffix(".log").write_text(found.log)
        where = f" (its output is in {out.with_suffix('.log')})" if found.log else ""
        why = "; ".join(found.troubles) or "no step was like the others"
        raise UserError(f"nothing could be measured: {why}{where}")
    write_profile(profile, out)
    if found.troubles and found.log:
        out.with_suffix(".log").write_text(found.log)
    if not quiet:
        print_profile(profile)
        for trouble in found.troubles:
            print(f"dally: {trouble}; what was measured is in {out}", file=sys.stderr)


def _need_torch() -> None:
    from importlib.util import find_spec

    from dally.core.errors import UserError

    if find_spec("torch") is None:
        raise UserError("profiling a script needs PyTorch: install dally[torch], or name an interpreter with --python")
