"""The tables of a service's store, and the statements that are executed so often that they are made once."""

from __future__ import annotations

import sqlalchemy as sa

SCHEMA = 1
_Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up in INTEGER only

meta = sa.MetaData()
about = sa.Table("about", meta, sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text))
journal = sa.Table(
    "journal", meta,
    sa.Column("number", _Number, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("line", sa.Text, nullable=False),
)  # fmt: skip
snapshots = sa.Table(
    "snapshots", meta,
    sa.Column("number", _Number, primary_key=True, autoincrement=False),
    sa.Column("body", sa.Text, nullable=False),
)  # fmt: skip
submissions = sa.Table(
    "submissions", meta,
    sa.Column("seq", _Number, primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("made", sa.Float, nullable=False),  # unix time
    sa.Column("spec", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)  # fmt: skip
keys = sa.Table(
    "keys", meta,
    sa.Column("who", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("ids", sa.Text, nullable=False),
)  # fmt: skip
requests = sa.Table(
    "requests", meta,
    sa.Column("seq", _Number, primary_key=True),
    sa.Column("made", sa.Float, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("done", sa.Boolean, nullable=False, default=False, index=True),
    sqlite_autoincrement=True,
)  # fmt: skip
rows = sa.Table(
    "rows", meta,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)  # fmt: skip
leader = sa.Table(
    "leader", meta,
    sa.Column("one", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("beat", _Number, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
)  # fmt: skip

# Made once: to make a statement anew costs several times as much as to execute it.
APPEND, HAND_IN, KEY = journal.insert(), submissions.insert(), keys.insert()
LEADS = sa.select(leader.c.epoch).where(leader.c.one == 1)
LEADS_LOCKED, LEADS_ALONE = LEADS.with_for_update(read=True), LEADS.with_for_update()
KNOWN = sa.select(submissions, rows.c.body).join_from(
    submissions, rows, submissions.c.id == rows.c.id, isouter=True)  # fmt: skip
NEWEST = sa.select(sa.func.max(submissions.c.seq))
KEYS_BEFORE = sa.select(keys).where(keys.c.key.in_(sa.bindparam("keys", expanding=True)))
