"""For training scripts: a loop that can be interrupted at any step and goes on from there, on other GPUs if need be.

    import dally.job

    for step in dally.job.loop(1000, model, optimizer):           # or:
    for epoch, (x, y) in dally.job.batches(loader, model, optimizer, epochs=10):

When the job is asked to leave, all ranks stop before the same step, save, and exit with 143, which says that nothing is
lost. The next attempt finds what was saved, random numbers and place in the data included. On the way the loop tells
dally how long a step takes. Without dally it is a plain loop, which saves if it is given a directory. docs/jobs.md.

Imports nothing of dally's, and of PyTorch only what the script has imported itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

SAVED = 143  # exit code: saved, and left because somebody asked
_AGREE_EVERY = 0.5  # seconds between two moments in which the ranks ask each other, unless steps take longer
_AGREE_STEPS = 50  # … and no more steps than this, since steps may become slower
_REPORT_EVERY = 5.0  # seconds between two reports, at least


def loop(steps: int, *objects: Any, save: Callable[[Path], object] | None = None,
         load: Callable[[Path], object] | None = None, every: int | None = None, every_seconds: float | None = None,
         directory: str | os.PathLike[str] | None = None, keep: int = 2,
         ranks: Literal["first", "all"] = "first") -> Iterator[int]:  # fmt: skip
    """The steps that are still to be done.

    `objects` have `state_dict` and `load_state_dict` (models, optimizers, schedulers, scalers); they are saved together
    with the state of the random number generators. Or `save(path)` writes one file and `load(path)` reads it again. The
    first rank saves for all; with `ranks="all"` each saves for itself. Saved is when the job is asked to leave, and
    `every` so many steps or `every_seconds`. The directory is the job's own unless one is given.
    """
    run = _Run(_Saver(objects, save, load, ranks), every, every_seconds, directory, keep)
    with run:
        for step in range(run.resume(), steps):
            run.boundary(step)
            yield step
            run.did(step)
        run.report(steps, always=True)


def batches(loader: Any, *objects: Any, epochs: int = 1, save: Callable[[Path], object] | None = None,
            load: Callable[[Path], object] | None = None, every: int | None = None, every_seconds: float | None = None,
            directory: str | os.PathLike[str] | None = None, keep: int = 2,
            ranks: Literal["first", "all"] = "first") -> Iterator[tuple[int, Any]]:  # fmt: skip
    """The epochs and batches that are still to be done, as (epoch, batch): for scripts that walk over a data loader.

    A resumed run goes to the same place in the same epoch: the sampler is told the epoch (`set_epoch`), random numbers
    are as they were when it began, the batches before that place are drawn and left out, and random numbers are then as
    they were there. Everything else is as in `loop`.
    """
    run = _Run(_Saver(objects, save, load, ranks), every, every_seconds, directory, keep)
    with run:
        step = run.resume()
        epoch, skip = run.saver.epoch, step - run.saver.epoch_step
        length = len(loader) if hasattr(loader, "__len__") else None
        for number in range(epoch, epochs):
            sampler: Any = getattr(loader, "sampler", None)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(number)
            run.saver.begin_epoch(number, step - skip)
            drawn = _skipped(iter(loader), skip)
            if skip:
                run.saver.restore_random()
                skip = 0
            while True:
                if step - run.saver.epoch_step != length:  # the end of an epoch is the begin of the next, or of nothing
                    run.boundary(step)  # before the next batch is drawn, so that drawing it is still to be done
                try:
                    batch = next(drawn)
                except StopIteration:
                    break
                yield number, batch
                run.did(step)
                step += 1
        run.report(step, always=True)


def exposed(share: float) -> None:
    """Say what share of a step is spent in communication that nothing hides, where the script has measured it."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a share lies between 0 and 1, not {share}")
    _said["exposed"] = share


_said: dict[str, float] = {}  # what the script says of itself


def _skipped(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    for _ in range(count):
        next(iterator)
    return iterator


class _Ranks:
    """The other processes of the job, as far as they can be asked: through torch.distributed, if the script uses it."""

    def __init__(self) -> None:
        self.rank, self.world = int(os.environ.get("RANK", "0")), 1
        self._torch: Any = sys.modules.get("torch")
        self._dist: Any = sys.modules.get("torch.distributed")
        self._group: Any = None
        if self._dist is not None and self._dist.is_available() and self._dist.is_initialized():
            self.rank, self.world = self._dist.get_rank(), self._dist.get_world_size()
            if self.world > 1:
                # Of its own, and on CPUs: nothing is mixed up with the script's own traffic, and no GPU waits for it.
                self._group = self._dist.new_group(backend="gloo")

    @property
    def strangers(self) -> bool:
        """Whether there are others that cannot be asked: then everybody saves and resumes for itself."""
        return self.world == 1 and int(os.environ.get("WORLD_SIZE", "1")) > 1

    def most(self, *values: float) -> list[float]:
        """The largest of each value over all ranks, the same for everybody; returns when all have come so far."""
        if self.world == 1:
            return list(values)
        tensor = self._torch.tensor(values, dtype=self._torch.float64)
        self._dist.all_reduce(tensor, op=self._dist.ReduceOp.MAX, group=self._group)
        return [float(value) for value in tensor.tolist()]


class _Saver:
    """Writes and reads what a checkpoint consists of, beside what the loop itself needs."""

    def __init__(self, objects: tuple[Any, ...], save: Callable[[Path], object] | None,
                 load: Callable[[Path], object] | None, ranks: Literal["first", "all"]) -> None:  # fmt: skip
        for thing in objects:
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                raise TypeError(f"{type(thing).__name__} has no state_dict and load_state_dict: give `save` and `load`")
        if (save is None) != (load is None):
            raise TypeError("`save` and `load` go together: what is saved must be read again")
        if ranks not in ("first", "all"):
            raise ValueError(f"ranks is 'first' or 'all', not {ranks!r}")
        self.objects, self._save, self._load, self.ranks = objects, save, load, ranks
        self.epoch, self.epoch_step = 0, 0  # where the epoch began, for `batches`
        self._epoch_random: Any = None  # random numbers when it did
        self._random: Any = None  # … and when this was saved

    def __bool__(self) -> bool:
        return bool(self.objects) or self._save is not None

    def begin_epoch(self, epoch: int, step: int) -> None:
        if self._epoch_random is not None and epoch == self.epoch and step == self.epoch_step:
            _set_random(self._epoch_random)  # resumed in the middle: the data are shuffled as they were
        self.epoch, self.epoch_step, self._epoch_random = epoch, step, _random()

    def restore_random(self) -> None:
        if self._random is not None:
            _set_random(self._random)

    def write(self, folder: Path, rank: int) -> None:
        """This rank's part."""
        mine: dict[str, Any] = {"random": _random(), "epoch_random": self._epoch_random}
        if self.ranks == "all" or rank == 0:
            if self._save is not None:
                self._save(folder / f"saved-{rank}")
            mine["objects"] = [thing.state_dict() for thing in self.objects]
        _dump(mine, folder / f"rank-{rank}")

    def read(self, folder: Path, rank: int, epoch: int, epoch_step: int) -> None:
        source = rank if self.ranks == "all" else 0
        if self._load is not None:
            self._load(folder / f"saved-{source}")
        mine = _undump(folder / f"rank-{rank}") if (folder / f"rank-{rank}").exists() else {}  # more ranks than before
        theirs = mine if source == rank else _undump(folder / f"rank-{source}")
        for thing, state in zip(self.objects, theirs["objects"], strict=True):
            thing.load_state_dict(state)
        self.epoch, self.epoch_step = epoch, epoch_step
        self._random, self._epoch_random = mine.get("random"), mine.get("epoch_random")
        self.restore_random()


class _Run:
    """One walk through a loop: where it is, when it saves, whether it was asked to leave."""

    def __init__(self, saver: _Saver, every: int | None, every_seconds: float | None,
                 directory: str | os.PathLike[str] | None, keep: int) -> None:  # fmt: skip
        where = directory if directory is not None else os.environ.get("DALLY_CHECKPOINT")
        self.saver, self.every, self.every_seconds, self.keep = saver, every, every_seconds, max(1, keep)
        self.ranks = _Ranks()
        self.root = Path(where) if where and saver else None
        if self.root is not None and self.ranks.strangers:
            self.root = self.root / f"rank-{self.ranks.rank}"
        self.writes = self.ranks.rank == 0 or self.ranks.strangers  # who makes and names the folder
        self.asked = False
        self.seconds = 0.0  # spent in steps, over all attempts
        self.saved_step, self.saved_seconds = 0, 0.0
        self._times: deque[float] = deque(maxlen=50)
        self._began = self._last_save = self._last_report = time.monotonic()
        self._agree_at: int | None = None
        self._reported: float | None = None
        self._before: Any = None

    # --- being asked to leave -------------------------------------------------------------------------------------

    def __enter__(self) -> _Run:
        """Only a job that can save listens: others are ended by the signal itself, and do not claim to have saved."""
        if self.root is not None:
            try:
                self._before = signal.signal(_leave_signal(), self._ask)
            except ValueError:
                print("dally.job: not in the main thread: the job cannot be asked to leave", file=sys.stderr)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 where: TracebackType | None) -> None:  # fmt: skip
        if self._before is not None and kind is not SystemExit:
            signal.signal(_leave_signal(), self._before)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True
        if callable(self._before):
            self._before(number, frame)

    # --- steps ----------------------------------------------------------------------------------------------------

    def boundary(self, step: int) -> None:
        """So many steps are done. Save if it is time to, and leave if somebody in the gang was asked to."""
        if self.root is not None:
            leave, due = self._agree(step)
            if leave:
                self._leave(step)
            elif due or (self.every is not None and step % self.every == 0):
                self._save(step)
        self._began = time.monotonic()

    def _agree(self, step: int) -> tuple[bool, bool]:
        """Whether to leave, and whether to save by the clock: answered alike in all ranks, at the same step."""
        late = self.every_seconds is not None and time.monotonic() - self._last_save >= self.every_seconds
        if self.ranks.world == 1:
            return self.asked, late
        if self._agree_at is not None and step < self._agree_at:
            return False, False
        grace = float(os.environ.get("DALLY_GRACE", "10"))
        pause = max(1.0, min(_AGREE_EVERY, grace / 20) / max(1e-9, self._step_time())) if self._times else 1.0
        asked, soonest, due = self.ranks.most(float(self.asked), -float(min(_AGREE_STEPS, int(pause))), float(late))
        self._agree_at = step + int(-soonest)
        return asked > 0, due > 0

    def did(self, step: int) -> None:
        took = time.monotonic() - self._began
        self.seconds += took
        self._times.append(took)
        self.report(step + 1)

    def _step_time(self) -> float:
        """The median: a step in which the job was suspended, or compiled something, says little."""
        return sorted(self._times)[len(self._times) // 2]

    # --- saving ---------------------------------------------------------------------------------------------------

    def resume(self) -> int:
        """Take up the newest checkpoint; the step to go on with."""
        if self.root is None:
            return 0
        newest = _newest(self.root) if self.writes else -1
        (step,) = (int(value) for value in self.ranks.most(float(newest)))
        if step < 0:
            return 0
        folder = self.root / f"step-{step}"
        about = json.loads((folder / "about.json").read_text())
        self.saver.read(folder, self._file_rank, about["epoch"], about["epoch_step"])
        self.seconds = self.saved_seconds = float(about["seconds"])
        self.saved_step = step
        return step

    @property
    def _file_rank(self) -> int:
        return 0 if self.ranks.strangers else self.ranks.rank

    def _save(self, step: int) -> bool:
        """Whole or not at all: the folder gets its name when all ranks have written. False if one could not."""
        if step == self.saved_step:
            return True  # nothing was done since
        assert self.root is not None
        new = self.root / f".new-{step}"
        error = self._try(self._make, new) if self.writes else None
        self.ranks.most(0.0)
        error = error or self._try(self.saver.write, new, self._file_rank)
        (failed,) = self.ranks.most(float(error is not None))
        if not failed and self.writes:
            error = self._try(self._name, new, step)
            failed = float(error is not None)
        (failed,) = self.ranks.most(failed)
        self._last_save = time.monotonic()
        if failed:
            why = error or "another rank failed"
            print(f"dally.job: step {step} could not be saved: {why}", file=sys.stderr, flush=True)
            return False
        self.saved_step, self.saved_seconds = step, self.seconds
        self.report(step, always=True)
        return True

    @staticmethod
    def _try(what: Callable[..., None], *arguments: Any) -> Exception | None:
        try:
            what(*arguments)
        except Exception as error:  # the script's own `save` may raise anything, and the other ranks must hear of it
            return error
        return None

    def _make(self, new: Path) -> None:
        for stale in new.parent.glob(".new-*"):
            _remove(stale)
        new.mkdir(parents=True)

    def _name(self, new: Path, step: int) -> None:
        about = {"step": step, "seconds": self.seconds, "world": self.ranks.world, "epoch": self.saver.epoch,
                 "epoch_step": self.saver.epoch_step}  # fmt: skip
        (new / "about.json").write_text(json.dumps(about))
        for path in (*(path for path in new.rglob("*") if path.is_file()), new):
            _fsync(path)
        final = new.parent / f"step-{step}"
        _remove(final)
        new.rename(final)
        _fsync(final.parent)
        for old in sorted(_steps(final.parent))[: -self.keep]:
            _remove(final.parent / f"step-{old}")

    def _leave(self, step: int) -> None:
        if not self._save(step):
            sys.exit(1)
        print(f"dally.job: saved after {step} steps, leaving as asked", file=sys.stderr, flush=True)
        sys.exit(SAVED)

    # --- telling --------------------------------------------------------------------------------------------------

    def report(self, steps: int, always: bool = False) -> None:
        """Tell dally how long a step takes and what is saved. If that fails, nothing is lost."""
        if not self.writes or self.ranks.rank != 0 or "DALLY_JOB" not in os.environ or not self._times:
            return
        now = time.monotonic()
        first = self._reported is None and len(self._times) >= 3
        if not (always or first or now - self._last_report >= _REPORT_EVERY):
            return
        self._last_report, self._reported = now, self._step_time()
        message = {"kind": "step", "job": os.environ["DALLY_JOB"], "attempt": int(os.environ.get("DALLY_ATTEMPT", "1")),
                   "token": os.environ.get("DALLY_TOKEN"), "step_time": self._reported, "steps": steps,
                   "saved_steps": self.saved_step, "saved_seconds": self.saved_seconds, **_said}  # fmt: skip
        data = json.dumps(message).encode()
        try:
            _note(data)
            _send(data)
        except OSError:
            pass


def _leave_signal() -> signal.Signals:
    return signal.Signals["SIG" + os.environ.get("DALLY_SIGNAL", "TERM").upper().removeprefix("SIG")]


def _note(data: bytes) -> None:
    path = os.environ.get("DALLY_PROGRESS")
    if path:
        Path(path + ".new").write_bytes(data)
        Path(path + ".new").replace(path)


def _send(data: bytes) -> None:
    path = os.environ.get("DALLY_REPORT")
    if path:
        import socket

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(data, path)


def _steps(root: Path) -> list[int]:
    """The steps of whole checkpoints."""
    numbers = (path.name.removeprefix("step-") for path in root.glob("step-*") if (path / "about.json").exists())
    return [int(number) for number in numbers if number.isdecimal()]


def _newest(root: Path) -> int:
    return max(_steps(root), default=-1)


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _fsync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


# --- what Python, NumPy and PyTorch draw from -------------------------------------------------------------------------


def _random() -> dict[str, Any]:
    """The state of every generator the script can have used."""
    import random

    found: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        found["numpy"] = numpy.random.get_state()
    if torch is not None:
        found["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            found["cuda"] = torch.cuda.get_rng_state_all()
    return found


def _set_random(state: dict[str, Any]) -> None:
    import random

    random.setstate(state["python"])
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy" in state:
        numpy.random.set_state(state["numpy"])
    if torch is not None and "torch" in state:
        torch.set_rng_state(state["torch"])
        if "cuda" in state and torch.cuda.device_count() == len(state["cuda"]):
            torch.cuda.set_rng_state_all(state["cuda"])


def _dump(what: Any, path: Path) -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.save(what, path)
    else:
        import pickle

        path.write_bytes(pickle.dumps(what))


def _undump(path: Path) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.load(path, map_location="cpu", weights_only=False)  # the job's own file, in its own folder
    import pickle

    return pickle.loads(path.read_bytes())


__all__ = ["SAVED", "batches", "exposed", "loop"]
