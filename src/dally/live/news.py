"""What was written lately, for those who watch: kept in memory as far as it goes, read from the store before that."""

from __future__ import annotations

import threading
import time
from collections import deque

from dally.live.errors import Unavailable
from dally.store.database import Database
from dally.store.errors import StoreUnavailableError

RECENT, RECENT_SIZE = 10_000, 16_000_000  # instants, and characters of them, kept in memory


class News:
    """Instants as text, by number. Safe from any thread."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._recent: deque[tuple[int, str]] = deque()
        self._recent_size = 0
        self._news = threading.Condition()

    def wrote(self, number: int, line: str) -> None:
        with self._news:
            if self._recent and self._recent[-1][0] != number - 1:
                self._recent.clear()  # somebody else has led meanwhile
                self._recent_size = 0
            self._recent.append((number, line))
            self._recent_size += len(line)
            while len(self._recent) > RECENT or (self._recent_size > RECENT_SIZE and len(self._recent) > 1):
                self._recent_size -= len(self._recent.popleft()[1])
            self._news.notify_all()

    def after(self, position: int, limit: int, wait: float) -> list[tuple[int, str]]:
        """Instants with their numbers, from this number on; waits so long if there is none."""
        deadline = time.monotonic() + wait
        with self._news:
            while not self._recent or self._recent[-1][0] < position:
                left = deadline - time.monotonic()
                if left <= 0 or not self._news.wait(left):
                    break
            recent = self._recent
            if recent and recent[0][0] <= position:
                first = position - recent[0][0]
                return [recent[at] for at in range(first, min(first + limit, len(recent)))]
        if position >= self.database.instants:
            return []
        try:
            return list(self.database.lines(position, limit))
        except StoreUnavailableError as error:
            raise Unavailable(f"the store does not answer ({error})") from error
