"""What backfill with reservations remembers. Never compiled: a memory's fields are its annotations."""

from __future__ import annotations

from dally.core.memory import Memory, Table


class Limits(Memory):
    ends: Table[str, float]  # jobs that have GPUs → when they end as they say
