"""What is measured once, after the timed steps: a checkpoint, and the peak rate of the device."""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dally.profiler.inside.session import Session

_MATRIX = 1024
_PEAK_SECONDS = 0.3


def time_checkpoint(session: Session) -> None:
    """Save weights and optimiser state to disk and load them again, in the folder the script works in."""
    import torch

    module = session.ddp.module if session.ddp is not None else session.root
    if module is None:
        return
    state = {"model": module.state_dict(), "optimizer": session.optimizer.state_dict()}
    handle, path = tempfile.mkstemp(prefix=".dally-checkpoint-", dir=session.task.folder)
    try:
        began = time.perf_counter()
        with os.fdopen(handle, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        saved = time.perf_counter() - began
        size = os.path.getsize(path)  # noqa: PTH202
        began = time.perf_counter()
        torch.load(path, map_location=session.device)
        session.record.write("checkpoint", bytes=size, save=saved, load=time.perf_counter() - began)
    except Exception as error:
        session.note(f"no checkpoint could be timed: {error}")
    finally:
        os.unlink(path)  # noqa: PTH108


def peak_flops(device: Any) -> float:
    """The best rate of a large 32-bit matrix product here: the peak a CPU is held against."""
    import torch

    left = torch.randn(_MATRIX, _MATRIX, device=device)
    right = torch.randn(_MATRIX, _MATRIX, device=device)
    best, until = float("inf"), time.perf_counter() + _PEAK_SECONDS
    with torch.no_grad():
        torch.mm(left, right)
        while time.perf_counter() < until:
            began = time.perf_counter()
            torch.mm(left, right)
            best = min(best, time.perf_counter() - began)
    return float(2 * _MATRIX**3 / best)
