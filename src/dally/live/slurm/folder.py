"""The folder of an attempt that Slurm runs, on a file system that the nodes share with the service.

Beside what every attempt's folder has (local/folder.py):

    wish         what the attempt is to do: `leave SECONDS`, `out`; made beforehand and written in place
    slurm        the id of its job in Slurm, once that is known
    exit.N       how the ranks of the N-th node ended, of a job of several
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from dally.live.local import shim
from dally.live.local.folder import AttemptFolder, Look, Stage


class SlurmFolder(AttemptFolder):
    """Whether its process lives is Slurm's to say; the lock is a second opinion, where the file system has locks."""

    __slots__ = ()

    def prepare(self, order: dict[str, Any]) -> None:
        super().prepare(order)
        self._write("wish", b"")
        blank = shim.packed({"turn": 0, "state": "ordered", "cause": ""}) + b" " * shim.SLOT
        for number in range(len(order["nodes"]) if len(order["nodes"]) > 1 else 0):
            self._write(f"exit.{number}", blank)

    def seen(self, alive: bool) -> Look:
        """How far it is, if it lives or does not as Slurm says."""
        with contextlib.suppress(OSError):  # opening a folder is when NFS looks for what is new in it
            os.close(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY))
        return self.look(held=alive)

    @property
    def locked(self) -> bool:
        """Whether somebody holds the lock, as far as this machine can tell."""
        try:
            return self._held()
        except OSError:
            return False

    def wish(self, text: str) -> None:
        """In place: a file that is new could be overlooked for a while."""
        with contextlib.suppress(OSError):
            file = os.open(self.path / "wish", os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.write(file, text.encode().ljust(40) + b"\n")
                os.fsync(file)
            finally:
                os.close(file)

    def note_id(self, number: int) -> None:
        with contextlib.suppress(OSError):
            new = self.path / "slurm.new"
            new.write_text(f"{number}\n")
            new.replace(self.path / "slurm")

    def read_id(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int((self.path / "slurm").read_text())
        return None

    def never(self) -> bool:
        """Make sure that it never begins; False if it has, or if that cannot be written now."""
        with contextlib.suppress(OSError):
            return self.make_void()
        return False

    def forget(self) -> None:
        super().forget()
        for path in (self.path / "wish", self.path / "slurm", *self.path.glob("exit.*")):
            with contextlib.suppress(OSError):
                path.unlink()


__all__ = ["Look", "SlurmFolder", "Stage"]
