"""The course of one profiled run inside one process: warm-up, timed windows, silent steps, anatomy, trace, end.

A step ends where the script's optimiser has stepped. Every rank counts steps in the same way and so changes from one
part of the course to the next in the same step as the others.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from dally.profiler.inside.cache import ColdFiles, bytes_read
from dally.profiler.inside.clock import Clock, clock_for
from dally.profiler.inside.record import Record
from dally.profiler.inside.task import Task

if TYPE_CHECKING:
    from dally.profiler.inside.feed import Feed

_HEARTBEAT = 0.5  # seconds between signs of life
_SETTLE = 2  # steps after a change of mode that are not counted


class Finished(SystemExit):
    """Everything is measured: the script ends here as if it had been done."""


class Interval(NamedTuple):
    """From the end of one step to the end of the next. Clean: nothing but what every step does happened in it."""

    start: Any
    end: Any
    waited: float
    clean: bool


class Session:
    """Hooks call `fed`, `waited`, `update_begins` and `step_ended`; the course does the rest."""

    def __init__(self, task: Task) -> None:
        self.task, self.record, self.cold = task, Record(task.folder), ColdFiles()
        self.forget()

    def forget(self) -> None:
        """As at the beginning: for the first process, and for every child it forks."""
        self.steps = 0
        self.loaders_seen = 0
        self.finished = False
        self.device: Any = None
        self.ddp: Any = None
        self.root: Any = None  # the outermost module that is called
        self.optimizer: Any = None
        self.clock: Clock | None = None
        self.update_seconds: list[tuple[Any, Any]] = []
        self._update_began: Any = None
        self._feed: Feed | None = None
        self._trained_on: dict[int, Any] = {}  # loaders that every step so far drew from, by identity
        self._drawn: dict[int, Any] = {}  # loaders this step drew from
        self._starts = 0  # epochs begun in this step
        self._fewest_starts: int | None = None  # … in any step so far: a step may begin an epoch each time
        self._wait = 0.0
        self._samples = 0
        self._last: Any = None
        self._said = 0.0
        self._part = "warm-up"
        self._course: Generator[None, Interval, None] | None = None
        self.kept: list[dict[str, Any]] = []
        self.gathered: list[Any] = []

    # What hooks report

    def note(self, text: str) -> None:
        self.record.write("note", text=text)

    def fed(self, feed: Feed, *, starts: bool = False, samples: int | None = None) -> None:
        """A loader was begun or gave a batch."""
        if starts:
            self.loaders_seen += 1
            self._starts += 1
        else:
            self._drawn[id(feed.loader)] = feed.loader
        self._feed = feed
        self._samples += samples or 0

    def called(self, arguments: Any) -> None:
        """The model was called in a script without a loader: what it was given are the samples of the step."""
        from dally.profiler.inside.feed import samples

        self._samples += samples(arguments) or 0

    def waited(self, seconds: float) -> None:
        self._wait += seconds

    def update_begins(self, optimizer: Any) -> None:
        if self.clock is not None and optimizer is self.optimizer:
            self._update_began = self.clock.mark()

    def step_ended(self, optimizer: Any) -> None:
        if self.finished:
            raise Finished(0)
        if self.optimizer is None:
            self._first_step(optimizer)
        if optimizer is not self.optimizer:
            return
        assert self.clock is not None and self._course is not None
        now = self.clock.mark()
        self.steps += 1
        if self._update_began is not None:
            self.update_seconds.append((self._update_began, now))
        interval = Interval(self._last, now, self._wait, self._last is not None and self._usual())
        self._batch_per_step = self._samples
        self._heartbeat()
        try:
            self._course.send(interval)
        except StopIteration:
            self.finished = True
            self.record.write("done", steps=self.steps)
            raise Finished(0) from None
        self._wait, self._samples, self._starts, self._drawn = 0.0, 0, 0, {}
        self._last = self.clock.mark()  # what was written down meanwhile belongs to no step

    def _usual(self) -> bool:
        """Whether this step drew from the loaders that steps draw from and no other (one for validation), and began
        no more epochs than steps do."""
        common = {key: loader for key, loader in self._trained_on.items() if key in self._drawn}
        self._trained_on = common or dict(self._drawn)
        first = self._fewest_starts is None
        self._fewest_starts = self._starts if self._fewest_starts is None else min(self._fewest_starts, self._starts)
        return not first and self._starts <= self._fewest_starts and self._drawn.keys() <= self._trained_on.keys()

    # The course

    def _first_step(self, optimizer: Any) -> None:
        import torch
        import torch.distributed as dist

        self.optimizer = optimizer
        parameter = next(p for group in optimizer.param_groups for p in group["params"])
        self.device = parameter.device
        self.clock = clock_for(self.device)
        self.root = model_of(optimizer)
        if not self.loaders_seen and self.root is not None:
            self.root.register_forward_pre_hook(lambda _, args, named: self.called((args, named)), with_kwargs=True)
        joined = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if joined else int(os.environ.get("RANK", "0"))
        self.world = dist.get_world_size() if joined else 1
        self.record.write(
            "begin",
            rank=self.rank,
            world=self.world,
            backend=dist.get_backend() if joined else None,
            device=str(self.device.type),
            gpu=_gpu_name(self.device),
            threads=torch.get_num_threads(),
            torch=str(torch.__version__),
            ddp=self.ddp is not None,
            loaders=self.loaders_seen,
            optimizer=type(optimizer).__name__,
        )
        self._course = self._measure()
        next(self._course)

    def _measure(self) -> Generator[None, Interval, None]:
        task = self.task
        first = yield from self._skip(task.warmup)
        del first
        workers = max((getattr(loader, "num_workers", 0) for loader in self._trained_on.values()), default=None)
        self.record.write("batch", samples=self._batch_per_step, loaders=self.loaders_seen, workers=workers)
        for number in range(task.repeats):
            self._part = f"window {number + 1} of {task.repeats}"
            yield from self._window("window", task.steps)
        if task.silent and self.ddp is not None and self.world > 1:
            self._part = "steps without exchange"
            self.ddp.require_backward_grad_sync = False
            yield from self._skip(_SETTLE)
            for _ in range(task.repeats):
                yield from self._window("silent", max(3, task.steps // 2))
            self.ddp.require_backward_grad_sync = True
            yield from self._skip(_SETTLE)
        if task.anatomy:
            from dally.profiler.inside.anatomy import anatomy

            self._part = "layers"
            try:
                yield from anatomy(self, task.anatomy)
            except Exception as error:  # what a model may be has no end; the script must not fail by it
                self.note(f"layers could not be timed: {type(error).__name__}: {error}"[:300])
        if task.trace is not None:
            self._part = "trace"
            yield from self._traced(task.trace)
        self._say_resources()
        if task.gather and self.world > 1:
            import torch.distributed as dist

            self.gathered = [None] * self.world
            dist.all_gather_object(self.gathered, self.kept)
        if task.checkpoint and self.rank == 0:
            from dally.profiler.inside.extras import time_checkpoint

            self._part = "checkpoint"
            self._heartbeat(force=True)
            time_checkpoint(self)

    def _skip(self, steps: int) -> Generator[None, Interval, Interval | None]:
        interval = None
        for _ in range(steps):
            interval = yield
        return interval

    def _window(self, event: str, steps: int) -> Generator[None, Interval, None]:
        assert self.clock is not None
        self.clock.settle()
        feed = self._feed
        pids = feed.pids() if feed is not None else [os.getpid()]
        read, busy, began = bytes_read(pids), _cpu_seconds(), time.perf_counter()
        intervals: list[Interval] = []
        for _ in range(steps):
            intervals.append((yield))
        self.clock.settle()
        took = time.perf_counter() - began
        clean = [each for each in intervals if each.clean]
        if not clean:
            return
        read_now = bytes_read(pids)
        times = [self.clock.between(each.start, each.end) for each in clean]
        self._keep(
            event,
            seconds=sum(times) / len(times),
            times=[round(each, 6) for each in times],
            steps=len(clean),
            wait=sum(each.waited for each in clean) / len(clean),
            cpu=(_cpu_seconds() - busy) / took if took > 0 else 0.0,
            read=None if read is None or read_now is None else (read_now - read) / steps,
        )

    def _keep(self, event: str, **fields: Any) -> None:
        self.kept.append({"event": event, **fields})
        self.record.write(event, **fields)

    def _traced(self, path: str) -> Generator[None, Interval, None]:
        from torch.profiler import profile

        tracer: Any = profile()
        tracer.__enter__()
        yield from self._skip(2)
        assert self.clock is not None
        self.clock.settle()
        tracer.__exit__(None, None, None)
        if self.rank == 0:
            tracer.export_chrome_trace(path)
            self.record.write("trace", path=path)

    def _say_resources(self) -> None:
        import torch

        if self.device.type == "cuda":
            memory = int(torch.cuda.max_memory_allocated(self.device))
        else:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.record.write("resources", memory=memory, device=self.device.type)

    def _heartbeat(self, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self._said >= _HEARTBEAT:
            self._said = now
            self.record.write("alive", steps=self.steps, part=self._part)


def model_of(optimizer: Any) -> Any:
    """The outermost module that holds what the optimiser trains, without what only wraps it; None where there is none.

    Looked for among all objects, since a hook on every module's call would be compiled into compiled models.
    """
    import gc

    from torch import nn

    wanted = {id(p) for group in optimizer.param_groups for p in group["params"]}
    wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    best, most = None, (0, 0)
    for thing in gc.get_objects():
        kind = type(thing)  # never asked of the thing itself: a lazy proxy may wake up
        if not issubclass(kind, nn.Module) or issubclass(kind, wrappers) or "_orig_mod" in thing._modules:
            continue
        holds = sum(id(p) in wanted for p in thing.parameters())
        depth = (holds, sum(1 for _ in thing.modules()))  # whoever is around another has more modules
        if holds and depth > most:
            best, most = thing, depth
    return best


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _gpu_name(device: Any) -> str | None:
    import torch

    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
