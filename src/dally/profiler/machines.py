"""Where ranks can run apart: network namespaces of this host, each to a job like a machine of its own."""

from __future__ import annotations

import re
import shutil
import subprocess

from dally.core.errors import UserError
from dally.profiler.launch import Machine


def parse_machines(text: str) -> list[Machine]:
    """`netns:a,b` → the machines; whoever has none yet finds in docs/profiler.md how to make them."""
    return parse_racks(text)[0]


def parse_racks(text: str) -> tuple[list[Machine], list[int]]:
    """`netns:a,b|c,d` → the machines, and the rack of each."""
    kind, colon, names = text.partition(":")
    if kind != "netns" or not colon or not names.strip():
        raise UserError(
            f"--machines {text!r} is not known; write netns:NAME,NAME for network namespaces of this host (several "
            "hosts are measured under torchrun or srun with `-m dally.profiler.join`: docs/profiler.md)"
        )
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        raise UserError("network namespaces need the commands ip (iproute2) and nsenter (util-linux)")
    racks = [[name.strip() for name in rack.split(",")] for rack in names.split("|")]
    if len({len(rack) for rack in racks}) > 1:
        raise UserError(f"--machines {text!r}: racks must have equally many machines")
    found = [_namespace(name) for rack in racks for name in rack]
    if len({machine.name for machine in found}) < max(2, len(found)):
        raise UserError("--machines needs at least two different namespaces")
    return found, [number for number, rack in enumerate(racks) for _ in rack]


def _namespace(name: str) -> Machine:
    done = subprocess.run(
        ["ip", "-n", name, "-4", "-o", "addr", "show", "scope", "global", "up"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UserError(f"network namespace {name!r} cannot be entered: {done.stderr.strip() or 'ip failed'}")
    match = re.search(r"^\d+:\s+([^\s@]+)\S*\s+inet\s+([\d.]+)/", done.stdout, re.M)
    if match is None:
        raise UserError(f"network namespace {name!r} has no interface with an IPv4 address that is up")
    return Machine(name, name, match[2], match[1])
