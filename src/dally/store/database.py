"""The store of a service: a database that holds the journal, what was submitted, and who leads. SQLite or PostgreSQL.

Whatever is decided is one transaction: the instant, the requests it answers, and the rows people look at, written only
as long as the writer leads. The journal is the truth; rows are what follows from it, kept for those who list jobs.

    journal      one instant a row, numbered from 0, in the text of docs/formats/journal.md
    snapshots    the state after so many instants
    submissions  what people handed in, whole, from before they were told its id
    requests     everything else people asked for; done once an instant has it
    rows         one a job, as last decided
    leader       who leads: an epoch that only grows, and a heart that beats
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url

from dally.core.errors import UserError
from dally.core.events import MachinesChanged
from dally.core.journal import Instant
from dally.core.journal_text import VERSION, JournalText
from dally.core.topology import Topology
from dally.core.topology_text import topology_from_plain, topology_to_plain
from dally.store import tables as t
from dally.store.errors import FencedError, StoreUnavailableError
from dally.store.journal_file import JournalReader
from dally.store.taking import Handed, Taken, Taking


class Submission(NamedTuple):
    """What somebody handed in."""

    id: str
    who: str
    made: float
    spec: dict[str, Any]


class Known(NamedTuple):
    """A job as the store has it: what was handed in, and its row, once an instant has it."""

    seq: int
    submission: Submission
    row: dict[str, Any] | None


class Request(NamedTuple):
    """What somebody asked for."""

    seq: int
    made: float
    body: dict[str, Any]


class Lead(NamedTuple):
    """Who leads, as last seen: somebody whose beat does not change any more is gone."""

    epoch: int
    beat: int
    holder: dict[str, Any]


class Database:
    """One process's connection to the store. Safe to use from several threads; writes take turns."""

    def __init__(self, url: str | URL, *, patience: float = 5.0) -> None:
        self.url = make_url(url)
        if self.url.drivername in ("postgres", "postgresql"):
            self.url = self.url.set(drivername="postgresql+psycopg")
        self.folder = self.url.render_as_string(hide_password=True)  # how messages name it
        self._sqlite = self.url.get_backend_name() == "sqlite"
        self._engine = _engine(self.url, patience)
        self._put_row = _upsert(self._sqlite)
        self._turn = threading.Lock()
        self.epoch = 0  # of this process's lead; 0: it does not lead
        self.instants = 0  # in the journal, as far as this leader knows
        self.about: dict[str, Any] = {}
        self._text: JournalText | None = None

    # --- opening ----------------------------------------------------------------------------------------------

    def prepare(self, topology: Topology, **about: Any) -> None:
        """Make the tables where there are none; what is there already says what the store is about."""
        with self._writing() as connection:
            if not self._sqlite:  # two services may come up at once
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(7433001)"))
            t.meta.create_all(connection)
            found = connection.execute(sa.select(t.about.c.value).where(t.about.c.name == "header")).scalar()
            if found is None:
                header = {"schema": t.SCHEMA, "made": time.time(), **about, "topology": topology_to_plain(topology)}
                found = json.dumps(header)
                connection.execute(t.about.insert().values(name="header", value=found))
                connection.execute(t.leader.insert().values(one=1, epoch=0, beat=0, holder="{}"))
        self.about = json.loads(found)
        if self.about.get("schema") != t.SCHEMA:
            found = self.about.get("schema")
            raise UserError(f"{self.folder}: a store of schema {found}; this program reads {t.SCHEMA}")

    @property
    def made(self) -> float:
        """Unix time at which the store was made: the origin of its time."""
        return float(self.about["made"])

    @property
    def first_topology(self) -> Topology:
        """The cluster at the beginning of the journal."""
        return topology_from_plain(self.about["topology"])

    def close(self) -> None:
        self._engine.dispose()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._turn, _told(self.folder), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        with _told(self.folder), self._engine.connect().execution_options(reads=True) as connection:
            yield connection

    # --- who leads --------------------------------------------------------------------------------------------

    def lead(self) -> Lead:
        with self._reading() as connection:
            row = connection.execute(sa.select(t.leader)).one()
        return Lead(row.epoch, row.beat, json.loads(row.holder))

    def take_the_lead(self, seen: Lead, holder: Mapping[str, Any]) -> bool:
        """Lead from now on, unless anything has changed since `seen`. Who led before can write nothing any more."""
        with self._writing() as connection:
            done = connection.execute(
                t.leader.update()
                .where(t.leader.c.one == 1, t.leader.c.epoch == seen.epoch, t.leader.c.beat == seen.beat)
                .values(epoch=seen.epoch + 1, beat=seen.beat + 1, holder=json.dumps(dict(holder)))
            )
            count = connection.execute(sa.select(sa.func.count()).select_from(t.journal)).scalar_one()
        if done.rowcount != 1:
            return False
        self.epoch, self.instants = seen.epoch + 1, count
        return True

    def beat(self) -> None:
        """Show that this leader lives. Raises `FencedError` where somebody else leads."""
        with self._writing() as connection:
            self._must_lead(connection)
            connection.execute(t.leader.update().where(t.leader.c.one == 1).values(beat=t.leader.c.beat + 1))

    def step_down(self) -> None:
        """Leave the lead to whoever wants it, at once."""
        with self._writing() as connection:
            self._must_lead(connection)
            nobody = {"holder": "{}", "beat": t.leader.c.beat + 1}
            connection.execute(t.leader.update().where(t.leader.c.one == 1).values(**nobody))
        self.epoch = 0

    def _must_lead(self, connection: Connection, *, alone: bool = False) -> None:
        """Held until the transaction ends, so that nobody takes over in the middle of it; `alone`: nor writes."""
        query = t.LEADS if self._sqlite else t.LEADS_ALONE if alone else t.LEADS_LOCKED
        epoch = connection.execute(query).scalar_one()
        if epoch != self.epoch:
            raise FencedError(f"{self.folder}: another service leads now (epoch {epoch}, this one had {self.epoch})")

    # --- what is decided --------------------------------------------------------------------------------------

    def begin_text(self, topology: Topology) -> None:
        """From here on instants are written on this cluster."""
        self._text = JournalText(topology)

    def append(self, instant: Instant, answered: Iterable[int] = (),
               rows: Mapping[str, dict[str, Any]] | None = None) -> str:  # fmt: skip
        """One decision, whole: the instant, the requests it answers, the rows that follow. Durable when it returns;
        the instant as text."""
        assert self._text is not None, "begin_text comes first"
        text = self._text
        if any(type(entry) is MachinesChanged for entry in instant.happened):
            text = JournalText(text.topology)  # what fails must not have followed new machines
        line = text.encode(instant)
        with self._writing() as connection:
            self._must_lead(connection)
            connection.execute(t.APPEND, {"number": self.instants, "epoch": self.epoch, "line": line})
            answered = list(answered)
            if answered:
                connection.execute(t.requests.update().where(t.requests.c.seq.in_(answered)).values(done=True))
            self._put(connection, rows or {})
        self.instants += 1
        self._text = text
        return line

    def _put(self, connection: Connection, rows: Mapping[str, dict[str, Any]]) -> None:
        """Rows in the place of those of the same jobs, in one statement that is made once."""
        if rows:
            connection.execute(self._put_row, [{"id": job, "body": json.dumps(body)} for job, body in rows.items()])

    def note(self, name: str, value: str | None = None) -> str | None:
        """What was noted under a name before; `value` takes its place."""
        with self._writing() as connection:
            before = connection.execute(sa.select(t.about.c.value).where(t.about.c.name == name)).scalar()
            if value is not None and value != before:
                connection.execute(t.about.delete().where(t.about.c.name == name))
                connection.execute(t.about.insert().values(name=name, value=value))
        return before

    def put_rows(self, rows: Mapping[str, dict[str, Any]], answered: Iterable[int] = ()) -> None:
        """Rows of jobs that never came to the scheduler, and the requests that ended them."""
        with self._writing() as connection:
            self._must_lead(connection)
            self._put(connection, rows)
            connection.execute(t.requests.update().where(t.requests.c.seq.in_(list(answered))).values(done=True))

    def written(self) -> int:
        """Instants in the journal, asked of the store: after a failure nobody knows otherwise."""
        with self._reading() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(t.journal)).scalar_one())

    def snapshot(self, state: dict[str, Any], *, keep: int = 2) -> None:
        """The state after all instants so far. Older ones but the last few are deleted; the journal is kept whole."""
        body = json.dumps(state, allow_nan=False, separators=(",", ":"))
        with self._writing() as connection:
            self._must_lead(connection)
            connection.execute(t.snapshots.delete().where(t.snapshots.c.number == self.instants))
            connection.execute(t.snapshots.insert().values(number=self.instants, body=body))
            newest_first = sa.select(t.snapshots.c.number).order_by(t.snapshots.c.number.desc())
            old = list(connection.execute(newest_first).scalars())[keep:]
            if old:
                connection.execute(t.snapshots.delete().where(t.snapshots.c.number.in_(old)))

    def newest_snapshot(self) -> tuple[int, dict[str, Any]] | None:
        with self._reading() as connection:
            row = connection.execute(sa.select(t.snapshots).order_by(t.snapshots.c.number.desc()).limit(1)).first()
        return None if row is None else (row.number, json.loads(row.body))

    def since(self, number: int, topology: Topology | None = None) -> Iterator[Instant]:
        """Instants from `number` on, written on this cluster (default: as it was in the snapshot of that number, or at
        the beginning)."""
        if topology is None:
            found = self.newest_snapshot()
            at_snapshot = found is not None and found[0] == number
            topology = topology_from_plain(found[1]["topology"]) if found and at_snapshot else \
                self.first_topology  # fmt: skip
        text = JournalText(topology)
        for at, line in self.lines(number):
            yield text.decode(line, f"{self.folder}, instant {at}")

    def lines(self, number: int, limit: int | None = None) -> Iterator[tuple[int, str]]:
        """(number, text) of instants from `number` on; read in pieces."""
        left = float("inf") if limit is None else limit
        while left > 0:
            with self._reading() as connection:
                piece = connection.execute(
                    sa.select(t.journal.c.number, t.journal.c.line)
                    .where(t.journal.c.number >= number)
                    .order_by(t.journal.c.number)
                    .limit(int(min(left, 1000)))
                ).all()
            if not piece:
                return
            for row in piece:
                yield row.number, row.line
            number = piece[-1].number + 1
            left -= len(piece)

    # --- what people hand in ----------------------------------------------------------------------------------

    def submit(self, batch: Sequence[Handed]) -> list[Taken | UserError]:
        """Take in several people's submissions at once; durable when it returns. The ids of each, or why not. Only
        where this process leads: nobody else would hear of them."""
        answers: list[Taken | UserError] = []
        with self._writing() as connection:
            self._must_lead(connection, alone=True)
            taking = Taking(connection, connection.execute(t.NEWEST).scalar() or 0, batch)
            for handed in batch:
                answers.append(taking.take_in(handed))
            taking.write()
        return answers

    def submissions(self, after: int = 0) -> list[tuple[int, Submission]]:
        """(sequence number, what was handed in), all from a number on."""
        with self._reading() as connection:
            rows = connection.execute(
                sa.select(t.submissions).where(t.submissions.c.seq > after).order_by(t.submissions.c.seq)
            ).all()
        return [(row.seq, Submission(row.id, row.who, row.made, json.loads(row.spec))) for row in rows]

    def newest_submission(self) -> int:
        """Sequence number of the last one; 0: there is none."""
        with self._reading() as connection:
            return int(connection.execute(t.NEWEST).scalar() or 0)

    def unended(self) -> list[Known]:
        """Jobs that have not ended, be it that no instant has them yet, in order."""
        state = self._row_state()
        return self._known(t.KNOWN.where(sa.or_(t.rows.c.id.is_(None), state.is_(None))).order_by(t.submissions.c.seq))

    def known(self, id: str) -> Known | None:
        """One job, whatever became of it."""
        return next(iter(self._known(t.KNOWN.where(t.submissions.c.id == id))), None)

    def members(self, array: str) -> list[Known]:
        """The jobs of an array, in order."""
        inside = t.submissions.c.id.like(f"{array}\\_%", escape="\\")
        return self._known(t.KNOWN.where(inside).order_by(t.submissions.c.seq))

    def known_after(self, seq: int, limit: int) -> list[Known]:
        """All jobs in order, from the one after this on."""
        return self._known(t.KNOWN.where(t.submissions.c.seq > seq).order_by(t.submissions.c.seq).limit(limit))

    def last_finished(self, limit: int) -> list[Known]:
        """So many of those that finished, the last ones submitted, in order."""
        finished = t.KNOWN.where(self._row_state() == "finished")
        return self._known(finished.order_by(t.submissions.c.seq.desc()).limit(limit))[::-1]

    def ended(self) -> dict[str, int]:
        """How many jobs have ended, by state."""
        state = self._row_state()
        with self._reading() as connection:
            found = connection.execute(sa.select(state, sa.func.count()).where(state.is_not(None)).group_by(state))
            return {str(row[0]): int(row[1]) for row in found}

    def _known(self, query: sa.Select[Any]) -> list[Known]:
        with self._reading() as connection:
            found = connection.execute(query).all()
        return [Known(row.seq, Submission(row.id, row.who, row.made, json.loads(row.spec)),
                      None if row.body is None else json.loads(row.body)) for row in found]  # fmt: skip

    def _row_state(self) -> sa.ColumnElement[str | None]:
        """How a job ended; nothing while it has not."""
        if self._sqlite:
            return sa.func.json_extract(t.rows.c.body, "$.state")
        return sa.func.json_extract_path_text(sa.cast(t.rows.c.body, sa.JSON), "state")

    def ask(self, body: Mapping[str, Any]) -> Request:
        """Something else that somebody wants; durable when it returns. Only where this process leads."""
        made = time.time()
        with self._writing() as connection:
            self._must_lead(connection)
            done = connection.execute(t.requests.insert().values(made=made, body=json.dumps(dict(body)), done=False))
            seq = done.inserted_primary_key[0]  # type: ignore[index]
        return Request(seq, made, dict(body))

    def open_requests(self, after: int = 0) -> list[Request]:
        with self._reading() as connection:
            wanted = sa.select(t.requests).where(t.requests.c.done.is_(False), t.requests.c.seq > after)
            rows = connection.execute(wanted.order_by(t.requests.c.seq)).all()
        return [Request(row.seq, row.made, json.loads(row.body)) for row in rows]

    def rows(self) -> dict[str, dict[str, Any]]:
        with self._reading() as connection:
            return {row.id: json.loads(row.body) for row in connection.execute(sa.select(t.rows))}


def stored(database: Database) -> Database:
    """To be read: what it is about is known, and nothing is made. One sentence where there is no store."""
    with database._reading() as connection:
        found = None
        if sa.inspect(connection).has_table("about"):
            found = connection.execute(sa.select(t.about.c.value).where(t.about.c.name == "header")).scalar()
    if found is None:
        raise UserError(f"{database.folder}: no service has kept its journal here")
    database.about = json.loads(found)
    return database


class ServiceJournal(JournalReader):
    """The journal of a service, from its beginning, to be read like any other."""

    def __init__(self, url: str) -> None:
        self._database = stored(Database(url))
        about = {name: value for name, value in self._database.about.items() if name != "schema"}
        self.path = Path(self._database.folder)
        self.about = {"journal": VERSION, **about}
        self._text = JournalText(self._database.first_topology)
        self.torn, self.begins_with = False, None

    def __iter__(self) -> Iterator[Instant]:
        for at, line in self._database.lines(0):
            yield self._text.decode(line, f"{self.path}, instant {at}")


def _engine(url: URL, patience: float) -> Engine:
    if url.get_backend_name() != "sqlite":
        try:
            return sa.create_engine(
                url, pool_pre_ping=True, pool_size=8, max_overflow=8, pool_timeout=patience,
                connect_args={"connect_timeout": max(1, round(patience)),
                              "options": f"-c statement_timeout={round(patience * 1000)}"},
            )  # fmt: skip
        except ModuleNotFoundError as error:
            raise UserError(f"{url.render_as_string()}: {error.name} is not installed: pip install 'dally[postgres]'") \
                from None  # fmt: skip
    engine = sa.create_engine(url, connect_args={"timeout": patience, "check_same_thread": False},
                              pool_size=8, max_overflow=8, pool_timeout=patience)  # fmt: skip

    @sa.event.listens_for(engine, "connect")
    def opened(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, by name
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")  # a commit is on the disk when it returns
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        # Who writes says so at once: a reader that turns into a writer half-way could be refused.
        connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get("reads") else "BEGIN IMMEDIATE")

    return engine


def _upsert(sqlite: bool) -> sa.Insert:
    if sqlite:
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
    made = insert(t.rows)
    return made.on_conflict_do_update(index_elements=["id"], set_={"body": made.excluded.body})


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """The database's own exceptions, in the house's words."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.InternalError, sa.exc.TimeoutError,
            sa.exc.DatabaseError) as error:  # fmt: skip
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise StoreUnavailableError(f"{name}: {cause}") from error
