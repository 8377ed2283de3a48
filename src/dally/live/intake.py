"""Submissions of many people at once, written together: one commit for whoever came while the last one was made."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from dally.core.errors import UserError
from dally.live.errors import Busy, NotLeader, Unavailable
from dally.live.spec import JobSpec
from dally.store.database import Database
from dally.store.errors import FencedError, StoreUnavailableError
from dally.store.taking import Handed

MOST_TOGETHER = 200
MOST_WAITING = 5000  # submissions that may wait for the disk; more are told to come again


class _Waits(NamedTuple):
    handed: Handed
    specs: Sequence[JobSpec]
    answer: Future[list[str]]


class Intake:
    """A thread that writes. The future of a submission has its ids once it is durable and `accepted` has seen it."""

    def __init__(self, database: Database, accepted: Callable[[Handed, Sequence[JobSpec], list[str]], None]) -> None:
        self._database, self._accepted = database, accepted
        self._queue: queue.Queue[_Waits | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._write, name="dally-intake", daemon=True)
        self._thread.start()

    def hand_in(self, handed: Handed, specs: Sequence[JobSpec]) -> Future[list[str]]:
        """`specs`: of the same jobs, as they were read."""
        answer: Future[list[str]] = Future()
        try:
            self._queue.put_nowait(_Waits(handed, specs, answer))
        except queue.Full:
            raise Busy("too many submissions wait to be written; come again in a second") from None
        return answer

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

    def _commit(self, together: list[_Waits]) -> None:
        try:
            answers = self._database.submit([each.handed for each in together])
        except Exception as error:
            for _, _, waits in together:
                _fail(waits, _told(error))
            return  # whoever comes next is still served
        for (handed, specs, waits), answer in zip(together, answers, strict=True):
            if isinstance(answer, UserError):
                _fail(waits, answer)
                continue
            try:
                if answer.new:
                    self._accepted(handed, specs, answer.ids)
            except Exception as error:  # it is durable: whoever reads the store next finds it
                _fail(waits, error)
                continue
            if waits.set_running_or_notify_cancel():
                waits.set_result(answer.ids)


def _fail(waits: Future[list[str]], error: Exception) -> None:
    if waits.set_running_or_notify_cancel():  # who asked may have gone
        waits.set_exception(error)


def _told(error: Exception) -> Exception:
    if isinstance(error, StoreUnavailableError):
        return Unavailable(f"nothing was accepted: the store does not answer ({error})")
    return NotLeader() if isinstance(error, FencedError) else error
