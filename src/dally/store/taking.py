"""Submissions as they are taken in: ids for many at once, and the same ids again for a key that was used before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy.engine import Connection

from dally.core.errors import UserError
from dally.store.tables import HAND_IN, KEY, KEYS_BEFORE


class Handed(NamedTuple):
    """One person's submission: jobs by themselves, or numbered members of an array, under a key of theirs or none."""

    who: str
    made: float
    specs: Sequence[Sequence[tuple[int | None, dict[str, Any]]]]
    key: str | None
    digest: str


class Taken(NamedTuple):
    """Ids of a submission, and whether it is new: the same key again has the ids it had."""

    ids: list[str]
    new: bool


class Taking:
    """Submissions of one transaction, numbered as they come and written together. There is one such transaction at a
    time, and no submission is ever deleted: the next number is one more than the last."""

    def __init__(self, connection: Connection, newest: int, batch: Sequence[Handed]) -> None:
        self._connection, self._newest = connection, newest
        self._rows: list[dict[str, Any]] = []
        self._new_keys: list[dict[str, Any]] = []
        self._keys: dict[tuple[str, str], dict[str, Any]] = {}  # by whom and key; those of this transaction too
        keys = sorted({handed.key for handed in batch if handed.key is not None})
        for row in connection.execute(KEYS_BEFORE, {"keys": keys}) if keys else ():
            self._keys[row.who, row.key] = dict(row._mapping)

    def take_in(self, handed: Handed) -> Taken | UserError:
        if handed.key is not None:
            before = self._keys.get((handed.who, handed.key))
            if before is not None:
                if before["digest"] != handed.digest:
                    return UserError(f"the idempotency key {handed.key!r} was used for another submission")
                return Taken(list(json.loads(before["ids"])), False)
        ids = [id for group in handed.specs for id in self._group(handed, group)]
        if handed.key is not None:
            new = {"who": handed.who, "key": handed.key, "digest": handed.digest, "ids": json.dumps(ids)}
            self._keys[handed.who, handed.key] = new
            self._new_keys.append(new)
        return Taken(ids, True)

    def _group(self, handed: Handed, group: Sequence[tuple[int | None, dict[str, Any]]]) -> Iterator[str]:
        """A row each; its number is its id, or the id of its array and its number in it."""
        array = self._newest + 1
        for member, spec in group:
            self._newest += 1
            id = str(self._newest) if member is None else f"{array}_{member}"
            self._rows.append({"seq": self._newest, "id": id, "who": handed.who, "made": handed.made,
                               "spec": json.dumps(spec)})  # fmt: skip
            yield id

    def write(self) -> None:
        if self._rows:
            self._connection.execute(HAND_IN, self._rows)
        if self._new_keys:
            self._connection.execute(KEY, self._new_keys)
