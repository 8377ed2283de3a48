"""A service that is killed again and again while people go on submitting; then everything is counted.

Jobs are real processes that write down when they begin and end, and on which GPUs. At the end that is compared with
what the service believes: every job ended, ran once per attempt on record, never twice at the same time, no GPU had two
jobs at once, nothing is left running, and the journal gives the same rows when it is read from its beginning.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from forked import Fork, Nursery

from dally.live.client import Client
from dally.live.errors import Conflict, Unreachable
from dally.live.verified import verify
from postgres import free_port

# Begins, works, ends; what it did is one line each, appended whole. `argv`: file, seconds, exit code. Asked to leave, it
# says that it has ended, and claims to have saved.
JOB = """
import os, signal, sys, time
def leave(number, frame):
    say("end")
    os._exit(143)
def say(what):
    if os.environ["RANK"] != "0":  # a process for every machine; one of them speaks for the gang
        return
    line = f"{what} {os.environ['DALLY_JOB']} {os.environ['DALLY_ATTEMPT']} {time.monotonic()} {os.environ['DALLY_GPUS']}\\n"
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
say("begin")
signal.signal(signal.SIGUSR1, leave)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
time.sleep(float(sys.argv[2]))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
say("end")
sys.exit(int(sys.argv[3]) if os.environ["RANK"] == "0" else 0)  # whoever fails first ends the others
"""


MACHINES = ("rack0/m0", "rack0/m1", "rack1/m0", "rack1/m1")


@dataclass
class Tally:
    """What came of it."""

    jobs: int = 0
    kills: int = 0
    attempts: int = 0
    requeued: int = 0
    instants: int = 0
    states: Counter[str] = field(default_factory=Counter)
    found: dict[str, list[str]] = field(default_factory=lambda: {
        kind: [] for kind in ("lost", "twice", "GPUs leaked", "orphans", "journal")})  # what should not be, by kind

    @property
    def wrong(self) -> list[str]:
        return [f"{kind}: {each}" for kind, found in self.found.items() for each in found]


class Services:
    """One or several services on one state, killed and started again."""

    def __init__(self, state: Path, count: int = 1, options: tuple[str, ...] = (), *, forks: bool = False) -> None:
        self.state, self.options = state, options
        self.ports = [free_port() for _ in range(count)]
        self.processes: list[subprocess.Popen[bytes] | Fork | None] = [None] * count
        self.log = (state.parent / "service.log").open("ab")
        self.nursery = Nursery(state.parent / "service.log") if forks else None
        for number in range(count):
            self.start(number)

    def client(self, patience: float = 120.0) -> Client:
        return Client([f"http://127.0.0.1:{port}" for port in self.ports], patience=patience, note=lambda text: None)

    def start(self, number: int) -> None:
        words = ["serve", "--state", str(self.state), "--port", str(self.ports[number]), *self.options]
        if self.nursery is not None:
            self.processes[number] = self.nursery.start(words)
            return
        self.processes[number] = subprocess.Popen([sys.executable, "-m", "dally.cli.main", *words], stdout=self.log,
                                                  stderr=self.log, start_new_session=True)  # fmt: skip

    def kill(self, number: int) -> None:
        process = self.processes[number]
        assert process is not None
        process.kill()  # SIGKILL
        process.wait()

    def stop(self) -> None:
        for process in self.processes:
            if process is not None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            if process is not None:
                process.wait(timeout=60)
        if self.nursery is not None:
            self.nursery.close()
        self.log.close()

    def leader(self) -> int | None:
        """Which of them leads, if any says so."""
        for number, port in enumerate(self.ports):
            try:
                if Client([f"http://127.0.0.1:{port}"], patience=0, note=lambda text: None).get("health")["leader"]:
                    return number
            except Exception:
                continue
        return None


def every(client: Client) -> list[dict]:
    """All rows, page by page."""
    rows: list[dict] = []
    cursor = None
    while True:
        page = client.get("jobs", limit=1000, **({"cursor": cursor} if cursor else {}))
        rows += page["jobs"]
        cursor = page["next"]
        if cursor is None:
            return rows


def wait_until(what: Callable[[], bool], limit: float = 120.0) -> None:
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)


def storm(folder: Path, *, kills: int, jobs: int | None, seed: int, services: int = 1, store: str | None = None,
          policy: str = "dally", pace: float = 0.2, forks: bool = False,
          seconds: float | None = None, say: Callable[[str], None] = lambda text: None) -> Tally:  # fmt: skip
    """Kill the service (of several: the one that leads) at random moments while jobs come in, are put back into the
    queue, and machines are drained; then wait and count. `jobs`: None is as many as come in meanwhile."""
    chance = random.Random(seed)
    state = folder / "state"
    state.mkdir(parents=True)
    diary = folder / "diary"
    options = ("--policy", policy, "--cluster", "2x2x4", *(("--store", store) if store else ()))
    running = Services(state, services, options, forks=forks)
    tally = Tally()
    ids: list[str] = []
    may_leave: list[str] = []
    enough = threading.Event()

    def submit() -> None:
        client = running.client(patience=3600.0)  # people try again until they are told that it is on disk
        numbers = random.Random(seed + 1)
        for number in itertools.count() if jobs is None else range(jobs):
            if enough.is_set():
                break
            lasts = numbers.choice((0.0, 0.05, 0.2, 0.5, 1.0))
            code = numbers.choice((0, 0, 0, 0, 3))
            spec = {"command": [sys.executable, "-I", "-S", "-c", JOB, str(diary), str(lasts), str(code)],
                    "gpus": numbers.choice((1, 1, 2, 4)), "name": f"n{number}", "retries": numbers.choice((0, 1))}  # fmt: skip
            saves = numbers.random() < 0.4
            if saves:
                spec["checkpoint"] = {"signal": "USR1", "grace": "60s"}
            found = client.post("jobs", body=spec, key=f"key-{seed}-{number}")
            ids.append(found["id"])
            if saves:
                may_leave.append(found["id"])
            if numbers.random() < 0.3:
                meddle(client, numbers)
            time.sleep(numbers.random() * pace)
        for machine in MACHINES:
            client.post("nodes", machine, "resume")

    def meddle(client: Client, numbers: random.Random) -> None:
        """Somebody puts a job back that runs and can save itself, or drains a machine, or has it back."""
        what = numbers.choice(("requeue", "requeue", "drain", "resume", "resume"))
        if what != "requeue":
            client.post("nodes", numbers.choice(MACHINES), what)
            return
        lines = [line.split()[:2] for line in (diary.read_text() if diary.exists() else "").splitlines()]
        begun = Counter(job for what, job in lines if what == "begin")
        begun.subtract(job for what, job in lines if what == "end")
        now = [job for job in may_leave if begun[job] > 0]
        if now:
            with contextlib.suppress(Conflict):  # it has ended meanwhile
                client.post("jobs", numbers.choice(now), "requeue")
                tally.requeued += 1

    def submitting() -> None:
        try:
            submit()
        except BaseException as error:
            tally.found["lost"].append(f"submitting failed: {type(error).__name__}: {error}")

    people = threading.Thread(target=submitting)
    people.start()
    wait_until(lambda: running.leader() is not None)
    end = time.monotonic() + (math.inf if seconds is None else seconds)
    while tally.kills < kills and time.monotonic() < end and not tally.wrong:  # without jobs a kill shows nothing
        number = 0
        if services > 1 or chance.random() < 0.8:  # now and then before it has come up
            wait_until(lambda: running.leader() is not None, 600)
            number = running.leader() or 0
        time.sleep(chance.random() * chance.choice((0.05, 0.5, 2.0)))
        running.kill(number)
        tally.kills += 1
        running.start(number)
        if tally.kills % 20 == 0:
            say(f"{tally.kills} kills, {len(ids)} jobs accepted")
    if jobs is None or time.monotonic() >= end:
        enough.set()
    people.join()
    client = running.client()
    ended = ("finished", "failed", "cancelled", "rejected")

    def over() -> bool:
        try:
            return all(row["state"] in ended for row in every(client))
        except Unreachable:
            return False

    wait_until(over, 300)
    rows = {row["id"]: row for row in every(client)}
    nodes = client.get("nodes")
    nodes = nodes["nodes"] if isinstance(nodes, dict) else nodes
    running.stop()
    _count(tally, ids, rows, nodes, diary, state)
    _journal(tally, store or f"sqlite:///{state}/dally.db")
    return tally


def _count(tally: Tally, ids: list[str], rows: dict, nodes: list, diary: Path, state: Path) -> None:
    lost, twice = tally.found["lost"], tally.found["twice"]
    tally.jobs, tally.attempts = len(ids), sum(row["attempts"] for row in rows.values())
    tally.states = Counter(row["state"] for row in rows.values())
    if len(set(ids)) != len(ids) or set(ids) != set(rows):
        lost.append(f"accepted {len(ids)} jobs, {len(set(ids))} different; the service knows {len(rows)}")
    begun: Counter[str] = Counter()
    spans: list[tuple[float, float, str, int, str]] = []
    open_: dict[tuple[str, int], tuple[float, str]] = {}
    for line in diary.read_text().splitlines():
        what, job, attempt, moment, gpus = line.split()
        key = (job, int(attempt))
        if what == "begin":
            begun[job] += 1
            if key in open_:
                twice.append(f"attempt {attempt} of job {job} began twice")
            open_[key] = (float(moment), gpus)
        else:
            first, gpus = open_.pop(key)
            spans.append((first, float(moment), job, int(attempt), gpus))
    if open_:
        lost.append(f"attempts that began and never ended: {sorted(open_)[:5]}")
    for job, row in rows.items():
        if begun[job] != row["attempts"]:
            (lost if begun[job] < row["attempts"] else twice).append(
                f"job {job} ({row['state']}) began {begun[job]} times; {row['attempts']} attempts on record")
        if row["state"] not in ("finished", "failed"):
            lost.append(f"job {job} is {row['state']}: {row['why']}")
    _overlaps(twice, spans)
    tally.found["GPUs leaked"] += [f"{node['name']}: {node['gpus'] - node['free']} of {node['gpus']} GPUs were never given back"
                                   for node in nodes if node["free"] != node["gpus"]]  # fmt: skip
    time.sleep(0.5)
    tally.found["orphans"] += leftovers(state)


def _overlaps(wrong: list[str], spans: list[tuple[float, float, str, int, str]]) -> None:
    """No job twice at the same time; no GPU with two jobs."""
    holders: dict[str, list[tuple[float, float, str]]] = {}
    for first, last, job, _, gpus in spans:
        holders.setdefault(f"job {job}", []).append((first, last, job))
        for part in gpus.split(";"):
            machine, _, numbers = part.partition(":")
            for number in numbers.split(","):
                holders.setdefault(f"GPU {machine}:{number}", []).append((first, last, job))
    for what, held in holders.items():
        held.sort()
        for (_, last, one), (first, _, other) in pairwise(held):
            if first < last:
                wrong.append(f"{what} was held by {one} and {other} at the same time")


def leftovers(state: Path) -> list[str]:
    """Processes that carry this state's mark."""
    mark = f"DALLY_REPORT={state}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if mark in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return found


def _journal(tally: Tally, url: str) -> None:
    """Executed again from its beginning, it gives the same decisions and the rows that are stored."""
    found = verify(url)
    tally.instants = found.instants
    if found.difference is not None:
        tally.found["journal"].append(f"it does not execute again: {found.difference}")
    if found.rows:
        tally.found["journal"].append(f"rows that do not follow from it: {found.rows}")
