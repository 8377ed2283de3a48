"""The hooks that profile a script without an edit: DataLoader, optimiser, process group, DDP, and the way it ends."""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import traceback
from types import TracebackType
from typing import Any

from dally.profiler.inside.session import Session
from dally.profiler.inside.task import LAUNCHER, read_task

_PR_SET_PDEATHSIG = 1

_session: Session | None = None


def session() -> Session | None:
    return _session


def set_hooks() -> None:
    """Once per process, as soon as torch is there."""
    global _session
    task = read_task()
    if task is None or _session is not None:
        return
    _session = Session(task)
    _die_with_the_launcher()
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # says where a script hangs
    if task.data == "cold":
        _session.cold.watch()
    _hook_loader()
    _hook_optimizer()
    _hook_process_group()
    _hook_ends()
    os.register_at_fork(after_in_child=_start_afresh)


def _start_afresh() -> None:
    """A forked child keeps the hooks but not its parent's measurements. Files put out of the cache stay so."""
    assert _session is not None
    _session.forget()


def _die_with_the_launcher() -> None:
    if os.environ.get(LAUNCHER) != str(os.getppid()):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _hook_loader() -> None:
    from torch.utils.data import DataLoader

    from dally.profiler.inside.feed import Feed

    begin = DataLoader.__iter__

    def __iter__(self: Any) -> Any:  # noqa: N807
        if _session is None or _session.finished:
            return begin(self)
        return Feed(_session, self, begin)

    DataLoader.__iter__ = __iter__


def _hook_optimizer() -> None:
    from torch.optim import optimizer

    def before(which: Any, args: Any, kwargs: Any) -> None:
        if _session is not None:
            _session.update_begins(which)

    def after(which: Any, args: Any, kwargs: Any) -> None:
        if _session is not None:
            _session.step_ended(which)

    optimizer.register_optimizer_step_pre_hook(before)
    optimizer.register_optimizer_step_post_hook(after)


def _hook_process_group() -> None:
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return
    begin = dist.init_process_group

    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(backend, str) and "nccl" in backend and not torch.cuda.is_available():
            if _session is not None:
                _session.note("the script asks for NCCL; there is no GPU here, so gloo on CPUs was measured")
            backend = "gloo"
        return begin(backend, *args, **kwargs)

    dist.init_process_group = init_process_group
    parallel = torch.nn.parallel.DistributedDataParallel
    build = parallel.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        build(self, *args, **kwargs)
        if _session is not None and _session.ddp is None:
            _session.ddp = self

    parallel.__init__ = __init__


def _hook_ends() -> None:
    say = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        if _session is not None and not issubclass(kind, KeyboardInterrupt):
            place = traceback.extract_tb(where)
            last = next((frame for frame in reversed(place) if "dally/profiler" not in frame.filename), None)
            at = f"{last.filename}, line {last.lineno}" if last else ""
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
            # Of a child's traceback the last line says why.
            text = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"
            if issubclass(kind, EOFError):
                text += " (a profiled script gets no standard input)"
            _session.record.write("error", text=f"{kind.__name__}: {text}"[:500], where=at)
        say(kind, error, where)

    sys.excepthook = excepthook
    atexit.register(_at_exit, os.getpid())


def _at_exit(pid: int) -> None:
    if _session is not None and os.getpid() == pid:
        _session.record.write("end", steps=_session.steps, loaders=_session.loaders_seen)
