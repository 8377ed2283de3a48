"""Services that are forked off a process which has imported everything: a start costs a fork instead of the imports,
which take most of its time. What is forked is `dally serve`, a process of its own, and as dead when it is killed.

    python forked.py LOG     reads `start WORD…` and `kill PID` line by line, answers with a line each
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path


class Fork:
    """A child of the process that forks, with the few methods of `subprocess.Popen` that are needed."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid

    def kill(self) -> None:
        self._nursery.ask("kill", str(self.pid))

    def wait(self, timeout: float | None = None) -> None:
        self._nursery.ask("wait", str(self.pid))

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


class Nursery:
    """Starts the process that forks. One thread at a time."""

    def __init__(self, log: Path) -> None:
        self._process = subprocess.Popen([sys.executable, __file__, str(log)], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)  # fmt: skip

    def start(self, words: list[str]) -> Fork:
        return Fork(self, int(self.ask("start", *words)))

    def ask(self, *words: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _forks(log: str) -> None:
    import psycopg  # noqa: F401
    import sqlalchemy.dialects.postgresql
    import sqlalchemy.dialects.sqlite  # noqa: F401
    import uvicorn.lifespan.on
    import uvicorn.loops.auto
    import uvicorn.protocols.http.auto  # noqa: F401

    import dally.catalog.clusters
    import dally.cli.live.serve
    import dally.live.config
    import dally.live.opening
    import dally.live.run
    import dally.policies.dally.policy  # noqa: F401
    from dally.cli.main import cli

    for line in sys.stdin:
        what, *words = json.loads(line)
        if what == "start":
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    os.setsid()
                    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                    nothing = os.open(os.devnull, os.O_RDONLY)
                    for given, taken in ((nothing, 0), (said, 1), (said, 2)):
                        os.dup2(given, taken)
                    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
                    cli(words, standalone_mode=True)
                except SystemExit as end:
                    code = end.code if isinstance(end.code, int) else 1
                finally:
                    os._exit(code)
            print(pid, flush=True)
        else:
            if what == "kill":
                os.kill(int(words[0]), signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # it has been waited for
                os.waitpid(int(words[0]), 0)
            print("gone", flush=True)


if __name__ == "__main__":
    _forks(sys.argv[1])
