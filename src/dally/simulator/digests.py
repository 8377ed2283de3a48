"""Digests: the same bytes and the same jobs have the same one, on every machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.traces.trace import Trace


def digest_of(name: str) -> str | None:
    """SHA-256 of a file, or of a folder's files with their names; None where the text names neither."""
    try:
        path = Path(name)
        if not name or not path.exists():
            return None
        if path.is_dir():
            whole = hashlib.sha256()
            for file in sorted(each for each in path.rglob("*") if each.is_file()):
                whole.update(f"{file.relative_to(path)}\0{_of_file_in(file)}\n".encode())
            return whole.hexdigest()
        return _of_file(path)
    except ValueError:  # no name a file could have
        return None
    except OSError as error:
        if error.filename is None or not Path(error.filename).exists():
            return None
        raise UserError(f"{name} cannot be read: {error.strerror}") from None


def _of_file_in(path: Path) -> str:
    """Of one file among those of a folder: one that is not ours to read is not read by anybody else here either."""
    try:
        return _of_file(path)
    except PermissionError:
        return "not readable"


def _of_file(path: Path) -> str:
    state = path.stat()
    return _kept(str(path.resolve()), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _kept(path: str, changed: int, size: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# fields of a job that came later: where it says nothing there, it is the same job as before, and so the digest
_SAYS_NOTHING = (
    ", within=None, prefers=None, wait=None, preemptible=True",
    ", name=None, partition=None, qos=None, nodes=None, among=None, exclusive=False, limit=None",
    ", start=None, submitted=None",
    ", after=None, throttle=None, reservation=None",
)


def _form(kind: type) -> str:
    """`repr` of a dataclass, to be filled in."""
    return f"{kind.__qualname__}({', '.join(f'{each.name}=%r' for each in fields(kind))})"


_JOB, _TRUTH = _form(Job), _form(Truth)
_of_job, _of_truth = (attrgetter(*(each.name for each in fields(kind))) for kind in (Job, Truth))


def trace_digest(trace: Trace) -> str:
    """SHA-256 over every job and the truth about it: what is simulated, wherever it came from."""
    whole = hashlib.sha256()
    for job, truth in zip(trace.jobs, trace.truths, strict=True):
        # as `repr((job, truth))`, in a quarter of the time
        text = f"({_JOB % _of_job(job)}, {_TRUTH % _of_truth(truth)})"
        for nothing in reversed(_SAYS_NOTHING):
            text = text.replace(nothing, "")
        whole.update(text.encode())
    return whole.hexdigest()


def text_digest(value: Any) -> str:
    """SHA-256 of plain data in its one canonical text."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """SHA-256 of the program's own source files: tells two states of one version apart."""
    import dally.version

    root = Path(dally.version.__file__).parent
    whole = hashlib.sha256()
    for file in sorted(root.rglob("*")):
        if file.suffix in (".py", ".yaml", ".csv") and file.is_file():
            whole.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return whole.hexdigest()
