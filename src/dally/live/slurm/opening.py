"""From a configuration to a Slurm that can be used, and its nodes drained in its own books."""

from __future__ import annotations

import logging
import signal
import threading

from dally.core.errors import UserError
from dally.live.config import Configured, ServiceConfig
from dally.live.errors import Conflict, Unavailable
from dally.live.slurm.client import Slurm, SlurmAway, SlurmRefused
from dally.live.slurm.cluster import SlurmCluster, slurm_cluster
from dally.live.slurm.ordering import node_of
from dally.live.slurm.watched import SlurmRules

log = logging.getLogger("dally.slurm")


def open_slurm(config: ServiceConfig) -> tuple[Slurm, SlurmCluster, SlurmRules]:
    wanted = config.slurm
    slurm = Slurm(wanted.command_timeout)
    found = slurm_cluster(slurm, config.cluster, config.folder / "slurm-cluster.json")
    for note in found.notes:
        log.info("the cluster: %s", note)
    rules = SlurmRules(
        options=tuple(wanted.options), srun=tuple(wanted.srun), python=wanted.python, poll=wanted.poll,
        before_reservations=wanted.before_reservations, start_timeout=config.rules.start_timeout,
        log_size=config.output.size, log_files=config.output.files,
    )  # fmt: skip
    return slurm, found, rules


def watch(configured: Configured) -> int:
    """`dally serve --engine slurm --dry-run`: until SIGTERM or Ctrl-C. The exit code."""
    from dally.live.logs import set_up
    from dally.live.slurm.shadow import DryRun

    configured.check()
    config = configured.config
    if config.engine != "slurm":
        raise UserError("--dry-run watches a Slurm: give --engine slurm as well; `dally submit --dry-run` asks a "
                        "service what would become of one job")  # fmt: skip
    set_up(config.log)
    slurm, found, _ = open_slurm(config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    running = DryRun(slurm, found.topology, config.policy, config.folder, poll=config.slurm.poll,
                     tell=lambda text: print(text, flush=True))  # fmt: skip
    print(f"watching Slurm with policy {config.policy}; nothing is touched (kept in {running.file})", flush=True)
    running.run(stop.wait)
    return 0


class NodeDrains:
    """`dally drain` and `dally resume` are done in Slurm, whose word on its nodes is the only one: the service follows
    it like anybody else's. Where it has not the right to do so, Slurm says so."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm

    def drain(self, machine: str, user: str) -> None:
        self._told(machine, f"dally: drained by {user}")

    def resume(self, machine: str, user: str) -> None:
        self._told(machine, None)

    def _told(self, machine: str, reason: str | None) -> None:
        node = node_of(machine)[0]
        try:
            if reason is None:
                self._slurm.resume(node)
            else:
                self._slurm.drain(node, reason)
        except SlurmAway as error:
            raise Unavailable(f"Slurm does not answer: {error}") from None
        except SlurmRefused as error:
            state = "resume" if reason is None else "drain"
            raise Conflict(f"Slurm does not let this service change node {node}: {error}; an operator can, with "
                           f"scontrol update nodename={node} state={state}") from None  # fmt: skip
