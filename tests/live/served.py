"""A fake service, really served: `python served.py STATE PORT [CONFIG]` is what `dally serve` is, without a scheduler. Jobs
whose command begins with `finish`, `fail` or `stay` do so, a moment after they were submitted; `restart` finishes when
the service has been started again, which forgets nothing."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from fake_service import FakeService

from dally.live.config import Configured, ServiceConfig, read_config
from dally.live.run import run
from dally.live.spec import JobSpec, read_spec


class Playing(FakeService):
    def __init__(self, state: Path) -> None:
        super().__init__()
        self._kept, self._restarted = state / "kept.json", False
        if self._kept.exists():
            self._restarted = True
            for plain, user in json.loads(self._kept.read_text()):
                self._accept([read_spec(plain)], user)

    def submit(self, specs: list[JobSpec], user: str, key: str | None = None) -> list[str]:
        ids = self._accept(specs, user, key)
        kept = [(spec.plain(), spec.user) for spec in self.specs.values()]
        self._kept.write_text(json.dumps(kept))
        return ids

    def _accept(self, specs: list[JobSpec], user: str, key: str | None = None) -> list[str]:
        ids = super().submit(specs, user, key)
        for id in ids:
            threading.Timer(0.1, self._play, (id,)).start()
        return ids

    def _play(self, id: str) -> None:
        what = self.specs[id].command[0]
        self.logs[id] = b"hello\n"
        if what == "stay" or (what == "restart" and not self._restarted) or self.rows[id]["state"] != "waiting":
            self.put(id, "running", started=time.time(), attempts=1, machines={"rack0/m0": [0, 1]}, why=None)
            return
        ended: dict[str, Any] = {"started": time.time(), "ended": time.time(), "attempts": 1, "why": None}
        if what == "fail":
            self.put(id, "failed", exit_code=3, **{**ended, "why": "exit code 3"})
        else:
            self.put(id, "finished", exit_code=0, **ended)


def main() -> None:
    state, port = sys.argv[1], int(sys.argv[2])
    file = Path(sys.argv[3]) if len(sys.argv) > 3 else None

    def read() -> Configured:
        return read_config(file, {"state": state, "listen": {"port": port}, "policy": None if file else "fifo"})

    def opened(config: ServiceConfig) -> Playing:
        return Playing(config.folder)

    sys.exit(run(read, opened))


if __name__ == "__main__":
    main()
