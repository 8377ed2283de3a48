"""From a configuration to a service that can be run."""

from __future__ import annotations

import dataclasses

from dally.core.errors import UserError
from dally.live.config import ServiceConfig
from dally.live.local.cluster import local_cluster
from dally.live.local.engine import LocalEngine
from dally.live.local.watched import EngineRules
from dally.live.metrics import LiveMetrics
from dally.live.run import queues_of, rules_of
from dally.live.service import Service
from dally.policies.options import make_policy
from dally.store.database import Database
from dally.store.errors import StoreUnavailableError


def open_service(config: ServiceConfig) -> Service:
    """The store is made where there is none; nothing is decided before `run_forever`."""
    folder = config.folder
    found = local_cluster(config.cluster)
    policy = _name_of(config.policy)
    database = Database(config.store or f"sqlite:///{folder.absolute()}/dally.db")
    try:
        database.prepare(found.topology, policy=policy)
    except StoreUnavailableError as error:
        raise UserError(f"the store cannot be opened: {error}") from None
    rules = dataclasses.replace(EngineRules(), log_size=config.output.size, log_files=config.output.files)
    metrics = LiveMetrics()
    return Service(
        database, lambda: LocalEngine(folder, rules, found.devices), found.topology, policy=policy,
        rules=rules_of(config), url=config.url, metrics=metrics, stop_jobs=config.stop == "checkpoint", state=folder,
        queues=queues_of(config),
    )  # fmt: skip


def _name_of(written: str) -> str:
    """The policy's name, which is what the journal has of it: it must lead back to the same policy."""
    made = make_policy(written)
    again = make_policy(made.name)
    if type(again).__module__ != type(made).__module__:
        raise UserError(f"policy {written!r} has the name of an installed one, {made.name!r}; give its class a title "
                        "of its own")  # fmt: skip
    return made.name
