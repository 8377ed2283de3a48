"""A storm over a service on a real Slurm: everything that can fail does, again and again, while jobs come in.

    python tests/live/slurm_storm.py --faults 50 --seed 1

Faults, at random moments: the service killed, the controller killed and started again, a slurmd killed, a whole node
with its jobs, a node drained, a rack's uplink cut, a job cancelled behind our back. Jobs are real processes, one per
GPU's machine, that write down five times a second that they live. At the end: every job accepted is on record and ended,
no attempt ran twice, no two attempts of a job lived at the same time, nothing finished that had not run to its end, the
journal executes again, and by Slurm's own books no GPU and no CPU is left in use.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

if __name__ == "__main__":  # beside the tests' own modules, as pytest has it
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from chaos import Services, every, leftovers, wait_until

from dally.core.errors import UserError
from dally.live.client import Client
from dally.live.testbed.bed import Bed
from dally.live.verified import verify
from slurmbed import bed

KINDS = ("service", "controller", "slurmd", "node", "drain", "uplink", "scancel")
CONF = ("SlurmdTimeout=10", "KillWait=5")

# Says five times a second that it lives; goes on from what it saved. `argv`: folder, seconds, exit code.
JOB = """
import os, signal, sys, time
name = "{DALLY_JOB}.{DALLY_ATTEMPT}.{RANK}".format(**os.environ)
file = os.open(os.path.join(sys.argv[1], name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def say(what):
    os.write(file, f"{what} {time.monotonic()}\\n".encode())
leave = []
signal.signal(signal.SIGTERM, lambda *_: leave.append(1))
say("begin")
os.makedirs(os.environ["DALLY_CHECKPOINT"], exist_ok=True)
saved = os.path.join(os.environ["DALLY_CHECKPOINT"], os.environ["RANK"])
try:
    left = float(open(saved).read())
except OSError:
    left = float(sys.argv[2])
until = time.monotonic() + left
while time.monotonic() < until:
    if leave:
        with open(saved + ".new", "w") as new:
            new.write(str(max(0.0, until - time.monotonic())))
        os.replace(saved + ".new", saved)
        say("saved")
        os._exit(143)
    time.sleep(0.2)
    say("alive")
say("end")
sys.exit(int(sys.argv[3]) if os.environ["RANK"] == "0" else 0)
"""


@dataclass
class Tally:
    """What came of it."""

    jobs: int = 0
    attempts: int = 0
    begun: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    took: float = 0.0

    def __str__(self) -> str:
        return (f"{sum(self.faults.values())} faults ({', '.join(f'{n} {kind}' for kind, n in sorted(self.faults.items()))}), "
                f"{self.jobs} jobs ({', '.join(f'{n} {state}' for state, n in sorted(self.states.items()))}), "
                f"{self.attempts} attempts of which {self.begun} began, in {self.took:.0f} s; "
                f"{'nothing wrong' if not self.wrong else self.wrong}")  # fmt: skip


class Storm:
    def __init__(self, made: Bed, folder: Path, seed: int, say: Callable[[str], None], cut: float,
                 policy: str) -> None:  # fmt: skip
        self.bed, self.folder, self.chance, self.say, self.cut = made, folder, random.Random(seed), say, cut
        self.seed = seed
        self.diary = folder / "diary"
        self.diary.mkdir(parents=True)
        self.state = folder / "state"
        self.state.mkdir()
        os.environ.update(made.environment)
        config = folder / "dally.yaml"
        config.write_text("slurm: {poll: 500ms, command_timeout: 5s}\nrules: {retries: 50, start_timeout: 30s}\n")
        self.services = Services(self.state, 1, ("--engine", "slurm", "--config", str(config), "--policy", policy))
        self.ids: list[str] = []
        self.cancelled: set[str] = set()
        self.tally = Tally()
        self.later: list[threading.Timer] = []
        self.nodes = [node.name for node in made.layout.nodes]
        self.racks = [switch.name for switch in made.layout.switches if switch.parent is not None]

    # --- people ---------------------------------------------------------------------------------------------------

    def submit(self, jobs: int) -> None:
        client = self.services.client(300.0)
        numbers = random.Random(self.seed + 1)
        for number in range(jobs):
            seconds = numbers.choice((0.5, 2.0, 4.0, 8.0, 15.0))
            code = numbers.choice((0, 0, 0, 0, 3))
            spec = {"command": [sys.executable, "-I", "-S", "-c", JOB, str(self.diary), str(seconds), str(code)],
                    "gpus": numbers.choice((1, 1, 2, 3, 4)), "name": f"n{number}", "retries": 50 if code == 0 else 1}  # fmt: skip
            if numbers.random() < 0.7:
                spec["checkpoint"] = {"grace": "10s"}
            self.ids.append(client.post("jobs", body=spec, key=f"key-{self.seed}-{number}")["id"])
            time.sleep(numbers.random())

    # --- faults ---------------------------------------------------------------------------------------------------

    def strike(self, kind: str) -> bool:
        """One fault; what it breaks is mended a while later. False: there was nothing to break."""
        chance = self.chance
        if kind == "service":
            self.services.kill(0)
            self._after(chance.random() * 3.0, lambda: self.services.start(0), wait=True)
        elif kind == "controller":
            self.bed.kill_controller()
            self._after(chance.random() * 8.0, self.bed.start_controller, wait=True)
        elif kind in ("slurmd", "node"):
            name = chance.choice(self.nodes)
            if self.bed.node_pid(name) is None:
                return False
            self.bed.kill_node(name, jobs=kind == "node")
            self._after(chance.choice((1.0, 5.0, 30.0)), lambda: self.bed.start_node(name))
        elif kind == "drain":
            name = chance.choice(self.nodes)
            try:
                self.bed.client("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=storm", patience=5.0)
            except UserError:
                return False
            self._after(chance.random() * 15.0, lambda: self.resume(name))
        elif kind == "uplink":
            rack = chance.choice(self.racks)
            self.bed.cut(rack)
            self._after(self.cut, lambda: self.bed.restore(rack))
        else:
            return self._scancel()
        return True

    def resume(self, name: str) -> None:
        for _ in range(30):
            try:
                self.bed.client("scontrol", "update", f"NodeName={name}", "State=RESUME", patience=5.0)
                return
            except UserError:  # no controller at the moment, or nothing to resume any more
                time.sleep(2.0)

    def _scancel(self) -> bool:
        try:
            lines = self.bed.client("squeue", "-h", "-t", "R,PD", "-o", "%A %k", patience=5.0).splitlines()
        except UserError:
            return False
        found = [line.split() for line in lines if "dally:" in line]
        if not found:
            return False
        number, comment = self.chance.choice(found)
        self.cancelled.add(comment.split(":")[2])
        try:
            self.bed.client("scancel", number, patience=5.0)
        except UserError:
            return False
        return True

    def _after(self, seconds: float, mend: Callable[[], object], wait: bool = False) -> None:
        timer = threading.Timer(seconds, mend)
        timer.start()
        self.later.append(timer)
        if wait:
            timer.join()

    # --- the whole ------------------------------------------------------------------------------------------------

    def run(self, faults: int, jobs: int, kinds: tuple[str, ...] = KINDS) -> Tally:
        begin = time.monotonic()
        people = threading.Thread(target=self.submit, args=(jobs,), daemon=True)
        people.start()
        wait_until(lambda: len(self.ids) >= min(4, jobs))
        order = [kinds[number % len(kinds)] for number in range(faults)]
        self.chance.shuffle(order)
        for kind in order:
            time.sleep(self.chance.random() * self.chance.choice((1.0, 6.0, 14.0)))
            for _ in range(30):
                if self.strike(kind):
                    self.tally.faults[kind] += 1
                    break
                time.sleep(1.0)
            self.say(f"{time.monotonic() - begin:5.0f} s: {kind}; {sum(self.tally.faults.values())} faults, "
                     f"{len(self.ids)} jobs accepted")  # fmt: skip
        for timer in self.later:
            timer.join()
        for name in self.nodes:
            self.bed.start_node(name)
            if any(state.name == name and "drain" in state.state.lower() for state in self.bed.states()):
                self.resume(name)  # a controller that was killed right after has forgotten that it was
        people.join()
        self.say(f"{time.monotonic() - begin:5.0f} s: the storm is over; waiting for {len(self.ids)} jobs")
        client = self.services.client(300.0)
        ended = ("finished", "failed", "cancelled", "rejected")
        try:
            wait_until(lambda: all(row["state"] in ended for row in every(client)), 600.0)
        except AssertionError:
            self._tell(client, ended)
            raise
        rows = {row["id"]: row for row in every(client)}
        nodes = client.get("nodes")
        self.tally.took = time.monotonic() - begin
        self._witness()
        self.services.stop()
        self._count(rows, nodes["nodes"] if isinstance(nodes, dict) else nodes)
        return self.tally

    def _tell(self, client: Client, ended: tuple[str, ...]) -> None:
        """What is still open, and what Slurm has to say of it: a storm that never ends must explain itself."""
        for row in every(client):
            if row["state"] not in ended:
                self.say(f"open: {row}")
        self.say(f"nodes: {client.get('nodes')}")
        for command in (("squeue", "-a", "-o", "%A %j %k %T %r %N"), ("scontrol", "show", "node", "-o"), ("sinfo", "-N", "-l")):
            try:
                self.say(self.bed.client(*command, patience=10.0))
            except UserError as why:
                self.say(f"{command[0]}: {why}")

    def end(self) -> None:
        """Nothing is left running, however it ended."""
        for timer in self.later:
            timer.cancel()
        for process in self.services.processes:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    def _witness(self) -> None:
        """Slurm's own books, and the machine's processes."""
        wrong = self.tally.wrong

        def clean() -> bool:
            shown = self.bed.client("scontrol", "show", "node", "-o", "-d")
            return shown.count("CPUAlloc=0 ") == len(self.nodes) and all(s.gpus_used == 0 for s in self.bed.states())

        try:
            wait_until(clean, 120.0)
        except AssertionError:
            wrong.append(f"Slurm still counts GPUs or CPUs as used: {self.bed.client('squeue', '-a')}")
        if left := leftovers(self.state):
            wrong.append(f"processes that are left: {left[:3]}")

    def _count(self, rows: dict[str, dict], nodes: list[dict]) -> None:
        tally, wrong = self.tally, self.tally.wrong
        tally.jobs, tally.attempts = len(self.ids), sum(row["attempts"] for row in rows.values())
        tally.states = Counter(row["state"] for row in rows.values())
        if len(set(self.ids)) != len(self.ids) or set(self.ids) != set(rows):
            wrong.append(f"accepted {len(self.ids)} jobs, {len(set(self.ids))} different; {len(rows)} are known")
        if any(node["free"] != node["gpus"] for node in nodes):
            wrong.append(f"GPUs that were never given back: {nodes}")
        lives: dict[str, dict[int, list[tuple[float, float, str]]]] = {}
        for path in self.diary.iterdir():
            job, attempt, _ = path.name.split(".")
            lines = [line.split() for line in path.read_text().splitlines()]
            if [what for what, _ in lines].count("begin") != 1:
                wrong.append(f"{path.name} (job, attempt, rank) began more than once")
            lives.setdefault(job, {}).setdefault(int(attempt), []).append(
                (float(lines[0][1]), float(lines[-1][1]), lines[-1][0]))  # fmt: skip
        tally.begun = sum(len(attempts) for attempts in lives.values())
        for job, row in rows.items():
            attempts = lives.get(job, {})
            if len(attempts) > row["attempts"]:
                wrong.append(f"job {job} began {len(attempts)} times; {row['attempts']} attempts are on record")
            spans = sorted((min(first for first, _, _ in ranks), max(last for _, last, _ in ranks), number)
                           for number, ranks in attempts.items())  # fmt: skip
            for (_, last, one), (first, _, other) in pairwise(spans):
                if first < last:
                    wrong.append(f"attempts {one} and {other} of job {job} lived at the same time for {last - first:.2f} s")
            if row["state"] == "finished":
                final = attempts[max(attempts)] if attempts else []
                if not final or any(what != "end" for _, _, what in final):
                    wrong.append(f"job {job} counts as finished, and its last attempt did not come to its end")
            elif row["state"] != "failed":
                wrong.append(f"job {job} is {row['state']}: {row['why']}")
            elif "exit code 3" not in str(row["why"]) and job not in self.cancelled:
                wrong.append(f"job {job} failed without reason: {row['why']}")
        found = verify(f"sqlite:///{self.state}/dally.db")
        if found.difference is not None:
            wrong.append(f"the journal does not execute again: {found.difference}")
        if found.rows:
            wrong.append(f"rows that do not follow from the journal: {found.rows}")


def storm(folder: Path, *, faults: int, jobs: int, seed: int, cluster: str = "2x2x2", cut: float = 60.0,
          kinds: tuple[str, ...] = KINDS, policy: str = "dally",
          say: Callable[[str], None] = lambda text: None) -> Tally:  # fmt: skip
    kept = dict(os.environ)
    try:
        with bed(cluster, conf=CONF) as made:
            over = Storm(made, folder, seed, say, cut, policy)
            try:
                return over.run(faults, jobs, kinds)
            finally:
                over.end()
                shutil.copytree(made.folder / "log", folder / "slurm-log", dirs_exist_ok=True)  # the bed takes its own
    finally:
        os.environ.clear()
        os.environ.update(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=None, help="default: two per fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", default="2x2x2")
    parser.add_argument("--cut", type=float, default=60.0, help="seconds that an uplink is cut for")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--policy", default="dally")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    tally = storm(given.folder, faults=given.faults, jobs=given.jobs or given.faults * 2, seed=given.seed,
                  cluster=given.cluster, cut=given.cut, kinds=tuple(given.kinds.split(",")), policy=given.policy,
                  say=lambda text: print(text, flush=True))  # fmt: skip
    print(tally)
    sys.exit(1 if tally.wrong else 0)


if __name__ == "__main__":
    main()
