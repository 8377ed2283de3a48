"""What runs on Slurm's nodes: one process per job that stands for the attempt, and one per node that starts its ranks.

    python -I -S -X utf8 batch.py job FOLDER       the batch process of the job
    python -I -S -X utf8 batch.py node FOLDER      below `srun`, on every node of a job of several

The first takes the attempt by linking FOLDER/claim, as the shim of the local engine does (it is that shim: shim.py lies
beside this file), so that no job of Slurm's, be it requeued, submitted twice or by a leader of yesterday, runs an
attempt that another one has. It obeys FOLDER/wish, a file and no FIFO, since who writes it is on another machine:
looked at every two seconds, and at once on SIGUSR1. On several nodes its only child is `srun`, to whose standard input
it writes what the nodes are to do. Nodes write down now and then that they are there: of one that dies and is back
before the controller has missed it, `srun` is told nothing, and waits for its ranks for ever (seen on 22.05). Nothing
of dally is needed on a node but these two files and the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time

try:
    from dally.live.local import shim
except ImportError:  # on a node, where the two files lie side by side
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    import shim  # type: ignore[no-redef, import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARGIN = 5.0  # seconds that nodes have longer than their ranks, to say how these ended
SILENCE = 120.0  # seconds after which a node of several that said nothing is taken to be gone
BEATS = 8  # times in that span that it says something
LOST = -256  # in the place of an exit code, and no process ends so: one of its nodes is gone, no fault of the job's
# What a batch script tells `srun` by the environment, and does not mean: steps are laid out by our options.
_NOT_MEANT = ("SLURM_DISTRIBUTION", "SLURM_ARBITRARY_NODELIST", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_NODE",
              "SLURM_GPUS", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
              "SLURM_CPUS_PER_GPU", "SLURM_TRES_PER_TASK", "SLURM_HOSTFILE")  # fmt: skip
# Which GPUs of a node are the job's is Slurm's to say.
_GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL")


class Wish:
    """The file in which somebody elsewhere writes what is to be done; each wish is told once."""

    def __init__(self, path: str) -> None:
        self.path, self._done = path, b""
        signal.signal(signal.SIGUSR1, lambda *_: None)  # only wakes whoever waits

    def __call__(self) -> bytes:
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123 - opened anew, which is when NFS looks for what is new
                wish = file.read(200).strip()
        except OSError:
            return b""
        if wish == self._done:
            return b""
        self._done = wish
        return wish


def own_environment() -> dict[str, str]:
    """What Slurm says about this node and its GPUs."""
    return {name: value for name, value in os.environ.items() if name.startswith("SLURM") or name in _GPUS}


def ranks_here(order: dict[str, Any], node: str) -> list[dict[str, str]]:
    """The ranks of this node, by its name: Slurm numbers nodes in an order of its own."""
    number = str(order["nodes"].index(node))
    return [rank for rank in order["ranks"] if rank["NODE_RANK"] == number]


def interface_of(address: str) -> str | None:
    """The network interface that has this address, or the address of this name; None where there is none."""
    import fcntl
    import socket
    import struct

    with contextlib.suppress(OSError):
        wanted = socket.gethostbyname(address)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):
                    found = fcntl.ioctl(asking.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
                    if socket.inet_ntoa(found[20:24]) == wanted:
                        return name
    return None


def here(order: dict[str, Any], node: str) -> dict[str, Any]:
    """The order as this node carries it out."""
    environment = {**order["environment"], **own_environment()}
    if len(order["nodes"]) > 1 and "GLOO_SOCKET_IFNAME" not in environment:
        name = interface_of(order["addresses"][order["nodes"].index(node)])
        if name is not None:
            environment["GLOO_SOCKET_IFNAME"] = name
    return {**order, "environment": environment, "ranks": ranks_here(order, node)}


# --- the job ----------------------------------------------------------------------------------------------------------


class Ranks(shim.Gang):
    """The ranks of one node. Where Slurm ends a job it signals every process itself: ranks that save must not be
    signalled twice."""

    def terminated(self) -> None:
        if self.order["signal"] != signal.SIGTERM:
            self.leave(self.order["grace"])
        else:
            until = time.monotonic() + self.order["grace"]
            self.asked, self.deadline = True, until if self.deadline is None else min(until, self.deadline)


class Steps(shim.Gang):
    """`srun` in the place of ranks: told what to do through its standard input, which goes to every node."""

    def __init__(self, order: dict[str, Any], output: shim.Output) -> None:
        super().__init__(order, output)
        self.input, self._speak = os.pipe()
        os.set_blocking(self._speak, False)
        self.left = None  # nodes keep the time
        self._heard: dict[int, tuple[int, float]] = {}  # node → the last turn of its record, and when that was new
        self._listen_at = 0.0
        self._silent = ""  # which node is, in words
        self._all_ended = False  # as the nodes have it on record
        self.silence = float(order.get("silence", SILENCE))

    def _tell(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._speak, text.encode() + b"\n")

    def start(self) -> str | None:
        cause = super().start()
        if self.input is not None:
            os.close(self.input)
        return cause

    def leave(self, grace: float) -> None:
        until = time.monotonic() + grace + MARGIN
        self.deadline = until if self.deadline is None else min(until, self.deadline)
        self.asked = True
        self._tell(f"leave {grace!r}")

    def obey(self, command: bytes) -> None:
        super().obey(command)
        if command.startswith(b"out"):
            self.deadline = time.monotonic() + MARGIN
            self._tell("out")

    def over(self) -> bool:
        now = time.monotonic()
        if self.alive and not self.asked and now >= self._listen_at:
            self._listen_at = now + self.silence / BEATS
            self._listen(now)
        return not self.alive

    def _listen(self, now: float) -> None:
        """`srun` may have lost what its nodes told it: it is not waited for where they say that all is over, or where
        one of them says nothing any more."""
        nodes = [shim.read_record(f"{self.order['folder']}/exit.{n}") for n in range(len(self.order["nodes"]))]
        if all(record is not None and record.get("state") == "exited" for record in nodes):
            if self._all_ended:
                self.deadline = now
            self._all_ended = True  # and it has until the next look to see it
            return
        silent = self.silent_node(nodes, now)
        if silent is not None:
            self._silent = f"nothing was heard of its ranks on {silent} for {self.silence:g} s: they are gone"
            self.obey(b"out")

    def silent_node(self, records: list[dict[str, Any] | None], now: float) -> str | None:
        """A node that had begun and has said nothing for long. Turns are compared, not clocks, which may differ."""
        for number, record in enumerate(records):
            if record is None or record.get("state") != "running":
                continue  # it has not begun, or is through, or the file system is not there
            turn, since = self._heard.get(number, (-1, now))
            if record["turn"] != turn:
                self._heard[number] = (record["turn"], now)
            elif now - since > self.silence:
                return str(self.order["nodes"][number])
        return None

    def code(self) -> int:
        """As the nodes have it on record; who failed before being asked to leave is to blame."""
        if self._silent:
            self.cause = self._silent
            return LOST
        nodes = range(len(self.order["nodes"]))
        found = [shim.read_record(f"{self.order['folder']}/exit.{number}") for number in nodes]
        ended = [record for record in found if record is not None and record.get("state") == "exited"]
        bad = [record for record in ended if record["code"] not in (0, shim.SAVED)]
        bad.sort(key=lambda record: bool(record.get("asked")))
        if bad:
            self.cause = str(bad[0].get("cause", ""))
            return int(bad[0]["code"])
        if len(ended) < len(found):
            own = next(iter(self.codes.values()), 0)
            return own or -signal.SIGKILL  # a node that says nothing did not end well
        self.cause = next((record["cause"] for record in ended if record.get("cause")), "")
        return shim.SAVED if any(record["code"] == shim.SAVED for record in ended) else 0


def srun(order: dict[str, Any], folder: str) -> list[str]:
    nodes, gpus = len(order["nodes"]), sum(order["gpus"])
    kind = order.get("gres_type")
    asked = f"{kind}:{gpus}" if kind else str(gpus)
    return ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--gpus={asked}", "--input=all",
            "--distribution=block", "--mpi=none", "--kill-on-bad-exit=1", "--wait=0", "--quiet", "--unbuffered",
            *order["srun"], sys.executable, "-I", "-S", "-X", "utf8", os.path.abspath(__file__), "node", folder]  # noqa: PTH100 # fmt: skip


def job(folder: str) -> None:
    with open(f"{folder}/order.json", encoding="utf-8") as file:  # noqa: PTH123
        order = json.load(file)
    wish = Wish(f"{folder}/wish")
    if not shim.take(folder):
        print("somebody else has this attempt, or it was given up: nothing is run", file=sys.stderr)
        return
    control, _ = os.pipe()
    if len(order["nodes"]) == 1:
        shim.run(folder, here(order, order["nodes"][0]), control, Ranks, wish)
    else:
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_MEANT}
        steps = {**order, "folder": folder, "command": srun(order, folder), "directory": "/", "environment": kept,
                 "ranks": [{}], "time_limit": None}  # fmt: skip
        shim.run(folder, steps, control, Steps, wish)
    shim.hint(order, "over")


# --- a node of several ------------------------------------------------------------------------------------------------


class Beat:
    """Says now and then that this node is there; in the place of wishes, which nobody has for it."""

    def __init__(self, record: shim.Record, silence: float) -> None:
        self._record, self._every, self._again_at = record, silence / BEATS, 0.0

    def __call__(self) -> bytes:
        if time.monotonic() >= self._again_at:
            self._again_at = time.monotonic() + self._every
            self._record.note(state="running")
        return b""


class Passed(shim.Output):
    """What the ranks print goes on to `srun`; what it does not take in a second is dropped and counted."""

    def __init__(self) -> None:
        self.dropped = 0
        self._waits = select.poll()
        self._waits.register(1, select.POLLOUT)
        os.set_blocking(1, False)

    def write(self, data: bytes) -> None:
        if self.dropped and data:
            data = b"[dally: %d bytes of output were dropped]\n" % self.dropped + data
            self.dropped = 0
        while data:
            try:
                data = data[os.write(1, data) :]
            except BlockingIOError:
                if not self._waits.poll(1000):
                    self.dropped += len(data)
                    return
            except OSError:
                return  # nobody listens any more


def node(folder: str) -> int:
    """Start this node's ranks, do what is said, and write down how they ended. 0: all is well, be it that they saved
    and left; else `srun` ends the others."""
    with open(f"{folder}/order.json", encoding="utf-8") as file:  # noqa: PTH123
        order = json.load(file)
    name = os.environ.get("SLURMD_NODENAME", "")
    record = shim.Record(f"{folder}/exit.{order['nodes'].index(name)}")
    shim._LIBC.prctl(shim._SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.set_blocking(0, False)
    gang = Ranks(here(order, name), Passed())
    try:
        cause = gang.start()
        if cause is not None:
            record.write(durable=True, state="exited", code=127, cause=cause)
            return 1
        # what `srun` is told, every node hears on its standard input
        shim.attend(gang, 0, record, Beat(record, float(order.get("silence", SILENCE))))
    finally:
        gang.clean()
        gang.drain()
    record.write(durable=True, state="exited", code=gang.code(), cause=gang.cause)
    return 0 if gang.code() in (0, shim.SAVED) else 1


def main() -> None:
    what, folder = sys.argv[1:3]
    os.chdir("/")
    if what == "job":
        job(folder)
    else:
        sys.exit(node(folder))


if __name__ == "__main__":
    main()
