"""The folder of a twin: claimed before anything is replayed, put in place whole, with how it was made."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from dally.cli.given import given
from dally.core.records import dataclass

if TYPE_CHECKING:
    from dally.experiments.output import Output
    from dally.experiments.rerun import Rerun
    from dally.experiments.twin.trip import Asked, Twin

PIPE = "-"  # as the history: standard input
HISTORY = "history"  # the file that keeps what came through a pipe
PAGES = ("twin.json", "jobs.csv", "twin.html")
_FILES = ("history", "cluster", "nodes", "conf", "outages")  # options that may name one


@dataclass(slots=True)
class TwinFolder:
    """`output` None: nothing is to be kept."""

    output: Output | None
    about: dict[str, Any]
    piped: bytes | None

    def write(self, twin: Twin, document: dict[str, Any], said: Sequence[str]) -> None:
        if self.output is None:
            return
        from dally.experiments.folder import write_json
        from dally.experiments.provenance import PROVENANCE
        from dally.experiments.twin.page import write_twin

        part = self.output.part
        write_twin(twin, document, said, part)
        if self.piped is not None:
            (part / HISTORY).write_bytes(self.piped)
        write_json(self.about, part / PROVENANCE)
        self.output.swap_in()


@contextmanager
def twin_folder(out: Path | None, force: bool, asked: Asked, piped: bytes | None,
                quiet: bool) -> Iterator[TwinFolder]:  # fmt: skip
    """Claimed, or one sentence. Replays that an interrupted run of the same had finished are not made again."""
    if out is None:
        yield TwinFolder(None, {}, None)
        return
    from dally.experiments.output import FINISHED, Output
    from dally.experiments.twin.kept import kept_in

    about = _about(asked, piped)
    with Output.claimed(out, about, force=force) as output, kept_in(output.part / FINISHED) as shelf:
        try:
            yield TwinFolder(output, about, piped)
        except KeyboardInterrupt:
            if not quiet and any((output.part / FINISHED).glob("*.json")):
                print(f"dally: replays that were finished are in {output.part}, and the same command goes on from "
                      "there", file=sys.stderr)  # fmt: skip
            raise
        if shelf.found and not quiet:
            print(f"{len(shelf.found)} replays were finished by an earlier run of the same that was interrupted, and "
                  "are not made again", file=sys.stderr)  # fmt: skip


def _about(asked: Asked, piped: bytes | None) -> dict[str, Any]:
    """How the folder is made, known before anything is run, as plain JSON."""
    from dally.simulator.digests import code_digest, digest_of
    from dally.version import __version__

    words, files = given(click.get_current_context(), _FILES)
    named = [str(asked.conf or ""), *_named(asked)]
    files |= {name: digest for name in named if (digest := digest_of(name)) is not None}
    if piped is not None:
        files[PIPE] = hashlib.sha256(piped).hexdigest()
    return {"dally": __version__, "code": code_digest(), "twin": True, "arguments": words, "files": files,
            "pages": list(PAGES), "folder": str(Path.cwd())}  # fmt: skip


def _named(asked: Asked) -> Iterator[str]:
    """Files that policies are, or that their options name."""
    from dally.core.spec import parse_spec

    for policy in (*asked.policies, *filter(None, [asked.present])):
        spec = parse_spec(policy, "policy")
        values = [value for _, value in spec.options if value]
        yield from (each for each in (spec.name, *values) if len(each) < 4096 and "\0" not in each
                    and Path(each).is_file())  # fmt: skip


@contextmanager
def as_standard_input(data: bytes | None) -> Iterator[None]:
    """What was read from there can be read again."""
    if data is None:
        yield
        return
    before: Any = sys.stdin
    sys.stdin = SimpleNamespace(buffer=io.BytesIO(data))
    try:
        yield
    finally:
        sys.stdin = before


def twin_again(folder: Path, about: dict[str, Any], out: Path | None, force: bool, workers: int | None) -> Rerun:
    """The folder of a twin made again, its table thrown away: what is compared is what it writes."""
    import contextlib

    from dally.cli.twin import command
    from dally.experiments.rerun import made_again

    words = [*about["arguments"], "--quiet", *(["--force"] if force else [])]
    words += [] if workers is None else ["--workers", str(workers)]
    piped = folder.resolve() / HISTORY

    def make(target: Path) -> None:
        kept = as_standard_input(piped.read_bytes()) if PIPE in about["files"] else nullcontext()
        with kept, contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            # a what-if that could not be run ends it with a code of its own, and is in the files
            command.main([*words, "--out", str(target)], prog_name="dally twin", standalone_mode=False)

    return made_again(folder, about, make, out)
