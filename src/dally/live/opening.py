"""From a configuration to a service that can be run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dally.core.errors import UserError
from dally.core.topology import Topology
from dally.live.config import ServiceConfig
from dally.live.engine import Engine
from dally.live.local.cluster import local_cluster
from dally.live.local.engine import LocalEngine
from dally.live.local.watched import EngineRules
from dally.live.metrics import LiveMetrics
from dally.live.run import queues_of, rules_of
from dally.live.service import Drains, Service
from dally.live.slurm.engine import SlurmEngine
from dally.live.slurm.opening import NodeDrains, open_slurm
from dally.policies.options import make_policy
from dally.store.database import Database
from dally.store.errors import StoreUnavailableError


def open_service(config: ServiceConfig) -> Service:
    """The store is made where there is none; nothing is decided before `run_forever`."""
    folder = config.folder
    policy = _name_of(config.policy)
    topology, make_engine, drains = _on_slurm(config) if config.engine == "slurm" else _here(config)
    database = Database(config.store or f"sqlite:///{folder.absolute()}/dally.db")
    try:
        database.prepare(topology, policy=policy)
    except StoreUnavailableError as error:
        raise UserError(f"the store cannot be opened: {error}") from None
    metrics = LiveMetrics()
    return Service(
        database, make_engine, topology, policy=policy, rules=rules_of(config), url=config.url, metrics=metrics,
        stop_jobs=config.stop == "checkpoint", state=folder, queues=queues_of(config), drains=drains,
    )  # fmt: skip


_Parts = tuple[Topology, Callable[[], Engine], Drains | None]


def _here(config: ServiceConfig) -> _Parts:
    found = local_cluster(config.cluster)
    rules = dataclasses.replace(EngineRules(), log_size=config.output.size, log_files=config.output.files)
    return found.topology, lambda: LocalEngine(config.folder, rules, found.devices), None


def _on_slurm(config: ServiceConfig) -> _Parts:
    if make_policy(config.policy).shares:
        raise UserError(f"policy {config.policy!r} puts several jobs on the same GPUs in turns, which Slurm cannot do: "
                        "a suspended job keeps its GPUs there; choose one that gives whole GPUs")  # fmt: skip
    slurm, found, rules = open_slurm(config)
    return found.topology, lambda: SlurmEngine(config.folder, found.topology, rules, slurm), NodeDrains(slurm)


def _name_of(written: str) -> str:
    """The policy's name, which is what the journal has of it: it must lead back to the same policy."""
    made = make_policy(written)
    again = make_policy(made.name)
    if type(again).__module__ != type(made).__module__:
        raise UserError(f"policy {written!r} has the name of an installed one, {made.name!r}; give its class a title "
                        "of its own")  # fmt: skip
    return made.name
