"""Tasks on the cores there are: worker processes that outlive a task, and whose death is one task's failure.

Workers are programs of their own (`python -m dally.simulator.worker`), not forks and not re-imports of the caller's
script: a notebook or a script without a main guard can use them, and no thread is cut in half.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dally.core.errors import RunError
from dally.core.records import dataclass
from dally.simulator.stopping import asked, heeded
from dally.simulator.threads import ONE_THREAD

if TYPE_CHECKING:
    import subprocess
    from multiprocessing.connection import Connection

Sign = Callable[[float, int, int], bool]  # simulated time, jobs ended, jobs in all → go on?
INTERRUPTED = 130  # exit code of a worker that Ctrl-C found between two tasks
Report = Callable[[str, float, int, int], None]  # label, simulated time, jobs ended, jobs in all


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be called in another process, and what it is called in messages."""

    label: str
    call: Callable[[Sign], Any]


class StoppedError(Exception):
    """Ctrl-C: the task was not begun, or left nothing."""


@dataclass(slots=True)
class Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    tasks: dict[int, Task] = field(default_factory=dict)  # none or one
    told_to_stop: bool = False

    @classmethod
    def start(cls) -> Worker:
        import subprocess  # one run alone needs no other process
        from multiprocessing.connection import Pipe

        import dally.version

        ours, theirs = Pipe()
        home = str(Path(dally.version.__file__).resolve().parent.parent)
        paths = [home, *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it takes Ctrl-C once it can answer it
        try:
            # in a group of its own: a terminal's Ctrl-C reaches us alone, and we tell each worker once
            process = subprocess.Popen([sys.executable, "-m", "dally.simulator.worker", str(theirs.fileno())],
                                       pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0,
                                       env={ONE_THREAD: "1", **os.environ,
                                            "PYTHONPATH": os.pathsep.join(paths)})  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        ours.send(sys.path)
        return cls(process, ours)

    def stop(self) -> None:
        """It hands over what it has of its task; it can answer as soon as it has started."""
        if not self.told_to_stop:
            self.told_to_stop = True
            self.process.send_signal(signal.SIGINT)

    def end(self) -> None:
        self.connection.close()  # an idle worker ends by itself when nobody is there any more
        if self.tasks:
            self.process.terminate()
        self.process.wait()


def portable(value: object) -> bool:
    """Whether another process can be handed this: what lives in a script or a notebook alone cannot."""
    try:
        return b"__main__" not in pickle.dumps(value)
    except Exception:
        return False


def run_tasks(tasks: Iterable[Task], workers: int, report: Report | None = None) -> Iterator[tuple[int, Any]]:
    """(number, result) of every task in the order they end; a result that is an exception is the task's failure.

    Tasks are taken from `tasks` when there is somebody to do them. Ctrl-C, whenever it comes: every worker hands over
    what it has, and no further task is begun. A second one breaks off.
    """
    from multiprocessing.connection import Connection, wait

    queue = enumerate(tasks)
    crew: list[Worker] = []
    exhausted = False
    with heeded():
        try:
            while True:
                while not (asked() or exhausted) and (idle := _idle(crew, workers)) is not None:
                    following = next(queue, None)
                    if following is None:
                        exhausted = True
                        break
                    failure = _hand_over(idle, *following)
                    if failure is not None:
                        yield following[0], failure
                busy = {worker.connection: worker for worker in crew if worker.tasks}
                if not busy:
                    return
                if asked():
                    for worker in busy.values():
                        worker.stop()
                for connection in wait(list(busy), timeout=0.2):
                    assert isinstance(connection, Connection)
                    done = _listen(busy[connection], crew, report)
                    if done is not None:
                        yield done
        finally:
            for worker in crew:
                worker.end()


def _idle(crew: list[Worker], most: int) -> Worker | None:
    free = next((worker for worker in crew if not worker.tasks), None)
    if free is None and len(crew) < most:
        free = Worker.start()
        crew.append(free)
    return free


def _hand_over(worker: Worker, number: int, task: Task) -> Exception | None:
    try:
        worker.connection.send_bytes(pickle.dumps(task.call))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return RunError(task.label, f"cannot be handed to a worker process: {error}")
    except OSError:  # it died while it was idle; it will be noticed as the end of this task
        pass
    worker.tasks[number] = task
    return None


def _listen(worker: Worker, crew: list[Worker], report: Report | None) -> tuple[int, Any] | None:
    """One message of a worker: a sign of life, or the end of its task."""
    (number, task), = worker.tasks.items()
    try:
        kind, *content = worker.connection.recv()
    except (EOFError, OSError):
        crew.remove(worker)
        worker.connection.close()
        if (code := worker.process.wait()) in (INTERRUPTED, -signal.SIGINT):
            return number, StoppedError()
        return number, RunError(task.label, f"was being run by a process that {_death(code)}")
    if kind == "progress":
        if report is not None:
            report(task.label, *content)
        return None
    worker.tasks.clear()
    return number, StoppedError() if kind == "stopped" else content[0]


def _death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed (signal 9): most often for want of memory; run fewer at a time with --workers"
    if code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"
