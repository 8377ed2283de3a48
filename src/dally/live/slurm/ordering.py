"""From an order of ours to a job of Slurm's: the folder's order, the batch script, the options of `sbatch`."""

from __future__ import annotations

import math
import os
import re
import shlex
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dally.core.records import dataclass
from dally.live.engine import Order
from dally.live.local import environment
from dally.live.slurm.folder import SlurmFolder

_SLACK = 60.0  # seconds Slurm's time limit is longer than ours, which ends an attempt with its reason
_MARK = re.compile(r"dally:([0-9a-f]+):([^:]+):(\d+):([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a job of Slurm carries in its comment: whose it is, and which attempt of what."""

    service: str
    job: str
    attempt: int
    token: str

    def __str__(self) -> str:
        return f"dally:{self.service}:{environment_safe(self.job)}:{self.attempt}:{self.token}"


def environment_safe(job: str) -> str:
    from urllib.parse import quote

    return quote(job, safe="")


def read_mark(comment: str) -> Mark | None:
    from urllib.parse import unquote

    found = _MARK.fullmatch(comment)
    return Mark(found[1], unquote(found[2]), int(found[3]), found[4]) if found else None


def node_of(machine: str) -> tuple[str, str | None]:
    """The node that a machine of the topology is, and the type of its GPUs where a node has several."""
    node, colon, kind = machine.rpartition("/")[2].partition(":")
    return node, kind if colon else None


def plain_order(order: Order, folder: SlurmFolder, *, state: Path, addresses: Mapping[str, str], taken: set[int],
                log_size: int, log_files: int, srun: Sequence[str]) -> dict[str, Any]:  # fmt: skip
    """The order as the batch process reads it. Raises ValueError for what is wrong with it."""
    program, token = order.program, uuid.uuid4().hex
    number = program.checked()
    parts = [node_of(machine) for machine in order.machines]
    nodes, kinds = [node for node, _ in parts], {kind for _, kind in parts}
    gpus = [mask.bit_count() for _, mask in order.placement.slices]
    if len(set(nodes)) < len(nodes) or len(kinds) > 1:
        raise ValueError("it would need GPUs of several types of one node")
    if len(set(gpus)) > 1:
        raise ValueError(f"Slurm cannot be told to give it {', '.join(map(str, gpus))} GPUs of its nodes")
    port = _port(token, taken)
    report = str(state / "engine.sock")
    directory = Path(program.directory or ".").absolute()
    common = environment.common(order, folder=folder.path, state=state, token=token, report=report, port=port)
    common = {name: value for name, value in common.items() if not name.startswith(("SLURM", "SBATCH"))}
    given = {**os.environ, **program.environment}
    if len(nodes) > 1:
        common["MASTER_ADDR"] = addresses.get(nodes[0], nodes[0])
        if "GLOO_SOCKET_IFNAME" not in given:
            del common["GLOO_SOCKET_IFNAME"]  # each node finds its own
    ranks = [{name: value for name, value in rank.items() if name != "CUDA_VISIBLE_DEVICES"}
             for rank in environment.ranks(order, {})]  # fmt: skip
    return {
        "job": order.job, "attempt": order.attempt, "token": token, "port": port, "report": report,
        "command": list(program.command), "directory": str(directory), "signal": int(number),
        "grace": program.grace, "time_limit": program.time_limit, "reference": program.reference,
        "output": str(directory / program.output) if program.output is not None else None,
        "cgroup": None, "log_size": log_size, "log_files": log_files, "environment": common, "ranks": ranks,
        "nodes": nodes, "addresses": [addresses.get(node, node) for node in nodes], "gres_type": kinds.pop(),
        "gpus": gpus, "srun": list(srun),
    }  # fmt: skip


def _port(token: str, taken: set[int]) -> int:
    """Where the ranks meet: nobody can ask the node whether it is free; no attempt of ours has it."""
    first = int(token[:6], 16)
    ports = environment.PORTS
    return next((port for step in range(len(ports)) if (port := ports[(first + step) % len(ports)]) not in taken),
                ports[first % len(ports)])  # fmt: skip


def script(python: str, program: Path, folder: Path) -> str:
    return f"#!/bin/sh\nexec {shlex.join([python, '-I', '-S', '-X', 'utf8', str(program), 'job', str(folder)])}\n"


def options(plain: Mapping[str, Any], mark: Mark, name: str, folder: SlurmFolder, extra: Sequence[str]) -> list[str]:
    """Where it goes, and how many GPUs of each node: that binds. Which of a node's GPUs is Slurm's choice."""
    nodes, gpus = plain["nodes"], plain["gpus"]
    kind = f"{plain['gres_type']}:" if plain["gres_type"] else ""
    log = str(folder.path / "shim.log").replace("%", "%%")
    found = [*extra, "--no-requeue", f"--job-name={name}", f"--comment={mark}", "--chdir=/", "--export=ALL",
             f"--output={log}", "--open-mode=truncate", f"--nodes={len(nodes)}"]  # fmt: skip
    if plain["time_limit"] is not None:
        seconds = plain["time_limit"] + plain["grace"] + _SLACK
        found.append(f"--time={max(1, math.ceil(seconds / 60))}")
    return [*found, f"--nodelist={','.join(nodes)}", f"--ntasks-per-node={gpus[0]}", f"--gpus-per-node={kind}{gpus[0]}"]
