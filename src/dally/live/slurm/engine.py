"""The Slurm engine: every attempt is a job of Slurm's, submitted held, released, and watched in one listing of all.

One thread, the clerk, runs all of Slurm's commands, so that nobody else ever waits for the controller: it submits,
looks at the whole queue, compares it with what is wanted (comparing.py), and tells Slurm the difference, each kind in
one command. What is wanted stays wanted until a look shows that it is so; a command that was lost is given again. While
the controller does not answer nothing is concluded and nothing reported; what was asked for is done when it is back.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import socket
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dally.core.topology import Topology
from dally.live.engine import NotBegun, Order, Report, Standing
from dally.live.local import shim
from dally.live.local.folder import folders, prepare_state, sweep
from dally.live.slurm import batch
from dally.live.slurm.client import Slurm, SlurmAway, SlurmError, SlurmRefused
from dally.live.slurm.comparing import Comparing
from dally.live.slurm.folder import SlurmFolder
from dally.live.slurm.ordering import Mark, options, plain_order, read_mark, script
from dally.live.slurm.reading import Reservation, SlurmJob, SlurmNode
from dally.live.slurm.standing import reserved, standings
from dally.live.slurm.watched import Chores, SlurmRules, SlurmWatched, Submission

log = logging.getLogger("dally.slurm")

_SOON = 0.15  # seconds after which one looks again where something is about to change


class SlurmEngine:
    """Implements `live.engine.Engine` over a Slurm. The state must be on a file system that its nodes share."""

    shares = False  # a suspended job of Slurm keeps its GPUs
    even = True  # told an uneven gang, it gives the first node all it has, whatever tasks or nodes say (seen on 22.05)

    def __init__(self, state: Path | str, topology: Topology, rules: SlurmRules | None = None,
                 slurm: Slurm | None = None) -> None:  # fmt: skip
        self.rules, self.slurm, self.topology = rules or SlurmRules(), slurm or Slurm(), topology
        self.state = Path(state).absolute()
        self.attempts = self.state / "attempts"
        prepare_state(self.attempts)
        self.service = _service_id(self.state)
        self._programs = self._install()
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)  # for who observes
        self._work = threading.Condition(self._lock)  # for the clerk
        self._known = Comparing(self.attempts, self.service, self.rules, self._say)
        self._reports: deque[Report] = deque()
        self._woken = self._closed = self._hinted = False
        self._listings = 0
        self._stood: dict[str, Standing] = {}
        self._addresses: dict[str, str] = {}
        self._nodes: list[SlurmNode] = []
        self._reservations: list[Reservation] = []
        self._nodes_at = self._look_at = self._sweep_at = 0.0
        self._away_since: float | None = None
        self._socket = self._listen()
        self._clerk = threading.Thread(target=self._run, name="slurm-clerk", daemon=True)
        self._ear = threading.Thread(target=self._hear, name="slurm-hints", daemon=True)
        self._clerk.start()
        self._ear.start()

    def _install(self) -> Path:
        """The two programs that the nodes run, where they can see them."""
        folder = self.state / "bin"
        folder.mkdir(mode=0o755, exist_ok=True)
        for source in (shim.__file__, batch.__file__):
            new = folder / f".{Path(source).name}.{os.getpid()}"
            shutil.copyfile(source, new)
            new.replace(folder / Path(source).name)
        return folder / "batch.py"

    def _listen(self) -> socket.socket | None:
        """Hints from jobs on this very machine; on others it is the looks that count."""
        path = self.state / "engine.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            path.unlink(missing_ok=True)
            listener.bind(str(path))
            path.chmod(0o600)
            listener.settimeout(1.0)
        except OSError:
            listener.close()
            return None
        return listener

    # --- what it is told ------------------------------------------------------------------------------------------

    def start(self, order: Order) -> None:
        key = (order.job, order.attempt)
        folder = SlurmFolder(self.attempts, *key)
        with self._lock:
            try:
                taken = {int(watched.order.get("port", 0)) for watched in self._known.watched.values()}
                plain = plain_order(order, folder, state=self.state, addresses=self._addresses, taken=taken,
                                    log_size=self.rules.log_size, log_files=self.rules.log_files, srun=self.rules.srun)
                plain["silence"] = self.rules.silence
                folder.prepare(plain)
                mark = Mark(self.service, *key, plain["token"])
                text = script(self.rules.python or sys.executable, self._programs, folder.path)
                handed = Submission(text, options(plain, mark, order.name or order.job, folder, self.rules.options))
                self._known.watched[key] = SlurmWatched(folder, plain, handed)
            except FileExistsError:
                self.adopt(*key)
            except (OSError, ValueError) as error:
                self._known.watched.pop(key, None)
                folder.never()
                room = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE,
                                                                      errno.ENFILE, errno.ENOMEM, errno.ESTALE)
                self._say(NotBegun(*key, f"it cannot be started: {error}", void=room))
            self._work.notify()

    def stop(self, job: str, attempt: int, grace: float) -> None:
        key = (job, attempt)
        with self._lock:
            watched = self._known.watched.get(key)
            if watched is None:
                folder = SlurmFolder(self.attempts, *key)
                if key in self._known.ended or not (folder.path.exists() or key in self._known.seen):
                    return
                watched = self._known.watched[key] = SlurmWatched(folder, folder.order())
            self._ask(watched, grace)
            self._hinted = True
            self._work.notify()

    def _ask(self, watched: SlurmWatched, grace: float) -> None:
        """Let it leave, or never begin. The sooner of two wishes counts."""
        watched.asked = True
        if watched.folder.never():
            return
        until = time.monotonic() + (grace + self.rules.stubborn if grace > 0 else 0.0)
        if watched.deadline is None or until < watched.deadline:
            watched.deadline, watched.nudge = until, True
            watched.folder.wish(f"leave {grace!r}" if grace > 0 else "out")

    def suspend(self, job: str, attempt: int) -> None:
        """Never: `shares` says so."""

    def resume(self, job: str, attempt: int) -> None:
        """Never: `shares` says so."""

    def adopt(self, job: str, attempt: int) -> None:
        key = (job, attempt)
        with self._lock:
            watched = self._known.watched.get(key)
            if watched is None:
                folder = SlurmFolder(self.attempts, *key)
                watched = self._known.watched[key] = SlurmWatched(folder, folder.order())
            watched.anew()
            self._known.ended.discard(key)
            self._hinted = True
            self._work.notify()

    def forget(self, job: str, attempt: int) -> None:
        with self._lock:
            if (job, attempt) not in self._known.watched:
                SlurmFolder(self.attempts, job, attempt).forget()

    # --- what it tells --------------------------------------------------------------------------------------------

    def observe(self, patience: float) -> Sequence[Report]:
        until = time.monotonic() + max(0.0, patience)
        with self._lock:
            while not self._reports and not self._woken and not self._closed:
                left = until - time.monotonic()
                if left <= 0 or not self._news.wait(left):
                    break
            self._woken = False
            found = list(self._reports)
            self._reports.clear()
            return found

    def wake(self) -> None:
        with self._lock:
            self._woken = True
            self._news.notify_all()

    def _say(self, report: Report) -> None:
        self._reports.append(report)
        self._news.notify_all()

    def running(self) -> Mapping[str, int]:
        """As the last listing had it; waits for the first one, once."""
        with self._lock:
            if not self._listings:
                self._work.notify()
                self._news.wait_for(lambda: self._listings or self._away_since or self._closed,
                                    self.slurm.timeout + 5.0)  # fmt: skip
                self._known.seek_strangers = not self._listings
            found: dict[str, int] = {}
            for job, attempt in self._known.seen:
                found[job] = max(attempt, found.get(job, 0))
            return found

    # --- the clerk ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                now = time.monotonic()
                due = now >= self._look_at or (self._hinted and self._away_since is None)
                handed = [watched for watched in self._known.watched.values()
                          if watched.submission is not None and not watched.submission.tried]  # fmt: skip
                if not due and not handed:
                    self._work.wait(self._look_at - now)
                    continue
                self._hinted = False
            try:
                if handed and self._away_since is None:
                    self._submit(handed)
                self._look()
            except Exception:  # whatever is wrong with one look must not end all looking
                log.exception("a look at Slurm failed")
                self._look_at = time.monotonic() + 5.0

    def _submit(self, handed: list[SlurmWatched]) -> None:
        """Held, then released: between the two it is on record under which id."""
        fresh: list[SlurmWatched] = []
        for watched in handed:
            submission = watched.submission
            if submission is None or watched.asked:
                continue
            try:
                watched.id = self.slurm.submit(submission.script, submission.options)
            except SlurmAway as error:
                submission.tried = True
                self._note_away(error)
                break
            except SlurmRefused as error:
                with self._lock:
                    watched.submission, watched.cause = None, f"Slurm does not take it: {error}"
                    if watched.folder.never():
                        void = not _own_fault(str(error))
                        self._known.over(watched, NotBegun(*watched.key, watched.cause, void))
                log.warning("job %s, attempt %d: Slurm does not take it: %s", *watched.key, error)
                continue
            watched.folder.note_id(watched.id)
            with self._lock:
                watched.submission = None
            fresh.append(watched)
        wanted = [watched for watched in fresh if not watched.asked and watched.id is not None]
        with contextlib.suppress(SlurmError):  # the next look finds it held, and releases it
            self.slurm.release([watched.id for watched in wanted if watched.id is not None])
            for watched in wanted:
                watched.released = True

    def _look(self) -> None:
        """At everything, in one listing; then do what follows from it."""
        begin = time.monotonic()
        try:
            jobs = self.slurm.jobs()
            if begin >= self._nodes_at:
                self._nodes, self._reservations = self.slurm.nodes(), self.slurm.reservations()
                self._nodes_at = begin + self.rules.nodes_every
        except SlurmError as error:
            self._note_away(error)
            return
        took = time.monotonic() - begin
        if self._away_since is not None:
            log.info("Slurm answers again after %.0f s", time.monotonic() - self._away_since)
        chores = Chores()
        with self._lock:
            if self._away_since is not None:
                self._away_since = None
                for watched in self._known.watched.values():
                    watched.anew_after_silence()
            soon = self._known.compare(jobs, chores)
            self._stand(jobs)
            self._listings += 1
            self._news.notify_all()
        soon |= self._tell(chores)
        pause = max(_SOON, 2 * took) if soon else max(self.rules.poll, took / self.rules.share)
        self._look_at = begin + took + pause
        if begin >= self._sweep_at:
            self._sweep_at = begin + 600.0
            sweep(self.attempts, self.rules.keep)

    def _note_away(self, error: SlurmError) -> None:
        now = time.monotonic()
        with self._lock:
            if self._away_since is None:
                self._away_since = now
                log.warning("Slurm does not answer (%s); nothing is concluded from that", error)
            self._look_at = now + min(5.0, self.rules.poll + 0.2 * (now - self._away_since))
            self._news.notify_all()

    def _tell(self, chores: Chores) -> bool:
        told = False
        for command, those in ((self.slurm.release, chores.release), (self.slurm.nudge, chores.nudge)):
            if those and self._told(command, [watched.id for watched in those if watched.id is not None]):
                told = True
                for watched in those:
                    if command == self.slurm.release:
                        watched.released = True
                    else:
                        watched.nudge = False
        return (bool(chores.cancel) and self._told(self.slurm.cancel, chores.cancel)) or told

    def _told(self, command: Callable[[Sequence[int]], None], ids: Sequence[int]) -> bool:
        try:
            command(ids)
        except SlurmError as error:  # wanted all the same, and told again after the next look
            log.warning("Slurm did not do what it was told (%s)", error)
            return False
        return True

    def _stand(self, jobs: Sequence[SlurmJob]) -> None:
        """Machines whose standing has changed."""
        self._addresses = {node.name: node.address for node in self._nodes}
        uid = os.getuid()
        ours = {job.id for job in jobs if job.uid == uid and (mark := read_mark(job.comment)) is not None
                and mark.service == self.service}  # fmt: skip
        ours |= {watched.id for watched in self._known.watched.values() if watched.id is not None}
        held = reserved(self._reservations, time.time(), self.rules.before_reservations, self.rules.reservations)
        under_way = {node for watched in self._known.watched.values() for node in watched.nodes}
        for standing in standings(self.topology, self._nodes, jobs, ours, held, under_way):
            if self._stood.get(standing.machine) != standing:
                self._stood[standing.machine] = standing
                self._say(standing)

    def _hear(self) -> None:
        """Hints, and what jobs on this machine say of their steps. Believed only with the attempt's token."""
        while self._socket is not None and not self._closed:
            try:
                message = json.loads(self._socket.recv(65536))
                key = (message["job"], int(message["attempt"]))
            except TimeoutError:
                continue
            except OSError:
                return
            except (ValueError, KeyError, TypeError):
                continue
            with self._lock:
                watched = self._known.watched.get(key)
                if watched is None:
                    continue
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    if message["kind"] == "step":
                        watched.hear(message)
                        self._known.steps(watched, self.rules.steps_every)
                    else:
                        self._hinted = True
                        self._work.notify()

    # --- everything -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._news.notify_all()
            self._work.notify_all()
        self._clerk.join(self.slurm.timeout + 5.0)
        if self._socket is not None:
            self._socket.close()
        self._ear.join(2.0)

    def clear(self) -> None:
        with self._lock:
            for folder in folders(self.attempts):
                key = (folder.job, folder.attempt)
                if key in self._known.seen or key in self._known.watched:
                    self.stop(*key, 0.0)
            while self._known.watched or self._known.seen:
                self._hinted = True
                self._work.notify()
                self._news.wait(0.5)


def _service_id(state: Path) -> str:
    """Tells the jobs of this state from those of all others."""
    path = state / "slurm-service"
    with contextlib.suppress(FileExistsError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(file, uuid.uuid4().hex[:12].encode())
        os.fsync(file)
        os.close(file)
    for _ in range(100):  # somebody else may be about to write it
        if found := path.read_text().strip():
            return found
        time.sleep(0.01)
    raise OSError(errno.EIO, f"{path} is empty; remove it if no job of this state is in Slurm")


def _own_fault(said: str) -> bool:
    """Whether it is the job's fault that Slurm does not take it: it would not take it tomorrow either."""
    return "time limit" in said.lower()
