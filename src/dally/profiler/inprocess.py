"""`profile(step, data)`: the measurements for a training loop that no hook can see, called from the script itself.

from dally.profiler import profile, write_profile
found = profile(lambda batch: train_on(model, batch), loader, model=model)
write_profile(found, Path("net.yaml"))
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dally.core.errors import UserError
from dally.profiler.document import Profile
from dally.profiler.inside.cache import ColdFiles, bytes_read
from dally.profiler.inside.clock import Clock, clock_for
from dally.profiler.inside.feed import moved, samples
from dally.profiler.inside.session import Interval, Session
from dally.profiler.inside.task import Task
from dally.profiler.measure import Found, Wish
from dally.profiler.readings import Records

Step = Callable[[Any], Any]
_cold: ColdFiles | None = None  # an audit hook stays for the life of a process, so there is one


class _Memory:
    """A record that is kept in memory."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def write(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, "at": time.time(), **fields})


def profile(
    step: Step,
    data: Iterable[Any],
    *,
    model: Any = None,
    name: str = "step",
    steps: int = 20,
    warmup: int = 5,
    repeats: int = 3,
    anatomy: int = 5,
) -> Profile:
    """Call `step(batch)` on batches of `data`, cold, cached and synthetic, and say where the time goes.

    `data` is iterated over twice; `model` (a module, or DDP around one) gives the layer table. In a process group
    every rank calls this and every rank gets the same profile; what one device alone would do is then not measured.
    """
    if steps < 1 or warmup < 1 or repeats < 1:
        raise UserError("a profile needs at least one step, one repeat and one step to warm up")
    found = Found(Wish(["python", name], steps=steps, warmup=warmup, repeats=repeats, name=name))
    course = _Course(step, model, steps, warmup, repeats)
    course.real(data, "cold", found)
    course.real(data, "cached", found)
    course.synthetic(anatomy, found)
    result = found.profile()
    if result is None:
        raise UserError("nothing could be measured: the data ended before a single window was full")
    return result


class _Course:
    def __init__(self, step: Step, model: Any, steps: int, warmup: int, repeats: int) -> None:
        import torch.distributed as dist

        self.step, self.steps, self.warmup, self.repeats = step, steps, warmup, repeats
        self.model = model
        self.ddp = model if hasattr(model, "require_backward_grad_sync") else None
        parameter = next(iter(model.parameters()), None) if model is not None else None
        self.device = parameter.device if parameter is not None else _default_device()
        self.clock: Clock = clock_for(self.device)
        joined = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if joined else 0
        self.world = dist.get_world_size() if joined else 1
        self.first: Any = None

    def real(self, data: Iterable[Any], kind: str, found: Found) -> None:
        record = self._begin()
        if kind == "cold":
            os.sync()
            _cold_files().begin()
        try:
            batches = iter(data)
            full = self._windows(record, batches, "window")
        finally:
            _cold_files().active = False
        if not full:
            found.notes.append(f"the data ended before all windows of the {kind} run were full")
        found.records.setdefault(kind, []).append(self._gather(record))

    def synthetic(self, anatomy: int, found: Found) -> None:
        if self.first is None:
            return
        batch = moved(self.first, self.device)
        record = self._begin()
        self._windows(record, _forever(batch), "window")
        if self.ddp is not None and self.world > 1:
            self.ddp.require_backward_grad_sync = False
            self._windows(record, _forever(batch), "silent")
            self.ddp.require_backward_grad_sync = True
        if self.model is not None and anatomy:
            self._anatomy(record, batch, anatomy)
        gathered = self._gather(record)
        found.records.setdefault("all", []).append(gathered)
        if self.world == 1:
            found.records.setdefault("one", []).append(gathered)

    def _begin(self) -> _Memory:
        import torch

        record = _Memory()
        record.write(
            "begin",
            rank=self.rank,
            world=self.world,
            backend=None,
            device=self.device.type,
            gpu=torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None,
            threads=torch.get_num_threads(),
            torch=str(torch.__version__),
            loaders=1,
            optimizer="",
        )
        return record

    def _windows(self, record: _Memory, batches: Iterator[Any], event: str) -> bool:
        """Warm-up and windows; False where the batches ended too early."""
        for _ in range(self.warmup):
            if self._one(batches) is None:
                return False
        record.write("batch", samples=samples(self.first) or 0, loaders=1)
        for _ in range(self.repeats):
            self.clock.settle()
            read, waits, began = bytes_read([os.getpid()]), 0.0, self.clock.mark()
            busy = time.process_time()
            wall = time.perf_counter()
            for _ in range(self.steps):
                waited = self._one(batches)
                if waited is None:
                    return False
                waits += waited
            ended = self.clock.mark()
            self.clock.settle()
            now = bytes_read([os.getpid()])
            record.write(
                event,
                seconds=self.clock.between(began, ended) / self.steps,
                steps=self.steps,
                wait=waits / self.steps,
                cpu=(time.process_time() - busy) / max(1e-9, time.perf_counter() - wall),
                read=None if read is None or now is None else (now - read) / self.steps,
            )
        return True

    def _one(self, batches: Iterator[Any]) -> float | None:
        began = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration:
            return None
        waited = time.perf_counter() - began
        if self.first is None:
            self.first = batch
        self.step(batch)
        return waited

    def _anatomy(self, record: _Memory, batch: Any, steps: int) -> None:
        """The layer table by the same code that hooks use, driven from here."""
        from torch.optim import optimizer

        from dally.profiler.inside.anatomy import anatomy

        session = Session(Task(folder=""))
        session.record = record  # type: ignore[assignment]
        session.clock, session.device = self.clock, self.device
        session.ddp, session.root = self.ddp, None if self.ddp is not None else self.model
        began: list[Any] = []
        handles = [
            optimizer.register_optimizer_step_pre_hook(lambda *_: began.append(self.clock.mark())),
            optimizer.register_optimizer_step_post_hook(
                lambda *_: session.update_seconds.append((began.pop(), self.clock.mark()))
            ),
        ]
        course = anatomy(session, steps)
        try:
            next(course)
            while True:
                start = self.clock.mark()
                self.step(batch)
                course.send(Interval(start, self.clock.mark(), 0.0, True))
        except StopIteration:
            pass
        finally:
            for handle in handles:
                handle.remove()

    def _gather(self, record: _Memory) -> Records:
        if self.world == 1:
            return {os.getpid(): record.events}
        import torch.distributed as dist

        everybody: list[Any] = [None] * self.world
        dist.all_gather_object(everybody, record.events)
        return dict(enumerate(everybody))


def _forever(batch: Any) -> Iterator[Any]:
    while True:
        yield batch


def _default_device() -> Any:
    import torch

    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _cold_files() -> ColdFiles:
    global _cold
    if _cold is None:
        _cold = ColdFiles()
        _cold.watch()
    return _cold
