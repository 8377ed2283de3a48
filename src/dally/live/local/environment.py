"""What the processes of an attempt find in their environment."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from dally.live.engine import Order

# What the service has for itself: its own settings, secrets, and what its supervisor gave it.
_PRIVATE = re.compile(r"DALLY_(?!URL$)|NOTIFY_SOCKET$|LISTEN_|WATCHDOG_|JOURNAL_STREAM$|INVOCATION_ID$|PGPASSFILE$|"
                      r".*(TOKEN(?!IZERS)|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL)", re.IGNORECASE)  # fmt: skip
PORTS = range(20000, 32768)  # below those that systems hand out by themselves


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """What a job has of the service's environment: all but its secrets."""
    return {name: value for name, value in environment.items() if not _PRIVATE.match(name)}


def gpu_numbers(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def common(order: Order, *, folder: Path, state: Path, token: str, report: str, port: int) -> dict[str, str]:
    """What all ranks share. The program's own settings win over the service's, and dally's over both."""
    program = order.program
    slices = [(machine, ",".join(map(str, gpu_numbers(mask))))
              for machine, (_, mask) in zip(order.machines, order.placement.slices, strict=True)]  # fmt: skip
    return {
        "PYTHONUNBUFFERED": "1",  # so that what is printed is in the log when it is printed
        "GLOO_SOCKET_IFNAME": "lo",  # all ranks are on this machine, whatever its name resolves to
        **inherited(os.environ),
        **program.environment,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which the machine's GPUs are numbered
        "DALLY_JOB": order.job,
        "DALLY_JOB_NAME": order.name or order.job,
        "DALLY_ATTEMPT": str(order.attempt),
        "DALLY_RESTARTS": str(order.restarts),
        "DALLY_GPUS": ";".join(f"{machine}:{numbers}" for machine, numbers in slices),
        "DALLY_CHECKPOINT": program.checkpoint or str(state / "checkpoints" / folder.name.rpartition(".")[0]),
        "DALLY_GRACE": f"{program.grace:g}",
        "DALLY_SIGNAL": program.signal,
        "DALLY_TOKEN": token,
        "DALLY_REPORT": report,
        "DALLY_PROGRESS": str(folder / "progress"),
    }


def ranks(order: Order, devices: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """What each rank has for itself. Ranks follow the placement, machine by machine, and a placement follows the tree
    of the cluster: neighbours in rank are neighbours in the topology. `devices` are the devices of a machine's GPUs
    where those are not simply numbered."""
    found: list[dict[str, str]] = []
    for node, (machine, (_, mask)) in enumerate(zip(order.machines, order.placement.slices, strict=True)):
        own_devices = devices.get(machine)
        numbers = [str(bit) if own_devices is None else own_devices[bit] for bit in gpu_numbers(mask)]
        local = len(numbers) if order.program.processes == "gpu" else 1
        found += [{"NODE_RANK": str(node), "LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": str(local),
                   "DALLY_MACHINE": machine, "CUDA_VISIBLE_DEVICES": ",".join(numbers)}
                  for number in range(local)]  # fmt: skip
    return [{**own, "RANK": str(rank), "WORLD_SIZE": str(len(found))} for rank, own in enumerate(found)]


def free_port(taken: set[int], first: int) -> int:
    """A port nobody listens on and no attempt was given; the search begins somewhere else for everybody."""
    for step in range(len(PORTS)):
        port = PORTS[(first + step) % len(PORTS)]
        if port in taken:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError("there is no free port for the processes to meet at")
