"""The live service under load: what a decision costs while ten thousand jobs wait, and how quickly people are answered.

    python benchmarks/live.py decide    one decision with 10,000 pending jobs on 10,000 GPUs, in process
    python benchmarks/live.py serve     a real service: 10,000 queued, 1,000 submits from 50 clients, 100 watchers
    python benchmarks/live.py estimates how often a job started when it was said to (benchmarks/estimates.py)

Figures are milliseconds and rates of this machine; the ratio to compare is p99 of a decision to that of fifo.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

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
    for policy in options.policies or ["fifo", "tiresias", "dally[timers=auto]", "dally"]:
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
    """Clients and watchers are processes of their own: on few cores they take part of what the service could have."""
    state = tempfile.mkdtemp(prefix="dally-load-")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    service = subprocess.Popen([sys.executable, "-m", "dally.cli.main", "serve", "--state", state, "--port", str(port),
                                "--policy", options.policy], stderr=subprocess.DEVNULL,
                               start_new_session=True)  # fmt: skip
    watching = None
    try:
        _until_it_answers(port)
        first = Person(port).ask("POST", "/v1/jobs", {"command": ["sleep", "600"], "gpus": 8, "name": "blocker"})[1]
        _fill(port, options.pending)
        watching = subprocess.Popen([sys.executable, __file__, "watch", "--port", str(port), "--watchers",
                                     str(options.watchers)], stdout=subprocess.PIPE, text=True)  # fmt: skip
        time.sleep(1.5)
        before, own, begin = _cpu(service.pid), time.process_time(), time.perf_counter()
        took, wrong = _submits(port, options.clients, options.submits)
        wall = time.perf_counter() - begin
        _show("submit", took, wrong)
        print(f"  of {wall:.1f} s the service computed {_cpu(service.pid) - before:.1f} s, the clients "
              f"{time.process_time() - own:.1f} s (the watchers not counted)")  # fmt: skip
        _show("list 100 of them", _reads(port, options.clients, "/v1/jobs?limit=100&state=waiting", 200), 0)
        _show("one job", _reads(port, options.clients, "/v1/jobs/7", 500), 0)
        time.sleep(1.0)
        Person(port).ask("POST", f"/v1/jobs/{first['id']}/cancel")
    finally:
        os.killpg(service.pid, signal.SIGTERM)
        service.wait()
        if watching is not None:
            print(watching.communicate()[0], end="")


def _fill(port: int, pending: int) -> None:
    """Jobs that wait; meanwhile somebody else submits one after the other."""
    took: list[float] = []
    filled = threading.Event()

    def beside() -> None:
        own = Person(port)
        while not filled.is_set():
            begin = time.perf_counter()
            own.ask("POST", "/v1/jobs", {"command": ["true"], "gpus": 1})
            took.append(time.perf_counter() - begin)
            time.sleep(0.02)

    other = threading.Thread(target=beside)
    other.start()
    begin = time.perf_counter()
    ids = Person(port).ask("POST", "/v1/jobs", {"command": ["true"], "gpus": 1, "array": f"0-{pending - 1}"})[1]["ids"]
    print(f"{pending:,} jobs on disk in {time.perf_counter() - begin:.1f} s (one array)", end=", ", flush=True)
    while Person(port).ask("GET", f"/v1/jobs/{ids[-1]}")[1]["reason"] == "Arriving":
        time.sleep(0.1)
    print(f"queued in {time.perf_counter() - begin:.1f} s", flush=True)
    filled.set()
    other.join()
    _show("submit meanwhile", took, 0)


def _cpu(process: int) -> float:
    """Seconds a process has computed so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def watch(options: argparse.Namespace) -> None:
    """Many who read the stream of events, in one loop: what they read is counted, not looked at."""
    ready = selectors.DefaultSelector()
    for _ in range(options.watchers):
        each = socket.create_connection(("127.0.0.1", options.port))
        each.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        ready.register(each, selectors.EVENT_READ)
    events = size = 0
    while ready.get_map():
        for key, _ in ready.select():
            piece = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
            events += piece.count(b"\nid: ")  # fmt: skip
            size += len(piece)
            if not piece:
                ready.unregister(key.fileobj)
    print(f"{options.watchers} watchers got {events:,} events, {size / 1e6:,.1f} MB, and computed "
          f"{time.process_time():.1f} s")  # fmt: skip


def _show(what: str, took: list[float], wrong: int) -> None:
    took.sort()
    p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
    middle = statistics.median(took) * 1e3
    print(f"{what:18} median {middle:7.1f} ms   p99 {p99 * 1e3:7.1f} ms   refused {wrong}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["decide", "serve", "watch", "estimates", "all"], default="all")
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--cluster", default="10x125x8")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--policies", nargs="*", help="for decide and estimates")
    parser.add_argument("--seeds", type=int, default=3, help="for estimates")
    parser.add_argument("--jobs", type=int, default=200, help="for estimates")
    parser.add_argument("--policy", default="dally")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--submits", type=int, default=1000)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--port", type=int, help="of a service, for watch")
    options = parser.parse_args()
    if options.what == "watch":
        watch(options)
    if options.what == "estimates":
        import estimates

        estimates.show(options.policies or ["fifo", "tiresias", "dally"], seeds=options.seeds, jobs=options.jobs,
                       cluster="1x4x8")  # fmt: skip
    if options.what in ("decide", "all"):
        decide(options)
    if options.what in ("serve", "all"):
        serve(options)


if __name__ == "__main__":
    main()
