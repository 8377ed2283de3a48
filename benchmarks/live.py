"""The live service under load: what a decision costs while ten thousand jobs wait, and how quickly people are answered.

    python benchmarks/live.py decide    one decision with 10,000 pending jobs on 10,000 GPUs, in process
    python benchmarks/live.py serve     a real service: 10,000 queued, 1,000 submits from 50 clients, 100 watchers

Figures are milliseconds and rates of this machine; the ratio to compare is p99 of a decision to that of fifo.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

from dally.catalog.clusters.load import load_cluster
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.scheduler import Scheduler
from dally.policies.options import make_policy


class Hand:
    """A world in which what happens is what the benchmark says; whatever is started runs."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def next_events(self) -> None:
        return None

    def carry_out(self, now: float, decided: Sequence[object]) -> Sequence[ev.Event]:
        self.started += [entry.job for entry in decided if isinstance(entry, (pl.Start, pl.Migrate))]
        return ()


def decisions(policy: str, pending: int, cluster: str, count: int) -> list[float]:
    """CPU seconds of each of so many decisions, each after one job has ended on a cluster that is full."""
    chance = random.Random(1)
    topology = load_cluster(cluster)
    world = Hand()
    scheduler = Scheduler(topology, make_policy(policy), world, Journal())
    now, number, held = 0.0, 0, 0

    def arrives(size: int) -> ev.Arrived:
        nonlocal number
        number += 1
        said = chance.uniform(600, 1e5)
        return ev.Arrived(Job(str(number), now, size, user=f"u{number % 50}", declared_duration=said))

    while held < topology.gpus:
        size = min(chance.choice((1, 2, 4, 8, 8, 16, 32)), topology.gpus - held)
        scheduler.step(now, [arrives(size)])
        held += size
    scheduler.step(now, [ev.Started(job) for job in world.started])
    scheduler.step(now, [arrives(chance.choice((1, 2, 4, 8, 8, 16, 32))) for _ in range(pending)])
    took = []
    for _ in range(count):
        now += chance.expovariate(1 / 5)
        running = [job for job, active in scheduler.books.holding.items() if active.movable]
        world.started = []
        events: list[ev.Event] = [ev.Finished(chance.choice(running)), arrives(chance.choice((1, 2, 4, 8)))]
        begin = time.thread_time()  # what other programs take of this machine is not the policy's
        scheduler.step(now, events)
        took.append(time.thread_time() - begin)
        scheduler.step(now, [ev.Started(job) for job in world.started]
                       + [ev.Yielded(job.id) for job in list(scheduler.books.holding.values())
                          if job.state.value == "yielding"])  # fmt: skip
    return took


def decide(options: argparse.Namespace) -> None:
    print(f"one decision, {options.pending:,} jobs pending, cluster {options.cluster}, CPU milliseconds")
    print(f"{'policy':28} {'median':>8} {'p99':>8} {'most':>8}")
    for policy in options.policies:
        took = sorted(decisions(policy, options.pending, options.cluster, options.count))
        p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
        print(f"{policy:28} {statistics.median(took) * 1e3:8.2f} {p99 * 1e3:8.2f} {took[-1] * 1e3:8.2f}", flush=True)


class Person:
    """A connection that is kept."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict]:  # type: ignore[type-arg]
        raw = None if body is None else json.dumps(body)
        self._connection.request(method, path, raw, {"Content-Type": "application/json", **headers})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")


def serve(options: argparse.Namespace) -> None:
    state = tempfile.mkdtemp(prefix="dally-load-")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    service = subprocess.Popen([sys.executable, "-m", "dally.cli.main", "serve", "--state", state, "--port", str(port),
                                "--policy", options.policy], stderr=subprocess.DEVNULL,
                               start_new_session=True)  # fmt: skip
    try:
        _until_it_answers(port)
        person = Person(port)
        begin = time.perf_counter()
        blocker = {"command": ["sleep", "600"], "gpus": 8, "name": "blocker"}
        first = person.ask("POST", "/v1/jobs", blocker)[1]["id"]
        person.ask("POST", "/v1/jobs", {"command": ["true"], "gpus": 1, "array": f"0-{options.pending - 1}"})
        print(f"{options.pending:,} jobs queued in {time.perf_counter() - begin:.1f} s (one array)")
        seen = _watchers(port, options.watchers)
        took, wrong = _submits(port, options.clients, options.submits)
        _show("submit", took, wrong)
        _show("list 100 of them", _reads(port, options.clients, "/v1/jobs?limit=100&state=waiting", 200), 0)
        _show("one job", _reads(port, options.clients, "/v1/jobs/7", 500), 0)
        time.sleep(1.0)
        print(f"{options.watchers} watchers got {sum(seen):,} lines")
        Person(port).ask("POST", f"/v1/jobs/{first}/cancel")
    finally:
        os.killpg(service.pid, signal.SIGTERM)
        service.wait()


def _until_it_answers(port: int) -> None:
    for _ in range(600):
        try:
            if Person(port).ask("GET", "/v1/health")[1]["leader"]:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the service does not come up")


def _submits(port: int, clients: int, submits: int) -> tuple[list[float], int]:
    took: list[float] = []
    wrong = 0

    def person(number: int) -> None:
        nonlocal wrong
        own = Person(port)
        for each in range(submits // clients):
            begin = time.perf_counter()
            status, _ = own.ask("POST", "/v1/jobs", {"command": ["true"], "gpus": 1},
                                **{"Idempotency-Key": f"{number}-{each}"})  # fmt: skip
            took.append(time.perf_counter() - begin)
            wrong += status != 201

    begin = time.perf_counter()
    _together(person, clients)
    print(f"{len(took):,} submits from {clients} clients: {len(took) / (time.perf_counter() - begin):,.0f} a second")
    return took, wrong


def _reads(port: int, clients: int, path: str, count: int) -> list[float]:
    took: list[float] = []

    def person(number: int) -> None:
        own = Person(port)
        for _ in range(max(1, count // clients)):
            begin = time.perf_counter()
            own.ask("GET", path)
            took.append(time.perf_counter() - begin)

    _together(person, clients)
    return took


def _together(work, count: int) -> None:  # type: ignore[no-untyped-def]
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _watchers(port: int, count: int) -> list[int]:
    seen = [0] * count

    def watch(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", "/v1/events")
        answer = connection.getresponse()
        try:
            while answer.readline():
                seen[number] += 1
        except OSError:
            return

    for number in range(count):
        threading.Thread(target=watch, args=(number,), daemon=True).start()
    time.sleep(1.0)
    return seen


def _show(what: str, took: list[float], wrong: int) -> None:
    took.sort()
    p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
    middle = statistics.median(took) * 1e3
    print(f"{what:18} median {middle:7.1f} ms   p99 {p99 * 1e3:7.1f} ms   refused {wrong}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["decide", "serve", "all"], default="all")
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--cluster", default="10x125x8")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--policies", nargs="*", default=["fifo", "tiresias", "dally[timers=auto]", "dally"])
    parser.add_argument("--policy", default="dally")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--submits", type=int, default=1000)
    parser.add_argument("--watchers", type=int, default=100)
    options = parser.parse_args()
    if options.what in ("decide", "all"):
        decide(options)
    if options.what in ("serve", "all"):
        serve(options)


if __name__ == "__main__":
    main()
