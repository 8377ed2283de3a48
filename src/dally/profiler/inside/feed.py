"""What a profiled script gets when it iterates over a DataLoader: its own batches, timed, or one batch for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dally.profiler.inside.session import Session

_KEPT = "_dally_batch"  # on a loader: the batch it gives for ever
_UNKNOWN_LENGTH = 50  # batches of a loader without a length, where nobody trains on it


class Feed:
    """Stands in for the loader's own iterator; what else is asked of it goes there."""

    def __init__(self, session: Session, loader: Any, begin: Callable[[Any], Iterator[Any]]) -> None:
        self._session, self.loader = session, loader
        self._real: Any = None
        self._batch: Any = None
        self._count = 0
        self._steps_before = session.steps
        self._synthetic = session.task.data == "synthetic"
        if session.task.data == "cold":
            session.cold.begin()  # before the loader's workers are forked, so that they inherit it
        session.fed(self, starts=True)
        started = time.perf_counter()
        if self._synthetic and _KEPT in vars(loader):
            self._batch = vars(loader)[_KEPT]  # begun again: the same data are resident already
        else:
            self._real = begin(loader)
            if self._synthetic:
                self._batch = vars(loader)[_KEPT] = self._first_batch()
        session.waited(time.perf_counter() - started)

    def _first_batch(self) -> Any:
        """One real batch; the workers that would go on loading beside the measurement are sent home."""
        batch = next(self._real)
        shutdown = getattr(self._real, "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()
        if getattr(self.loader, "_iterator", None) is not None:
            self.loader._iterator = None
        self._real = None
        wanted = self._session.task.batch
        return batch if wanted is None else resized(batch, wanted)

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        session = self._session
        if self._synthetic:
            if self._count >= self._length() and session.steps == self._steps_before:
                raise StopIteration  # nobody trains on this one: a loader for validation ends as usual
            if session.device is not None and session.device.type != "cpu":
                self._batch = moved(self._batch, session.device)
            batch = self._batch
            session.fed(self, samples=samples(batch))
        else:
            started = time.perf_counter()
            try:
                batch = next(self._real)
            finally:
                session.waited(time.perf_counter() - started)
            session.fed(self, samples=samples(batch))
        self._count += 1
        return batch

    def _length(self) -> int:
        try:
            return len(self.loader)
        except TypeError:
            return _UNKNOWN_LENGTH

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def pids(self) -> list[int]:
        """This process and the loader's workers."""
        workers = getattr(self._real, "_workers", None) or ()
        return [os.getpid(), *(worker.pid for worker in workers if worker.pid)]


def walk(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same nest of lists, tuples and mappings with `change` applied to every tensor."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        inside = {key: walk(each, change) for key, each in value.items()}
        try:
            return type(value)(inside)  # type: ignore[call-arg]
        except TypeError:
            return inside
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(walk(each, change) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(walk(each, change) for each in value)
    return value


def samples(batch: Any) -> int | None:
    """The first dimension of the first tensor in a batch."""
    found: list[int] = []

    def look(tensor: Any) -> Any:
        if tensor.dim() and not found:
            found.append(int(tensor.shape[0]))
        return tensor

    walk(batch, look)
    return found[0] if found else None


def resized(batch: Any, wanted: int) -> Any:
    """The batch cut or repeated to `wanted` samples, so that one device has as much to do as each of many."""
    have = samples(batch)
    if not have or have == wanted:
        return batch

    def change(tensor: Any) -> Any:
        if not tensor.dim() or tensor.shape[0] != have:
            return tensor
        times = -(-wanted // have)
        return tensor.repeat(times, *[1] * (tensor.dim() - 1))[:wanted].contiguous()

    return walk(batch, change)


def moved(batch: Any, device: Any) -> Any:
    return walk(batch, lambda tensor: tensor.to(device) if tensor.device != device else tensor)
