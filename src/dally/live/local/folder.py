"""The folder of an attempt: all that an engine needs to know of it, whoever started it.

    order.json   what is to be run (removed when the attempt is forgotten: it may hold secrets)
    run, void    the two things `claim` can be a link to; made beforehand, so that a full disk cannot prevent either
    claim        run: the attempt belongs to the shim that linked it; void: it never began and never will
    lock         locked for as long as the shim lives
    exit         how far it is and how it ended (shim.Record); allocated beforehand
    control      FIFO to the shim
    out.log …    what it prints (output.py)
    progress     what the job says of itself (dally.job)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.live.local import shim


class Stage(Enum):
    """How far an attempt is."""

    UNCLAIMED = "unclaimed"  # nobody has begun it; somebody may
    VOID = "void"  # nobody has, and nobody can any more
    STARTING = "starting"
    RUNNING = "running"
    REFUSED = "refused"  # claimed, but its processes could not be started
    OVER = "over"
    GONE = "gone"  # its shim died, and nobody knows how the attempt ended
    UNKNOWN = "unknown"  # its folder cannot be read at this moment


ENDED = (Stage.VOID, Stage.REFUSED, Stage.OVER, Stage.GONE)


@dataclass(frozen=True, slots=True)
class Look:
    """What a look into the folder shows."""

    stage: Stage
    code: int = 0
    cause: str = ""
    pid: int | None = None  # of the shim
    start: str | None = None  # when that process began: with its pid its identity
    token: str | None = None  # what its processes carry in their environment
    asked: str = ""  # whether the shim has heard that it is to leave, or to be put out


class AttemptFolder:
    """One attempt's folder under the engine's."""

    __slots__ = ("attempt", "job", "path")

    def __init__(self, attempts: Path, job: str, attempt: int) -> None:
        self.job, self.attempt = job, attempt
        self.path = attempts / f"{quote(job, safe='')}.{attempt}"  # no job's name leads out of the folder

    def prepare(self, order: dict[str, Any]) -> None:
        """Everything a shim needs. Raises OSError where there is no room or no right to write."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write("order.json", json.dumps(order).encode())
        self._write("run", f"run {order['token']}\n".encode())
        self._write("void", b"void\n")
        record = shim.packed({"turn": 0, "state": "ordered", "cause": ""})
        if not (self.path / "exit").exists():
            self._write("exit", record + b" " * shim.SLOT)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self.path / "control", 0o600)
        os.close(os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600))

    def _write(self, name: str, data: bytes) -> None:
        """Whole or not at all, and never under the hands of a shim that has begun."""
        new = self.path / f"{name}.new"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            if os.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(new))
        finally:
            os.close(file)
        if (self.path / "claim").exists():
            raise FileExistsError(errno.EEXIST, "the attempt was begun or given up already", str(self.path))
        new.replace(self.path / name)

    def make_void(self) -> bool:
        """Make sure that it never begins; False if it has. Raises OSError where that cannot be written."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        claim = self.path / "claim"
        if not (self.path / "void").exists():
            try:
                self._write("void", b"void\n")
            except FileExistsError:
                return self.look().stage is Stage.VOID
            except OSError:  # no room for five bytes: an empty claim says the same
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                return self.look().stage is Stage.VOID
        with contextlib.suppress(FileExistsError):
            os.link(self.path / "void", claim)
        return self.look().stage is Stage.VOID

    def look(self, held: bool | None = None) -> Look:
        """How far it is. The lock is asked before the record: who is gone has written there all it ever will. `held`:
        whether its process lives, where somebody else knows."""
        try:
            claim = (self.path / "claim").read_text(errors="replace")
        except FileNotFoundError:
            return Look(Stage.UNCLAIMED)
        except OSError as error:
            return Look(Stage.UNKNOWN, cause=str(error))
        if not claim.startswith("run "):
            return Look(Stage.VOID)
        try:
            held = self._held() if held is None else held
        except OSError as error:
            return Look(Stage.UNKNOWN, cause=str(error))
        record = shim.read_record(str(self.path / "exit"))
        token = claim.removeprefix("run ").strip() or None
        if record is None:
            return Look(Stage.STARTING if held else Stage.GONE, cause="its record is gone", token=token)
        state, cause = record["state"], str(record.get("cause", ""))
        who = (record.get("pid"), record.get("start"), record.get("token", token), str(record.get("asked", "")))
        if state == "exited":
            return Look(Stage.OVER, int(record["code"]), cause, *who)
        if state == "refused":
            return Look(Stage.REFUSED, 0, cause, *who)
        if held:
            return Look(Stage.RUNNING if state == "running" else Stage.STARTING, 0, cause, *who)
        if state == "ordered":  # no process of the job was started before the record said so
            return Look(Stage.REFUSED, 0, "the process that should have started it died", *who)
        return Look(Stage.GONE, 0, "the process that watched over it died", *who)

    def _held(self) -> bool:
        """Whether a shim lives. A shared lock, so that two who look do not see each other."""
        try:
            file = os.open(self.path / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def command(self, text: str) -> bool:
        """Tell the shim something; False if there is none. No process number is used: nobody else can be hit."""
        try:
            control = os.open(self.path / "control", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            os.write(control, f"{text}\n".encode())
        except OSError:
            return False
        finally:
            os.close(control)
        return True

    def order(self) -> dict[str, Any]:
        """What was ordered; empty where that cannot be read any more."""
        try:
            order = json.loads((self.path / "order.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return order if isinstance(order, dict) else {}

    def complaint(self) -> str:
        """What a shim that failed said last."""
        with contextlib.suppress(OSError):
            lines = (self.path / "shim.log").read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""

    def forget(self) -> None:
        """Keep its output, and the claim: a starter that comes late must still find that it comes late."""
        for name in ("order.json", "exit", "run", "void", "lock", "control", "progress", "shim.log"):
            with contextlib.suppress(OSError):
                (self.path / name).unlink()

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def folders(attempts: Path) -> Iterator[AttemptFolder]:
    """Every attempt that has a folder."""
    try:
        names = [entry.name for entry in attempts.iterdir()]
    except FileNotFoundError:
        return
    for name in names:
        job, _, number = name.rpartition(".")
        if job and number.isdecimal():
            yield AttemptFolder(attempts, unquote(job), int(number))


def prepare_state(attempts: Path) -> None:
    """Make the folder of all attempts, and see that its file system can do what everything here stands on."""
    trial = attempts / f".trial-{os.getpid()}"
    try:
        attempts.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(trial, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.link(trial, f"{trial}-link")
        finally:
            os.close(file)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EEXIST, errno.EAGAIN):  # these pass
            raise UserError(f"{attempts} cannot hold attempts (files, locks, hard links): {error.strerror}") from None
    finally:
        for path in (trial, Path(f"{trial}-link")):
            with contextlib.suppress(OSError):
                path.unlink()


def sweep(attempts: Path, keep: float) -> None:
    """Remove what was forgotten and has not been written to for so many seconds."""
    for folder in folders(attempts):
        with contextlib.suppress(OSError):
            if time.time() - folder.path.stat().st_mtime <= keep:
                continue
            age = time.time() - max(path.stat().st_mtime for path in (folder.path, *folder.path.glob("out.log")))
            forgotten = (folder.path / "claim").exists() and not (folder.path / "order.json").exists()
            if age > keep and forgotten and folder.look().stage in ENDED:
                folder.remove()
