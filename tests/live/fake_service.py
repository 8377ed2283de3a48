"""A service in memory with the methods of the real one: jobs do what the test says."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

from dally.core.errors import UserError
from dally.live.errors import Conflict, NotFound
from dally.live.metrics import LiveMetrics
from dally.live.roster import id_order
from dally.live.serving import ENDED
from dally.live.spec import JobSpec, expand


class FakeService:
    def __init__(self, machines: int = 2, gpus: int = 4) -> None:
        self.metrics = LiveMetrics()
        self.rows: dict[str, dict[str, Any]] = {}
        self.specs: dict[str, JobSpec] = {}
        self.keys: dict[str, list[str]] = {}
        self.logs: dict[str, bytes] = {}
        self.journal: list[dict[str, Any]] = []
        self.machines = {f"rack0/m{n}": "up" for n in range(machines)}
        self.gpus = gpus
        self.written = "fifo"
        self.error: Exception | None = None  # raised by everything that changes something
        self.submissions = 0
        self._grown = threading.Condition()
        self._stop = threading.Event()

    # --- what tests do ----------------------------------------------------------------------------------------

    def say(self, **entry: Any) -> None:
        with self._grown:
            self.journal.append({"t": float(len(self.journal)), "happened": [entry]})
            self._grown.notify_all()

    def put(self, id: str, state: str, **more: Any) -> None:
        self.rows[id].update({"state": state, **more})
        self.say(e=state, job=id)

    # --- live.serving.Serving ---------------------------------------------------------------------------------

    def hand_in(self, specs: list[JobSpec], user: str, key: str | None = None) -> Future[list[str]]:
        made: Future[list[str]] = Future()
        made.set_result(self.submit(specs, user, key))
        return made

    def submit(self, specs: list[JobSpec], user: str, key: str | None = None) -> list[str]:
        self._check()
        self.submissions += 1
        if key is not None and key in self.keys:
            return self.keys[key]
        ids = []
        for spec in specs:
            number = 1 + max((int(id.partition("_")[0]) for id in self.rows), default=0)
            for index, each in expand(spec):
                id = str(number) if index is None else f"{number}_{index}"
                self.specs[id] = each
                self.rows[id] = {
                    "id": id, "name": each.title, "user": each.user, "queue": each.queue, "state": "waiting",
                    "gpus": each.total_gpus, "priority": each.priority, "attempts": 0, "restarts": 0, "machines": None,
                    "submitted": time.time(), "started": None, "ended": None, "exit_code": None,
                    "reason": "WaitingForGpus", "why": "all GPUs are taken", "until": None,
                }  # fmt: skip
                self.say(e="arrived", job={"id": id, "gpus": each.total_gpus})
                ids.append(id)
        if key is not None:
            self.keys[key] = ids
        return ids

    def dry_run(self, spec: JobSpec, user: str) -> dict[str, Any]:
        fits = spec.total_gpus <= self.gpus * len(self.machines)
        return {"starts": "now" if fits else "never", "machines": {"rack0/m0": [0]} if fits else None,
                "why": None if fits else "the cluster is smaller", "reason": None, "level": "machine", "speed": None,
                "preempts": [], "estimate": None, "alternatives": []}  # fmt: skip

    def jobs(self, *, states: Collection[str] | None = None, user: str | None = None, queue: str | None = None,
             name: str | None = None, array: str | None = None, after: str | None = None, limit: int | None = None,
             ) -> list[dict[str, Any]]:  # fmt: skip
        found = [dict(row) for row in self.rows.values()
                 if (states is None or row["state"] in states) and user in (None, row["user"])
                 and queue in (None, row["queue"]) and name in (None, row["name"])
                 and (array is None or row["id"].startswith(f"{array}_"))
                 and (after is None or id_order(row["id"]) > id_order(after))]  # fmt: skip
        return sorted(found, key=lambda row: id_order(row["id"]))[:limit]

    def counts(self) -> dict[str, int]:
        return Counter(row["state"] for row in self.rows.values())

    def job(self, id: str) -> dict[str, Any] | None:
        row = self.rows.get(id)
        return None if row is None else {**row, "spec": self.specs[id].plain(), "history": []}

    def explain(self, id: str) -> dict[str, Any]:
        row = self.rows[id]
        return {"id": id, "state": row["state"], "reason": row["reason"], "why": row["why"], "evidence": [],
                "ahead": [], "until": None, "estimate": None, "sooner": []}  # fmt: skip

    def act(self, what: str, id: str, user: str) -> None:
        self._check()
        if self.rows[id]["state"] in ENDED:
            raise Conflict(f"job {id!r} is {self.rows[id]['state']}")
        after = {"cancel": "cancelled", "hold": "held", "release": "waiting", "requeue": "waiting"}[what]
        self.put(id, after, ended=time.time() if what == "cancel" else None)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"name": name, "state": state, "gpus": self.gpus, "free": self.gpus, "gpu_type": "gpu",
                 "jobs": [id for id, row in self.rows.items() if row["state"] == "running"]}
                for name, state in self.machines.items()]  # fmt: skip

    def drain(self, machine: str, user: str) -> None:
        self._check()
        if machine not in self.machines:
            raise NotFound(f"there is no machine {machine!r}")
        self.machines[machine] = "drained"

    def resume(self, machine: str, user: str) -> None:
        self.machines[machine] = "up"

    def topology(self) -> dict[str, Any]:
        from dally.catalog.clusters import load_cluster
        from dally.core.topology_text import topology_to_plain

        return topology_to_plain(load_cluster(f"1x{len(self.machines)}x{self.gpus}"))

    def policy(self) -> dict[str, Any]:
        return {"policy": self.written}

    def set_policy(self, written: str, user: str) -> None:
        from dally.policies.options import make_policy

        self._check()
        self.written = make_policy(written).name

    def snapshot(self) -> dict[str, Any]:
        return {"version": 1, "jobs": list(self.rows)}

    def health(self) -> dict[str, Any]:
        return {"status": "ok", "leader": True, "url": None, "policy": self.written, "version": "0",
                "instants": len(self.journal)}  # fmt: skip

    def events_after(self, position: int, limit: int, wait: float) -> list[tuple[int, str]]:
        with self._grown:
            self._grown.wait_for(lambda: len(self.journal) > position, wait)
            found = self.journal[position : position + limit]
            return [(number, json.dumps(instant)) for number, instant in enumerate(found, start=position)]

    def log(self, id: str, attempt: int | None, offset: int, limit: int) -> tuple[bytes, int]:
        if attempt not in (None, 1):
            raise UserError(f"job {id!r} has no attempt {attempt}")
        text = self.logs.get(id, b"")
        offset = min(offset, len(text))
        piece = text[offset : offset + limit]
        return piece, offset + len(piece)

    # --- live.serving.Server ----------------------------------------------------------------------------------

    def run_forever(self) -> None:
        self._stop.wait()

    def stop(self) -> None:
        self._stop.set()

    def reload(self, *, policy: str | None = None, **others: Any) -> None:
        self.written = policy or self.written

    def close(self) -> None:
        self._stop.set()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
