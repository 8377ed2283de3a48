"""A worker process: takes tasks from its pipe one after the other, and says how far it is (`simulator.pool`)."""

from __future__ import annotations

import pickle
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from dally.core.errors import PlanError, RunError, UserError
from dally.simulator.pool import INTERRUPTED
from dally.simulator.stopping import asked, hear

_EVERY = 0.2  # seconds between two signs of life


def main(descriptor: int) -> None:
    # whoever started us says once that it is over; a task then hands over what it has, between two instants
    signal.signal(signal.SIGINT, hear)
    connection = Connection(descriptor)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        sys.path[:] = connection.recv()
        while True:
            work = connection.recv_bytes()
            connection.send(_outcome(work, connection))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (EOFError, BrokenPipeError, ConnectionError):
        return  # nobody is there any more


def _outcome(work: bytes, connection: Connection) -> tuple[Any, ...]:
    last = time.monotonic()

    def sign(now: float, ended: int, jobs: int) -> bool:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            connection.send(("progress", now, ended, jobs))
        return True

    if asked():
        return ("stopped",)
    try:
        result = ("done", pickle.loads(work)(sign))
        pickle.dumps(result)
        return result
    except KeyboardInterrupt:
        return ("stopped",)
    except (UserError, PlanError, RunError) as error:
        return ("done", error)
    except MemoryError:
        return ("done", UserError("out of memory: take fewer jobs or run fewer at a time with --workers"))
    except Exception as error:
        what = f"could not be run: {type(error).__name__}: {error}"
        return ("done", RunError("?", what, traceback.format_exc()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
