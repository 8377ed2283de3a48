"""Starts the processes of one profiled run, watches them, and leaves none behind whatever happens."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from dally.core.records import dataclass
from dally.profiler.inside.ladder import MACHINE
from dally.profiler.inside.record import read_records
from dally.profiler.inside.task import LAUNCHER, VARIABLE, Task

_POLL = 0.1
_GRACE = 10.0  # seconds a script gets to end by itself when everything is measured, or after SIGTERM
_SITE = Path(__file__).parent / "inside" / "site"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where ranks run: this machine, or a network namespace of it, which is to a job like a machine of its own."""

    name: str = "localhost"
    namespace: str | None = None
    address: str = "127.0.0.1"
    interface: str | None = None

    def wrap(self, command: Sequence[str]) -> list[str]:
        if self.namespace is None:
            return list(command)
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *command]


HERE = Machine()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: `trouble` is one sentence, or None where every rank measured all it was asked for."""

    records: Mapping[int, Sequence[Mapping[str, Any]]]
    trouble: str | None
    log: str = ""
    others: float = 0.0  # share of this host's CPUs that went to other work meanwhile


@dataclass(slots=True)
class Launch:
    """One run of a script in `processes` ranks, spread evenly over machines."""

    command: Sequence[str]  # interpreter, script and its arguments
    processes: int
    task: Task
    folder: Path
    machines: Sequence[Machine] = (HERE,)
    patience: float = 300.0  # seconds without a sign of life after which a run is given up
    threads: int | None = None
    say: Say = lambda text: None
    environment: Mapping[str, str] = field(default_factory=dict)
    places: Sequence[str] = ()  # `rack/machine` of each machine, for who asks

    def run(self) -> Outcome:
        self.folder.mkdir(parents=True, exist_ok=True)
        mark = self.folder / "task.json"
        self.task.write(mark)
        ranks: list[subprocess.Popen[bytes]] = []
        host = _HostClock()
        try:
            port = _free_port(self.machines[0])
            for rank in range(self.processes):
                ranks.append(self._start(rank, port, mark))
            trouble = self._watch(ranks)
        finally:
            end_all(ranks, str(mark))
        records = read_records(self.folder)
        return Outcome(records, trouble, self._log(), host.others())

    def _start(self, rank: int, port: int, mark: Path) -> subprocess.Popen[bytes]:
        each = -(-self.processes // len(self.machines))
        machine, local = self.machines[rank // each], rank % each
        env = {**os.environ, **self.environment}
        env.update(
            {
                VARIABLE: str(mark),
                LAUNCHER: str(os.getpid()),
                "RANK": str(rank),
                "LOCAL_RANK": str(local),
                "WORLD_SIZE": str(self.processes),
                "LOCAL_WORLD_SIZE": str(min(each, self.processes)),
                "NODE_RANK": str(rank // each),
                "GROUP_RANK": str(rank // each),
                "MASTER_ADDR": self.machines[0].address,
                "MASTER_PORT": str(port),
                "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": os.pathsep.join([str(_SITE), *filter(None, [env.get("PYTHONPATH")])]),
                "TORCHELASTIC_RUN_ID": "dally-profile",  # scripts ask this to see whether torchrun started them
            }
        )
        if self.places:
            env[MACHINE] = self.places[rank // each]
        if self.threads is not None:
            env["OMP_NUM_THREADS"] = str(self.threads)
        if machine.interface is not None:
            env["GLOO_SOCKET_IFNAME"] = env["NCCL_SOCKET_IFNAME"] = machine.interface
        with (self.folder / f"rank-{rank}.log").open("wb") as log:
            return subprocess.Popen(
                machine.wrap(self.command),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _watch(self, ranks: Sequence[subprocess.Popen[bytes]]) -> str | None:
        """Until everything is measured, something broke, or nothing has happened for too long."""
        alive_since = time.monotonic()
        seen = -1
        done_since: float | None = None
        while True:
            time.sleep(_POLL)
            now = time.monotonic()
            ended = [process.poll() for process in ranks]
            size = sum(path.stat().st_size for path in self.folder.glob("*.jsonl"))
            if size != seen:  # records are read only when there is something new: reading takes CPU from the ranks
                seen, alive_since = size, now
                self._say_progress()
                if done_since is None and self._done_ranks() >= self.processes:
                    done_since = now
            if all(code is not None for code in ended):
                return None if done_since is not None else self._why_ended(ended)
            if done_since is not None and now - done_since > _GRACE:
                return None  # measured; the script does not want to end and is ended
            failed = next((rank for rank, code in enumerate(ended) if code not in (None, 0)), None)
            if failed is not None and done_since is None:
                time.sleep(1.0)  # the others may be about to say more about the same thing
                return self._why_ended([process.poll() for process in ranks])
            if done_since is None and now - alive_since > self.patience:
                return self._why_hanging(ranks)

    def _done_ranks(self) -> int:
        return sum(any(e["event"] == "done" for e in events) for events in read_records(self.folder).values())

    def _say_progress(self) -> None:
        last = None
        for events in read_records(self.folder).values():
            alive = next((e for e in reversed(events) if e["event"] == "alive"), None)
            if alive is not None and (last is None or alive["steps"] > last["steps"]):
                last = alive
        if last is not None:
            self.say(f"{last['part']}, step {last['steps']}")

    def _why_ended(self, codes: Sequence[int | None]) -> str:
        records = read_records(self.folder)
        errors = [e for events in records.values() for e in events if e["event"] == "error"]
        counted = (e for events in records.values() for e in events if e["event"] in ("end", "alive"))
        steps = max((int(e.get("steps", 0)) for e in counted), default=0)
        if errors:
            errors.sort(key=lambda error: error["at"])
            where = f" at {errors[0]['where']}" if errors[0]["where"] else ""
            return f"the script failed{where} after {steps} steps: {errors[0]['text']}"
        bad = next((code for code in codes if code not in (None, 0)), None)
        if bad is not None:
            how = f"was ended by signal {signal.Signals(-bad).name}" if bad < 0 else f"ended with exit code {bad}"
            tail = self._log().strip().splitlines()
            said = f"; its last words: {tail[-1][:200]}" if tail else ""
            return f"the script {how} after {steps} steps{said}"
        if not steps:
            if not records:
                return "the script ended without ever importing torch in the processes that were started"
            return "the script ended without a single step of an optimiser"
        wanted = self.task.warmup + self.task.repeats * self.task.steps
        return (
            f"the script ended after {steps} steps; {wanted} were asked for "
            f"({self.task.warmup} to warm up, {self.task.repeats} × {self.task.steps} to measure)"
        )

    def _why_hanging(self, ranks: Sequence[subprocess.Popen[bytes]]) -> str:
        """Ask every rank where it is before it is ended."""
        for process in ranks:
            if process.poll() is None:
                _signal(process.pid, signal.SIGUSR1)
        time.sleep(0.5)
        places = [
            line.strip()
            for line in self._log().splitlines()
            if line.strip().startswith("File ") and "dally/profiler" not in line
        ]
        where = f"; rank 0 is at {places[0].removeprefix('File ')}" if places else ""
        return f"the script has given no sign of life for {self.patience:g} s and was ended{where}"

    def _log(self, rank: int = 0) -> str:
        path = self.folder / f"rank-{rank}.log"
        try:
            return path.read_text(errors="replace")[-20_000:]
        except OSError:
            return ""


class _HostClock:
    """CPU time of the whole host against that of the processes we waited for."""

    def __init__(self) -> None:
        self._began, self._busy, self._ours = time.monotonic(), _host_busy(), _our_busy()

    def others(self) -> float:
        wall = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        busy = _host_busy()
        if self._busy is None or busy is None or wall <= 0:
            return 0.0
        return max(0.0, (busy - self._busy) - (_our_busy() - self._ours)) / wall


def _host_busy() -> float | None:
    """Seconds all CPUs were not idle; None where the kernel does not say."""
    try:
        with Path("/proc/stat").open(encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:]]
    except (OSError, ValueError):
        return None
    return (sum(ticks[:8]) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _our_busy() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _free_port(machine: Machine) -> int:
    """A port nobody listens on here; inside a namespace of its own any port will do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def end_all(ranks: Sequence[subprocess.Popen[bytes]], mark: str) -> None:
    """End the ranks and everything that carries their mark in its environment, wherever it has gone."""
    for process in ranks:
        if process.poll() is None:
            _signal(process.pid, signal.SIGTERM)
    until = time.monotonic() + 2.0
    while time.monotonic() < until and any(process.poll() is None for process in ranks):
        time.sleep(0.05)
    for _ in range(50):  # a process may fork while we look, so look until there is none
        left = marked(mark)
        for pid in left:
            _signal(pid, signal.SIGKILL)
        for process in ranks:
            process.poll()
        if not left and all(process.returncode is not None for process in ranks):
            break
        time.sleep(0.05)


def marked(mark: str) -> list[int]:
    """Processes that were started with this task in their environment, children of children included."""
    found = []
    sign = f"{VARIABLE}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and sign in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except (OSError, IndexError):
            continue
    return found
