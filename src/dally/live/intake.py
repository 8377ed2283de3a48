"""Submissions of many people at once, written together: one commit for whoever came while the last one was made."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future

from dally.core.errors import UserError
from dally.live.errors import Busy
from dally.store.database import Database, Handed

MOST_TOGETHER = 200
MOST_WAITING = 5000  # submissions that may wait for the disk; more are told to come again


class Intake:
    """A thread that writes. `hand_in` returns when the submission is durable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: queue.Queue[tuple[Handed, Future[list[str]]] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._write, name="dally-intake", daemon=True)
        self._thread.start()

    def hand_in(self, handed: Handed) -> list[str]:
        answer: Future[list[str]] = Future()
        try:
            self._queue.put_nowait((handed, answer))
        except queue.Full:
            raise Busy("too many submissions wait to be written; come again in a second") from None
        return answer.result()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(timeout=10)

    def _write(self) -> None:
        while (first := self._queue.get()) is not None:
            together = [first]
            while len(together) < MOST_TOGETHER:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._queue.put(None)
                    break
                together.append(more)
            self._commit(together)

    def _commit(self, together: list[tuple[Handed, Future[list[str]]]]) -> None:
        try:
            answers = self._database.submit([handed for handed, _ in together])
        except Exception as error:
            for _, waits in together:
                waits.set_exception(error)
            return  # whoever comes next is still served
        for (_, waits), answer in zip(together, answers, strict=True):
            if isinstance(answer, UserError):
                waits.set_exception(answer)
            else:
                waits.set_result(answer)
