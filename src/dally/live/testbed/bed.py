"""A bed that is up: made, looked at, broken on purpose, and taken down to the last process and file."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.live.testbed import files, system
from dally.live.testbed.layout import Layout, Node, Switch, check_name, lay_out, prefix

RECORDS = Path("/run/dally-testbeds")  # what was begun, written before anything is made: gone with the host's memory
FOLDERS = Path("/var/lib/dally/testbeds")
_SOCKET = 100  # characters; a Unix socket's path has no room for many more


@dataclass(frozen=True, slots=True)
class NodeState:
    name: str
    rack: str
    gpus: int
    state: str  # Slurm's own word
    gpus_used: int
    pid: int | None  # of its slurmd
    uplink: bool  # its rack's


class Bed:
    """One test bed by its layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def folder(self) -> Path:
        return self.layout.folder

    @property
    def environment(self) -> dict[str, str]:
        return files.environment(self.layout)

    # --- clients ------------------------------------------------------------------------------------------------------

    def client(self, *words: str, patience: float = 20.0) -> str:
        """The output of sbatch, squeue, scontrol, … of this bed's Slurm."""
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=patience, check=False,
                                  env={**os.environ, **self.environment})  # fmt: skip
        except subprocess.TimeoutExpired:
            raise UserError(f"`{' '.join(words)}` did not answer within {patience:g} s") from None
        if done.returncode != 0:
            raise UserError(f"`{' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def states(self) -> list[NodeState]:
        """Node by node, as Slurm sees it; `no-controller` where the controller does not answer."""
        try:
            shown = self.client("scontrol", "show", "node", "-o", "-d", patience=5.0)
        except UserError:
            shown = ""
        said = {}
        for line in shown.splitlines():
            fields = dict(word.partition("=")[::2] for word in line.split())
            used = re.search(r"GresUsed=gpu:(?:[^:(\s]+:)?(\d+)", line)
            said[fields.get("NodeName", "")] = fields.get("State", "?"), int(used[1]) if used else 0
        uplinks = {number: self._link_up(switch) for number, switch in enumerate(self.layout.switches)}
        return [NodeState(node.name, self.layout.switches[node.switch].name, node.gpus,
                          *said.get(node.name, ("no-controller" if not said else "unknown", 0)), self._pid(node),
                          uplinks[node.switch]) for node in self.layout.nodes]  # fmt: skip

    def wait_until_idle(self, patience: float = 30.0) -> None:
        """All nodes take jobs and none has one."""
        self._wait(lambda: all(state.state == "IDLE" for state in self.states()), patience,
                   lambda: "nodes are " + ", ".join(f"{s.name} {s.state}" for s in self.states()))  # fmt: skip

    def _wait(self, met: Callable[[], bool], patience: float, what: Callable[[], str]) -> None:
        end = time.monotonic() + patience
        while not met():
            if time.monotonic() > end:
                raise UserError(f"test bed {self.name!r} is not ready after {patience:g} s: {what()}; "
                                f"its daemons' logs are in {self.folder / 'log'}")  # fmt: skip
            time.sleep(0.1)

    # --- daemons ------------------------------------------------------------------------------------------------------

    def start_munged(self) -> None:
        munge = self.folder / "munge"
        words = {"socket": files.munge_socket(self.folder), "key-file": munge / "key", "pid-file": munge / "pid",
                 "log-file": self.folder / "log" / "munged.log", "seed-file": munge / "seed"}  # fmt: skip
        options = [f"--{key}={value}" for key, value in words.items()]
        system.inside(self.layout.spine, f"{self.name}-ctl", self.folder / "hosts",
                      ["munged", "--force", "--num-threads=2", *options])  # fmt: skip

    def start_controller(self) -> None:
        system.inside(self.layout.spine, f"{self.name}-ctl", self.folder / "hosts",
                      ["slurmctld", "-f", str(self.folder / "slurm.conf")])  # fmt: skip

    def start_node(self, name: str) -> None:
        """Start a node's slurmd, where it does not run."""
        node = self.layout.node(name)
        if self._pid(node) is None:
            system.inside(node.namespace, node.name, self.folder / "hosts",
                          ["slurmd", "-N", node.name, "-f", str(self.folder / "slurm.conf")])  # fmt: skip

    def controller_pid(self) -> int | None:
        return self._running("slurmctld", self.layout.spine)

    def node_pid(self, name: str) -> int | None:
        return self._pid(self.layout.node(name))

    def _pid(self, node: Node) -> int | None:
        return self._running(f"slurmd-{node.name}", node.namespace)

    def _running(self, daemon: str, namespace: str) -> int | None:
        """By its pid file, if whoever has that number now is in the right namespace and is that program."""
        try:
            pid = int((self.folder / "run" / f"{daemon}.pid").read_text())
            program = Path(f"/proc/{pid}/comm").read_text().strip()
            here = Path(f"/proc/{pid}/ns/net").stat().st_ino == (system.NAMESPACES / namespace).stat().st_ino
        except (OSError, ValueError):
            return None
        return pid if here and program == daemon.partition("-")[0] else None

    # --- faults -------------------------------------------------------------------------------------------------------

    def kill_controller(self) -> None:
        """As a crash: no last words."""
        self._kill(self.controller_pid)

    def kill_node(self, name: str, jobs: bool = False) -> None:
        """Kill a node's slurmd; with `jobs`, everything that runs there, as when a machine dies."""
        self._kill(lambda: self.node_pid(name))
        if jobs:
            system.kill_all([self.layout.node(name).namespace])

    def _kill(self, pid: Callable[[], int | None]) -> None:
        found = pid()
        if found is not None:
            system.kill(found)
            self._wait(lambda: pid() != found, 10.0, lambda: f"process {found} does not end")

    def cut(self, rack: str) -> None:
        """Take a rack's uplink away."""
        self._set_uplink(rack, "down")

    def restore(self, rack: str) -> None:
        self._set_uplink(rack, "up")

    def _set_uplink(self, rack: str, state: str) -> None:
        system.run("ip", "-n", self.layout.switch(rack).namespace, "link", "set", "uplink", state)

    def _link_up(self, switch: Switch) -> bool:
        if switch.parent is None:
            return True
        try:
            shown = json.loads(system.run("ip", "-n", switch.namespace, "-j", "link", "show", "uplink"))
        except UserError:
            return False
        return "UP" in shown[0]["flags"]

    def shape(self, level: str, rate: float) -> None:
        """Give the links of a level another rate (bytes/s)."""
        switches = self.layout.switches
        for number, node in enumerate(self.layout.nodes, start=1):
            if switches[node.switch].level == level:
                system.shape(node.namespace, "eth0", rate)
                system.shape(switches[node.switch].namespace, f"n{number}", rate)
        for index, switch in enumerate(switches):
            if switch.parent is not None and switches[switch.parent].level == level:
                system.shape(switch.namespace, "uplink", rate)
                system.shape(switches[switch.parent].namespace, f"s{index}", rate)

    def down(self) -> None:
        take_down(self.name)


# --- up, down, found --------------------------------------------------------------------------------------------------


def bring_up(name: str, topology: Topology, cluster_text: str | None = None, folder: Path | None = None,
             rates: Mapping[str, float] | None = None, conf: Sequence[str] = (),
             patience: float = 60.0) -> Bed:  # fmt: skip
    """Make a bed and wait until all its nodes are idle. What was made is taken away again if that fails."""
    trouble = system.why_not()
    if trouble is not None:
        raise UserError(trouble)
    where = (folder or FOLDERS / check_name(name)).resolve()
    if len(str(files.munge_socket(where))) > _SOCKET or re.search(r"[\s,#%\[\]]", str(where)):
        raise UserError(f"{where}: the folder's name is too long, or has characters that slurm.conf does not take")
    with _lock():
        if _record(name).exists() or system.namespaces_of(prefix(name)):
            raise UserError(f"there is a test bed {name!r} already: `dally testbed down --name {name}` takes it away")
        if where.exists() and (not where.is_dir() or any(where.iterdir())):
            raise UserError(f"{where}: there is something already; a test bed wants a folder of its own")
        subnet = system.free_subnet(record["subnet"] for record in _records())
        layout = lay_out(name, where, subnet, topology, rates or {})
        conf_text = files.slurm_conf(layout, conf)
        _write_record(layout)
    bed = Bed(layout)
    try:
        _write_folder(layout, conf_text, cluster_text)
        system.make_network(layout)
        system.make_devices(layout)
        bed.start_munged()
        bed.start_controller()
        for node in layout.nodes:
            bed.start_node(node.name)
        bed.wait_until_idle(patience)
    except BaseException:
        take_down(name)
        raise
    return bed


def find_bed(name: str) -> Bed:
    """The bed of that name, wherever it was made from."""
    record = _read_record(check_name(name))
    if record is None:
        known = ", ".join(names()) or "none is up"
        raise UserError(f"there is no test bed {name!r} ({known})")
    nodes = tuple(Node(**fields) for fields in record["nodes"])
    switches = tuple(Switch(**fields) for fields in record["switches"])
    folder = Path(record["folder"])
    return Bed(Layout(record["name"], folder, record["subnet"], nodes, switches, tuple(record["notes"])))


def names() -> list[str]:
    return sorted(record["name"] for record in _records())


def take_down(name: str) -> bool:
    """Take away whatever there is of a bed, whole or not; False: there was nothing."""
    check_name(name)
    record = _read_record(name)
    namespaces = system.namespaces_of(prefix(name))
    forgotten = FOLDERS / name  # the host was started anew since: the record is gone, its folder is not
    if record is None and (forgotten / "env.sh").is_file():
        record = {"folder": str(forgotten), "subnet": None}
    if record is None and not namespaces:
        return False
    if os.geteuid() != 0:
        raise UserError("a test bed is taken down by root")
    system.kill_all(namespaces)
    subnet = record["subnet"] if record is not None else None
    system.remove_network(namespaces, None if subnet is None else f"dally-bed{subnet}")
    if record is not None:
        # Only what the bed itself wrote there: the record is made before the folder, and says which one it is.
        shutil.rmtree(record["folder"], ignore_errors=True)
        if Path(record["folder"]).exists():
            raise UserError(f"{record['folder']} could not be removed")
        _record(name).unlink(missing_ok=True)
    return True


def _write_folder(layout: Layout, conf: str, cluster_text: str | None) -> None:
    folder = layout.folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    for part in ("state", "run", "log", "munge", "dev", *(f"spool/{node.name}" for node in layout.nodes)):
        (folder / part).mkdir(parents=True)
    (folder / "slurm.conf").write_text(conf)
    (folder / "gres.conf").write_text(files.gres_conf(layout))
    (folder / "topology.conf").write_text(files.topology_conf(layout))
    (folder / "hosts").write_text(files.hosts(layout))
    (folder / "env.sh").write_text(files.env_sh(files.environment(layout)))
    if cluster_text is not None:
        (folder / "cluster.yaml").write_text(cluster_text)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))


def _record(name: str) -> Path:
    return RECORDS / f"{name}.json"


def _write_record(layout: Layout) -> None:
    record = {"name": layout.name, "folder": str(layout.folder), "subnet": layout.subnet,
              "nodes": [asdict(node) for node in layout.nodes], "switches": [asdict(s) for s in layout.switches],
              "notes": layout.notes}  # fmt: skip
    new = RECORDS / f".{layout.name}.new"
    new.write_text(json.dumps(record))
    new.rename(_record(layout.name))


def _read_record(name: str) -> dict[str, Any] | None:
    try:
        found = json.loads(_record(name).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{_record(name)} cannot be read: {error}") from None
    assert isinstance(found, dict)
    return found


def _records() -> list[dict[str, Any]]:
    found = (_read_record(path.stem) for path in RECORDS.glob("*.json")) if RECORDS.is_dir() else iter(())
    return [record for record in found if record is not None]


@contextmanager
def _lock() -> Iterator[None]:
    """Two beds that are made at the same moment do not take the same addresses."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    with (RECORDS / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
