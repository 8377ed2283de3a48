"""A PostgreSQL server of the tests' own: in a folder, on a socket and a free port of loopback, gone when they end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path


def programs() -> Path | None:
    """Where the server's programs are; None: it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgres:
    """The server refuses to be root: run as root, it is another user's."""

    def __init__(self) -> None:
        found = programs()
        assert found is not None
        self._programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="dally-pg-"))
        self.port = free_port()
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(self.folder, "postgres")
        data = self.folder / "data"
        self._run(self._programs / "initdb", "-D", data, "-A", "trust", "-U", "dally", "--no-sync")
        self.start()

    def _run(self, *words: str | Path) -> None:
        done = subprocess.run([*self._as, *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        assert done.returncode == 0, done.stderr + done.stdout

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        self._run(self._programs / "pg_ctl", "-D", self.folder / "data", "-l", self.folder / "log", "-o", options,
                  "-w", "start")  # fmt: skip

    def stop(self) -> None:
        """As a crash would: connections are cut."""
        self._run(self._programs / "pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")

    def database(self, name: str) -> str:
        """A new, empty database; its URL."""
        self._run(self._programs / "createdb", "-h", self.folder, "-p", str(self.port), "-U", "dally", name)
        return f"postgresql://dally@127.0.0.1:{self.port}/{name}"

    def close(self) -> None:
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
        for _ in range(200):
            if not (self.folder / "data" / "postmaster.pid").exists():
                break
            time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)
