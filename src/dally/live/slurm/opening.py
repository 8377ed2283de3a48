"""From a configuration to a Slurm that can be used, and its nodes drained in its own books."""

from __future__ import annotations

import logging

from dally.live.config import ServiceConfig
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
        options=wanted.options, srun=wanted.srun, python=wanted.python, poll=wanted.poll,
        before_reservations=wanted.before_reservations, start_timeout=config.rules.start_timeout,
        log_size=config.output.size, log_files=config.output.files,
    )  # fmt: skip
    return slurm, found, rules


class NodeDrains:
    """`dally drain` and `dally resume` are done in Slurm, whose word on its nodes is the only one: the service follows it
    like anybody else's. Where it has not the right to do so, Slurm says so."""

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
            raise Conflict(f"Slurm does not let this service change node {node}: {error}; an operator can, with "
                           f"scontrol update nodename={node} state={'resume' if reason is None else 'drain'}") from None  # fmt: skip
