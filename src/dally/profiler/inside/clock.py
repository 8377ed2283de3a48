"""Moments in a step: wall clock on a CPU, events in the stream on a GPU, so that marking does not make it wait."""

from __future__ import annotations

import time
from typing import Any, Protocol


class Clock(Protocol):
    """Marks moments; differences are asked for after `settle`."""

    def mark(self) -> Any: ...

    def between(self, earlier: Any, later: Any) -> float: ...

    def settle(self) -> None: ...


class WallClock:
    """For CPUs: work is done when the call returns."""

    def mark(self) -> float:
        return time.perf_counter()

    def between(self, earlier: float, later: float) -> float:
        return later - earlier

    def settle(self) -> None:
        return


class CudaClock:
    """For NVIDIA GPUs: events in the current stream, read after the device is synchronised."""

    def __init__(self, device: Any) -> None:
        import torch

        self._torch, self._device = torch, device

    def mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._torch.cuda.current_stream(self._device))
        return event

    def between(self, earlier: Any, later: Any) -> float:
        return float(earlier.elapsed_time(later)) / 1e3

    def settle(self) -> None:
        self._torch.cuda.synchronize(self._device)


def clock_for(device: Any) -> Clock:
    return CudaClock(device) if getattr(device, "type", "cpu") == "cuda" else WallClock()
