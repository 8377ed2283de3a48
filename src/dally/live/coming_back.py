"""A scheduler as the store has it: the newest snapshot, and the journal since, executed again or taken as recorded."""

from __future__ import annotations

import logging
import time

from dally.core.journal import Journal
from dally.core.policy import Policy
from dally.core.scheduler import Scheduler
from dally.core.topology import Topology
from dally.core.topology_text import topology_from_plain
from dally.live.learned import Learned
from dally.policies.options import make_policy
from dally.store.database import Database
from dally.store.errors import FencedError, StoreUnavailableError
from dally.store.recovery import recover

log = logging.getLogger("dally.service")

REMEMBERS = 1000  # ended jobs, by the scheduler; more than that are forgotten, and found in the store


def come_back(database: Database, otherwise: str) -> tuple[Scheduler, Learned]:
    """Executed again where that gives the same; else taken as recorded, with the policy `otherwise` in charge."""
    found = database.newest_snapshot()
    topology = database.first_topology if found is None else topology_from_plain(found[1]["topology"])
    written = database.about["policy"] if found is None else found[1]["policy"]
    begin = time.monotonic()
    try:
        scheduler, learned = _fresh(topology, make_policy(written))
        came = recover(database, scheduler, make_policy, "verify")  # type: ignore[arg-type]
    except (StoreUnavailableError, FencedError):
        raise
    except Exception as error:  # another policy, another version of it, or one that fails: jobs are more than that
        log.warning("the journal cannot be executed again (%s); it is taken as recorded", error)
        scheduler, learned = _fresh(topology, make_policy(otherwise))
        came = recover(database, scheduler, make_policy, "trust")  # type: ignore[arg-type]
    log.info("%d instants read again, %d of them after the snapshot, in %.2f s; %d jobs, policy %s",
             came.from_snapshot + came.followed, came.followed, time.monotonic() - begin, len(scheduler.jobs),
             scheduler.policy.name)  # fmt: skip
    return scheduler, learned


def _fresh(topology: Topology, policy: Policy) -> tuple[Scheduler, Learned]:
    learned = Learned(topology)
    return Scheduler(topology, policy, _NoWorld(), Journal(), learned, strict=False, remembers=REMEMBERS), learned


class _NoWorld:
    """While a scheduler is brought back nothing happens and nothing is done."""

    def next_events(self) -> None:
        return None

    def carry_out(self, now: float, decided: object) -> tuple[()]:
        return ()
