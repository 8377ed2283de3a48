"""The journal of a service, executed again from its beginning; what follows is compared with what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from dally.core.errors import UserError
from dally.core.journal import Instant, Journal
from dally.core.scheduler import Scheduler
from dally.live.board import Board
from dally.live.coming_back import REMEMBERS
from dally.live.learned import Learned
from dally.policies.options import make_policy
from dally.store.database import Database, stored
from dally.store.recovery import Difference, Recorded, execute


class Verified(NamedTuple):
    instants: int
    difference: Difference | None  # the first decision that comes out otherwise
    rows: list[str]  # jobs whose stored row is not what follows from the journal


def store_of(record: Path | str) -> str | None:
    """The URL of a service's store: given as such, or the one in its state."""
    kind, colon, rest = str(record).partition(":/")
    if colon and kind.startswith("postgresql"):
        return f"{kind}://{rest.lstrip('/')}"  # a path has one slash there
    file = Path(record) / "dally.db"
    return f"sqlite:///{file.absolute()}" if file.exists() else None


def verify(url: str, progress: Callable[[int], None] = lambda count: None) -> Verified:
    """On the same events the same policies must decide the same; rows of jobs the scheduler knew must follow."""
    database = stored(Database(url))
    topology = database.first_topology
    scheduler = Scheduler(topology, make_policy(database.about["policy"]), Recorded(()), Journal(), Learned(topology),
                          strict=False, remembers=REMEMBERS)  # fmt: skip
    board = Board()
    count = 0

    def followed() -> Iterator[Instant]:
        nonlocal count
        for instant in database.since(0, topology):
            board.take(board.after(instant, scheduler.view.topology))
            count += 1
            progress(count)
            yield instant

    difference = None
    try:
        execute(scheduler, followed(), make_policy)
    except Difference as error:
        difference = error
    except UserError as error:
        raise UserError(f"{database.folder}: {error}") from None
    rows = database.rows()
    wrong = [job for job, row in rows.items() if job in board.rows and board.rows[job] != row]
    return Verified(count, difference, [] if difference is not None else wrong)
