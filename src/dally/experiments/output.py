"""A folder that `--out` names: written beside, put in place whole when all is done, and never over another run's.

While a run goes it writes to `NAME.part`. What is finished there when it is stopped, or killed, is found again by the
same command. Two runs at a time into one folder are refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from dally.core.errors import UserError
from dally.experiments.provenance import PROVENANCE, TRACE, command_of
from dally.simulator.digests import text_digest

PART = ".part"
OLD = ".old"  # the folder that is being replaced, for the moment between two renames
CLAIM = "claim.json"  # of a part: which run it is of
FINISHED = "finished"  # of a part: what each finished policy left for a run that goes on
_OURS = {PROVENANCE, TRACE, "summary.json", "timing.json", "jobs.csv", "journal.jsonl.gz", "report.html", "index.html",
         "twin.json", "twin.html", "history"}  # fmt: skip
_OF_POLICY = {"jobs.csv", "journal.jsonl.gz"}
_INPUTS = ("dally", "code", "scenario", "files", "policies", "many", "reproduce", "twin", "arguments")


def identity(about: Mapping[str, Any]) -> str:
    """What decides the content of a folder: equal for two runs that write the same."""
    wanted = dict(about)
    if "scenario" in wanted:
        wanted.pop("arguments", None)  # they say the same again
    return text_digest({name: wanted[name] for name in _INPUTS if name in wanted})


class Output:
    """`with Output.claimed(out, about, force) as output: … write to output.part … output.swap_in()`."""

    def __init__(self, out: Path, part: Path, about: Mapping[str, Any], force: bool) -> None:
        self.out, self.part, self.about, self.force = out, part, about, force

    @classmethod
    @contextmanager
    def claimed(cls, out: Path, about: Mapping[str, Any], *, force: bool = False) -> Iterator[Output]:
        """The folder is free for this run, and stays so; or one sentence. `about`: as in provenance."""
        home = _resolved(out)
        _restore(home)
        made = cls(home, _part_of(home), about, force)
        made._check(out)
        with made._locked(out):
            made._begin(out)
            try:
                yield made
            finally:
                if not made._worth_keeping():
                    shutil.rmtree(made.part, ignore_errors=True)

    def _check(self, shown: Path) -> None:
        """Before anything is run: nothing of somebody else's would be lost in the end."""
        if self.force or not self.out.is_dir():
            return
        found = _record(self.out)
        if found is not None:
            if identity(found) != identity(self.about):
                raise UserError(f"--out {shown} holds another run's results ({_said(found)}): take another folder, or "
                                "--force to replace them")  # fmt: skip
        elif present := sorted(name for name in _OURS if (self.out / name).exists()):
            raise UserError(f"--out {shown} has a file {present[0]} that is not of this run: take another folder, or "
                            "--force to replace it")  # fmt: skip

    @contextmanager
    def _locked(self, shown: Path) -> Iterator[None]:
        lock: IO[bytes] | None = None
        try:
            try:
                self.part.mkdir(parents=True, exist_ok=True)
                lock = (self.part / ".lock").open("ab")
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"--out {shown}: another run is writing there") from None
            except OSError as error:
                raise UserError(f"--out {shown}: the folder cannot be made: {error.strerror}") from error
            yield
        finally:
            if lock is not None:
                lock.close()

    def _begin(self, shown: Path) -> None:
        claim = self.part / CLAIM
        try:
            left = json.loads(claim.read_text(encoding="utf-8"))
            same = left.get("inputs") == self._inputs()
            what = str(left.get("command", "a run"))
        except FileNotFoundError:
            left, same, what = None, True, ""
        except (OSError, ValueError, AttributeError):
            left, same, what = {}, False, "it cannot be read"
        if left is not None and not same:
            if not self.force and self._worth_keeping():
                raise UserError(f"--out {shown}: {self.part} holds what another run left that was interrupted "
                                f"({what}): finish that one, take another folder, or --force to begin anew")
            _empty(self.part)
        try:
            record = {"inputs": self._inputs(), "command": _said(self.about)}
            claim.write_text(json.dumps(record) + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(f"--out {shown}: the folder cannot be written: {error.strerror}") from error

    def _inputs(self) -> str:
        """What a finished policy's results depend on: not on who is compared with it."""
        return identity({name: value for name, value in self.about.items() if name != "policies"})

    def swap_in(self) -> None:
        """All is written: it becomes the folder."""
        for name in (CLAIM, ".lock"):
            (self.part / name).unlink(missing_ok=True)
        shutil.rmtree(self.part / FINISHED, ignore_errors=True)
        if self.part.parent == self.out:
            _merge(self.part, self.out, _entries(_record(self.out)))
            self.part.rmdir()
        elif not self.out.exists():
            self.part.rename(self.out)
        elif (before := _record(self.out)) is not None and not _held(self.out):
            ours = _entries(before)
            aside = self.out.with_name(self.out.name + OLD)
            for entry in list(self.out.iterdir()):
                if not _of_the_run(entry, ours) and not (self.part / entry.name).exists():
                    entry.rename(self.part / entry.name)  # somebody's own file beside the results
            self.out.rename(aside)
            self.part.rename(self.out)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            _merge(self.part, self.out, _entries(_record(self.out)))
            self.part.rmdir()

    def _worth_keeping(self) -> bool:
        """A finished policy (or replay), or partial figures that somebody was shown; a torn journal alone is not."""
        finished = self.part / FINISHED
        return (self.part / "summary.json").exists() or (finished.is_dir() and any(finished.iterdir()))


def _resolved(out: Path) -> Path:
    try:
        return out.resolve()
    except (OSError, RuntimeError) as error:
        raise UserError(f"--out {out}: the folder cannot be made: {error}") from None


def _held(out: Path) -> bool:
    """Whether the folder itself must stay: somebody stands in it, or something is mounted there."""
    here = Path.cwd()
    return here == out or out in here.parents or os.path.ismount(out)


def _part_of(out: Path) -> Path:
    if out.is_dir() and (_held(out) or not os.access(out.parent, os.W_OK)):
        return out / PART
    return out.with_name(out.name + PART)


def _restore(out: Path) -> None:
    """A run that died between its two renames left the old folder under another name."""
    aside = out.with_name(out.name + OLD)
    if not out.exists() and _record(aside) is not None:
        aside.rename(out)


def _record(folder: Path) -> dict[str, Any] | None:
    """How a folder of results was made; None where it holds none."""
    try:
        found = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _said(about: Mapping[str, Any]) -> str:
    if "sweep" in about:
        return "a sweep"
    try:
        return f"`{command_of(dict(about))}`"
    except (KeyError, TypeError):
        return "a run"


def _entries(about: Mapping[str, Any] | None) -> set[str]:
    """The names that a run of this record leaves in its folder."""
    if about is None:
        return set()
    from dally.experiments.naming import slug

    ours = set(_OURS) | {"results.parquet", "cells"} | {str(page) for page in about.get("pages", ())}
    for record in about.get("policies", ()):
        with suppress(TypeError, KeyError):
            ours |= {slug(record["policy"]), f"{slug(record['policy'])}.error.txt"}
    return ours


def _of_the_run(entry: Path, ours: set[str]) -> bool:
    return entry.name in ours or (entry.is_dir() and any((entry / name).exists() for name in _OF_POLICY))


def _merge(part: Path, out: Path, stale: set[str]) -> None:
    """Entry by entry, where the folder itself cannot be exchanged; how it was made comes last."""
    for entry in list(out.iterdir()):
        if entry != part and _of_the_run(entry, stale) and not (part / entry.name).exists():
            _remove(entry)
    for entry in sorted(part.iterdir(), key=lambda each: each.name == PROVENANCE):
        target = out / entry.name
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        entry.replace(target)


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()


def _empty(part: Path) -> None:
    for entry in list(part.iterdir()):
        if entry.name != ".lock":
            _remove(entry)
