"""The only place that runs Slurm's commands. Each of them has a time limit; every question is asked for all at once.

A command can be answered, refused (`SlurmRefused`: the controller said no) or left without an answer (`SlurmAway`: the
controller is down, changes over, or is slower than we wait). Nothing may be concluded from the last one, not even that
what was asked for was not done.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence

from dally.core.errors import UserError
from dally.live.slurm.reading import (
    Reservation,
    SlurmJob,
    SlurmNode,
    read_jobs,
    read_nodes,
    read_reservations,
    topology_conf,
)  # fmt: skip

_AWAY = re.compile(r"unable to contact|timed out|connection|zero bytes were transmitted|standby mode|communication|"
                   r"transport endpoint|try again|temporarily unable|insane message|munge|authentication",
                   re.I)  # fmt: skip
_GONE = re.compile(r"invalid job id|already completing or completed|job has already finished", re.I)
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SLURM_CONF", "SLURM_CLUSTERS", "LD_LIBRARY_PATH", "TZ")


class SlurmError(Exception):
    """What Slurm said, in its words."""


class SlurmAway(SlurmError):  # noqa: N818 - it names what happened
    """No answer. What was asked for may have been done or not."""


class SlurmRefused(SlurmError):  # noqa: N818
    """The controller said no."""


class Slurm:
    """Slurm as its commands show it."""

    def __init__(self, timeout: float = 20.0, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        self.timeout = timeout
        self.calls = 0  # commands run so far
        self.took = 0.0  # seconds the last one took
        self._environment = {name: given[name] for name in _KEPT if name in given}
        self._environment |= {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"}

    def _run(self, *words: str, script: str | None = None) -> str:
        self.calls += 1
        begin = time.monotonic()
        try:
            done = subprocess.run(words, input=script or "", capture_output=True, text=True, errors="replace",
                                  timeout=self.timeout, env=self._environment, check=False, cwd="/")  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SlurmAway(f"{words[0]} got no answer in {self.timeout:g} s") from None
        except OSError as error:
            raise UserError(f"{words[0]} cannot be run: {error.strerror}; Slurm's commands must be in PATH") from None
        finally:
            self.took = time.monotonic() - begin
        if done.returncode == 0:
            return done.stdout
        said = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip()) or \
            f"{words[0]} ended with {done.returncode}"  # fmt: skip
        if done.returncode < 0 or _AWAY.search(said):
            raise SlurmAway(said)
        raise SlurmRefused(said)

    # --- what it says ---------------------------------------------------------------------------------------------

    def jobs(self) -> list[SlurmJob]:
        """Everybody's, those that ended lately included."""
        return read_jobs(self._run("scontrol", "-o", "-d", "-a", "show", "jobs"))

    def nodes(self) -> list[SlurmNode]:
        return read_nodes(self._run("scontrol", "-o", "-d", "-a", "show", "nodes"))

    def reservations(self) -> list[Reservation]:
        return read_reservations(self._run("scontrol", "-o", "show", "reservations"))

    def topology(self) -> str:
        """As topology.conf would say it; empty where Slurm knows of none."""
        try:
            return topology_conf(self._run("scontrol", "show", "topology"))
        except SlurmRefused:
            return ""

    def node_list(self) -> str:
        return self._run("scontrol", "-o", "-a", "show", "nodes")

    def version(self) -> tuple[int, int]:
        found = re.search(r"(\d+)\.(\d+)", self._run("scontrol", "--version"))
        if found is None:
            raise UserError("scontrol --version names no version")
        return int(found[1]), int(found[2])

    # --- what it is told ------------------------------------------------------------------------------------------

    def submit(self, script: str, options: Sequence[str]) -> int:
        """A held job; its id."""
        said = self._run("sbatch", "--parsable", "--hold", *options, script=script)
        found = re.match(r"\d+", said.strip())
        if found is None:
            raise SlurmAway(f"sbatch answered {said.strip()!r}, which is no job id")
        return int(found[0])

    def release(self, ids: Sequence[int]) -> None:
        self._for_all(("scontrol", "release"), [",".join(map(str, ids))] if ids else [])

    def nudge(self, ids: Sequence[int]) -> None:
        """Let the batch processes of these jobs look for what is wished."""
        self._for_all(("scancel", "--batch", "--signal=USR1"), list(map(str, ids)))

    def cancel(self, ids: Sequence[int]) -> None:
        self._for_all(("scancel",), list(map(str, ids)))

    def _for_all(self, command: Sequence[str], ids: Sequence[str]) -> None:
        """One command for all. That some of them are over already is no error: the next look says so."""
        if not ids:
            return
        try:
            self._run(*command, *ids)
        except SlurmRefused as error:
            if not _GONE.search(str(error)):
                raise

    def drain(self, node: str, reason: str) -> None:
        self._run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def resume(self, node: str) -> None:
        self._run("scontrol", "update", f"NodeName={node}", "State=RESUME")
