"""What a bed does to the host: namespaces, links, shaping, device files and processes, each by one command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from dally.core.errors import UserError
from dally.live.testbed.layout import Layout, address, prefix

NAMESPACES = Path("/run/netns")
PROGRAMS = {
    "ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "mount": "mount",
    "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "scontrol": "slurm-wlm", "munged": "munge",
}  # fmt: skip
NVIDIA = 195  # Slurm takes a GPU's file for one by being a character device; major 1 would be /dev/null
_QUEUE = 0.1  # seconds of traffic that may queue before a shaped link; Slurm's own messages queue there too


def why_not() -> str | None:
    """Why no bed can be made on this host; None: it can."""
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if missing:
        return f"a test bed needs Debian's packages {', '.join(missing)}: apt-get install {' '.join(missing)}"
    if os.geteuid() != 0:
        return "a test bed makes network namespaces and device files: it takes root"
    return None


def run(*words: str | Path, stdin: str | None = None, patience: float = 30.0) -> str:
    """The output of a command that must succeed."""
    try:
        done = subprocess.run([str(word) for word in words], input=stdin, capture_output=True, text=True,
                              timeout=patience, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UserError(f"`{' '.join(map(str, words))}` did not end within {patience:g} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise UserError(f"`{' '.join(map(str, words))}` failed: {said[-1]}")
    return done.stdout


# --- network ----------------------------------------------------------------------------------------------------------


def make_network(layout: Layout) -> None:
    """Every switch a bridge, every node an address; a veth pair up from each, shaped both ways."""
    for namespace in layout.namespaces:
        run("ip", "netns", "add", namespace)
        _tune(namespace)
        _ip(namespace, "link set lo up")
    for switch in layout.switches:
        _ip(switch.namespace, "link add br0 type bridge", "link set br0 up")
    for index, switch in enumerate(layout.switches[1:], start=1):
        assert switch.parent is not None
        _join(switch.namespace, "uplink", layout.switches[switch.parent].namespace, f"s{index}", switch.rate)
        _ip(switch.namespace, "link set uplink master br0", "link set uplink up")
    for number, node in enumerate(layout.nodes, start=1):
        _join(node.namespace, "eth0", layout.switches[node.switch].namespace, f"n{number}", node.rate)
        _ip(node.namespace, f"addr add {node.address}/24 dev eth0", "link set eth0 up")
    _ip(layout.spine, f"addr add {layout.controller}/24 dev br0")
    run("ip", "link", "add", layout.host_link, "type", "veth", "peer", "name", "host", "netns", layout.spine)
    _ip(layout.spine, "link set host master br0", "link set host up")
    run("ip", "addr", "add", f"{layout.host}/24", "dev", layout.host_link)
    run("ip", "link", "set", layout.host_link, "up", "alias", f"{prefix(layout.name)}host")


def _join(below: str, device: str, above: str, port: str, rate: float | None) -> None:
    _ip(below, f"link add {device} type veth peer name {port} netns {above}")
    _ip(above, f"link set {port} master br0", f"link set {port} up")
    if rate is not None:
        shape(below, device, rate)
        shape(above, port, rate)


def shape(namespace: str, device: str, rate: float) -> None:
    # A veth hands over up to 64 kB at a time; a burst with no room for that and its headers has each cut into packets
    # of 1500 bytes by the CPU: all-reduces were seen to take half as much CPU again. On a slow link that much would be
    # a gift: not more than 40 ms of its rate may pass at once.
    burst = max(8192, min(131072, int(rate * 0.04)), int(rate * 0.002))
    run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{rate * 8:.0f}bit",
        "burst", f"{burst}b", "latency", f"{_QUEUE * 1000:.0f}ms")  # fmt: skip


def _ip(namespace: str, *commands: str) -> None:
    run("ip", "-n", namespace, "-batch", "-", stdin="\n".join(commands) + "\n")


def _tune(namespace: str) -> None:
    """What would make links differ from host to host: firewalls on bridges, IPv6's chatter, congestion control."""
    settings = {
        "net/bridge/bridge-nf-call-iptables": "0",
        "net/bridge/bridge-nf-call-ip6tables": "0",
        "net/bridge/bridge-nf-call-arptables": "0",
        "net/ipv6/conf/all/disable_ipv6": "1",
        "net/ipv6/conf/default/disable_ipv6": "1",
        "net/ipv4/tcp_congestion_control": "cubic",
        "net/ipv4/tcp_slow_start_after_idle": "0",
    }
    # Where a kernel lacks one of them there is nothing to set.
    text = "\n".join(f"[ -w /proc/sys/{key} ] && echo {value} > /proc/sys/{key}" for key, value in settings.items())
    run("nsenter", f"--net={NAMESPACES / namespace}", "sh", "-c", text + "\ntrue")


def free_subnet(taken: Iterable[int]) -> int:
    """The first that no bed has and no route of this host leads to."""
    busy = set(taken)
    for route in json.loads(run("ip", "-j", "-4", "route", "show") or "[]"):
        for number in range(256):
            if str(route.get("dst", "")).startswith(address(number, 0).rsplit(".", 1)[0] + "."):
                busy.add(number)
    for number in range(256):
        if number not in busy:
            return number
    raise UserError("no address range 10.231.*.0/24 is free for another test bed")


def remove_network(namespaces: Iterable[str], host_link: str | None) -> None:
    """A veth pair goes with either of its ends."""
    for namespace in namespaces:
        subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)
    if host_link is not None:
        subprocess.run(["ip", "link", "del", host_link], capture_output=True, check=False)


def namespaces_of(begin: str) -> list[str]:
    if not NAMESPACES.is_dir():
        return []
    return sorted(path.name for path in NAMESPACES.iterdir() if path.name.startswith(begin))


# --- device files -----------------------------------------------------------------------------------------------------


def make_devices(layout: Layout) -> None:
    for node in layout.nodes:
        folder = layout.folder / "dev" / node.name
        folder.mkdir(parents=True)
        for number in range(node.gpus):
            try:
                os.mknod(folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(NVIDIA, number))
            except OSError as error:
                raise UserError(f"{folder}: device files cannot be made here: {error.strerror}") from None


# --- processes --------------------------------------------------------------------------------------------------------


def inside(namespace: str, hostname: str, hosts: Path, command: Sequence[str]) -> str:
    """Run a command that goes to the background by itself, with that network, that name and those hosts.

    Not by `ip netns exec`, which mounts another /sys: slurmd does not survive that. Mounts that the host makes later
    are seen inside; the one of /etc/hosts is not seen outside and goes with the last process.
    """
    script = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'
    return run("nsenter", f"--net={NAMESPACES / namespace}", "unshare", "--mount", "--uts", "--propagation", "slave",
               "sh", "-c", script, "sh", hostname, hosts, *command)  # fmt: skip


def processes_in(namespaces: Iterable[str]) -> list[int]:
    """Whoever has one of the namespaces for its network: daemons, steps and jobs, whatever started them."""
    wanted = set()
    for namespace in namespaces:
        try:
            wanted.add((NAMESPACES / namespace).stat().st_ino)
        except OSError:
            continue
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and wanted:
            try:
                inode = (entry / "ns" / "net").stat().st_ino
            except OSError:  # it has ended, or is a zombie
                continue
            if inode in wanted:
                found.append(int(entry.name))
    return found


def kill_all(namespaces: Sequence[str], patience: float = 10.0) -> None:
    """Until nobody is left: what is killed may have been starting something."""
    end = time.monotonic() + patience
    while found := processes_in(namespaces):
        for pid in found:
            kill(pid)
        if time.monotonic() > end:
            raise UserError(f"processes {', '.join(map(str, found))} in the test bed's namespaces do not end")
        time.sleep(0.05)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it was quicker
