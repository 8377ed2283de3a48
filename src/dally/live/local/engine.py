"""The local engine: starts a shim for every attempt, tells it what to do, and reads what became of it.

All that it knows is in the attempts' folders (folder.py); what it holds in memory only makes it quick. Three things
tell it where to look: hints that shims and jobs send to its socket, the end of a shim's process, and the clock. Each
may fail and costs nothing but time then.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import py_compile
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dally.live.engine import Began, Exited, NotBegun, Order, Report, Vanished
from dally.live.local import cgroups, environment, leftovers, shim
from dally.live.local.folder import ENDED, AttemptFolder, Look, Stage, folders, prepare_state, sweep
from dally.live.local.watched import EngineRules as EngineRules
from dally.live.local.watched import Watched

Key = tuple[str, int]
_ALIVE = (Stage.STARTING, Stage.RUNNING)


class LocalEngine:
    """Implements `live.engine.Engine`. Several may look at one state; each attempt is begun by one of them at most."""

    shares = True
    even = False

    def __init__(self, state: Path | str, rules: EngineRules | None = None,
                 devices: Mapping[str, Sequence[str]] | None = None) -> None:  # fmt: skip
        self.rules, self.devices = rules or EngineRules(), devices or {}
        self.state = Path(state).absolute()
        self.attempts = self.state / "attempts"
        prepare_state(self.attempts)
        self._lock = threading.RLock()
        self._watched: dict[Key, Watched] = {}
        self._reports: deque[Report] = deque()
        self._ended: set[str] = set()  # folders of attempts that are over for good
        self._look_at: set[Key] = set()  # hints
        self._next_look = 0.0
        self._next_sweep = 0.0
        self._events = select.epoll()
        self._wakes, self._waker = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(self._waker, False)
        self._events.register(self._wakes, select.EPOLLIN)
        self._handles: dict[int, Key] = {}
        self._to_reap: list[subprocess.Popen[bytes]] = []  # shims that are about to end
        self._socket = self._listen()
        self._shim = self._compiled()
        self._cgroup = cgroups.own_cgroup()
        self._closed = False

    def _listen(self) -> socket.socket | None:
        path = self.state / "engine.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            path.unlink(missing_ok=True)
            listener.bind(str(path))
            path.chmod(0o600)
            listener.setblocking(False)
            self._events.register(listener, select.EPOLLIN)
        except OSError:  # its path is too long, or there is no room: then it looks more often
            listener.close()
            return None
        return listener

    def _compiled(self) -> str:
        """The shim, ready to be executed: a script is compiled anew every time."""
        compiled = self.state / "shim.pyc"
        try:
            py_compile.compile(shim.__file__, str(compiled), doraise=True)
        except (OSError, py_compile.PyCompileError):
            return shim.__file__
        return str(compiled)

    # --- what it is told ------------------------------------------------------------------------------------------

    def start(self, order: Order) -> None:
        key = (order.job, order.attempt)
        folder = AttemptFolder(self.attempts, *key)
        with self._lock:
            try:
                plain = self._plain(order, folder)
                folder.prepare(plain)
                watched = self._watched[key] = Watched(folder, plain)
                watched.process = self._spawn(folder)
            except FileExistsError:
                self.adopt(*key)
            except (OSError, ValueError) as error:
                self._watched.pop(key, None)
                try:
                    folder.make_void()
                except OSError:
                    folder.remove()  # nobody else was told to start it
                room = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE,
                                                                      errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
                self._reports.append(NotBegun(*key, f"it cannot be started here: {error}", void=room))
                self.wake()
            else:
                with contextlib.suppress(OSError):
                    self._hold(key, watched, os.pidfd_open(watched.process.pid))

    def _plain(self, order: Order, folder: AttemptFolder) -> dict[str, Any]:
        """The order as the shim reads it."""
        program, token = order.program, uuid.uuid4().hex
        number = program.checked()
        taken = {int(watched.order.get("port", 0)) for watched in self._watched.values()}
        port = environment.free_port(taken, int(token[:6], 16))
        report = str(self.state / "engine.sock")
        directory = Path(program.directory or ".").absolute()
        return {
            "job": order.job, "attempt": order.attempt, "token": token, "port": port, "report": report,
            "command": list(program.command), "directory": str(directory), "signal": int(number),
            "grace": program.grace, "time_limit": program.time_limit, "reference": program.reference,
            "output": str(directory / program.output) if program.output is not None else None,
            "cgroup": self._cgroup, "log_size": self.rules.log_size, "log_files": self.rules.log_files,
            "environment": environment.common(order, folder=folder.path, state=self.state, token=token, report=report,
                                              port=port),
            "ranks": environment.ranks(order, self.devices),
        }  # fmt: skip

    def _spawn(self, folder: AttemptFolder) -> subprocess.Popen[bytes]:
        said = os.open(folder.path / "shim.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", self._shim, str(folder.path)],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True, cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath)})  # fmt: skip
        finally:
            os.close(said)

    def stop(self, job: str, attempt: int, grace: float) -> None:
        key = (job, attempt)
        with self._lock:
            folder = self._folder(key)
            if not folder.path.exists() or folder.path.name in self._ended:
                return
            with contextlib.suppress(OSError):
                if folder.make_void():
                    self._look_soon(key)
                    return
            if key in self._watched:
                self._watched[key].asked = True
            asked = "leave" if grace > 0 else "out"
            if folder.command(f"leave {grace!r}" if grace > 0 else "out") and key in self._watched:
                self._watched[key].killed_after.setdefault(asked, time.monotonic() + grace + self.rules.stubborn)

    def suspend(self, job: str, attempt: int) -> None:
        self._folder((job, attempt)).command("suspend")

    def resume(self, job: str, attempt: int) -> None:
        self._folder((job, attempt)).command("resume")

    def adopt(self, job: str, attempt: int) -> None:
        key = (job, attempt)
        with self._lock:
            watched = self._watched.get(key)
            if watched is None:
                folder = self._folder(key)
                watched = self._watched[key] = Watched(folder, folder.order())
            watched.anew()
            self._look_soon(key)

    def forget(self, job: str, attempt: int) -> None:
        key = (job, attempt)
        with self._lock:
            folder = self._folder(key)
            if folder.look().stage in ENDED:
                self._drop(key)
                folder.forget()

    def _folder(self, key: Key) -> AttemptFolder:
        watched = self._watched.get(key)
        return watched.folder if watched is not None else AttemptFolder(self.attempts, *key)

    # --- what it tells --------------------------------------------------------------------------------------------

    def observe(self, patience: float) -> Sequence[Report]:
        until = time.monotonic() + max(0.0, patience)
        woken = False
        while True:
            with self._lock:
                if self._closed:
                    return ()
                self._look_around()
                found = list(self._reports)
                self._reports.clear()
                now = time.monotonic()
                pause = min(until, self._next_look) - now
            if found or woken or now >= until:
                return found
            woken = self._wait(max(0.0, pause))

    def _wait(self, pause: float) -> bool:
        """Until something happens; True if somebody wants `observe` to return."""
        woken = False
        try:
            events = self._events.poll(pause)
        except (OSError, ValueError):
            return True  # closed meanwhile
        for file, _ in events:
            if file == self._wakes:
                with contextlib.suppress(OSError):
                    os.read(self._wakes, 4096)
                woken = True
            elif self._socket is not None and file == self._socket.fileno():
                self._hear(self._socket)
            else:
                with self._lock:
                    if file in self._handles:
                        self._look_at.add(self._handles[file])
        return woken

    def _hear(self, listener: socket.socket) -> None:
        """Messages are believed only where they carry the attempt's token; of hints it does not matter."""
        for _ in range(1000):
            try:
                message = json.loads(listener.recv(65536))
                key = (message["job"], int(message["attempt"]))
                with self._lock:
                    watched = self._watched.get(key)
                    if watched is None:
                        continue
                    self._look_at.add(key)
                    if message["kind"] == "step":
                        watched.hear(message)
            except OSError:
                return
            except (ValueError, KeyError, TypeError):
                continue

    def _look_around(self) -> None:
        """At those there are hints about; at all of them now and then."""
        now = time.monotonic()
        keys = set(self._look_at)
        self._look_at.clear()
        self._to_reap = [process for process in self._to_reap if process.poll() is None]
        if now >= self._next_look:
            quick = self._socket is not None and all(w.handle is not None for w in self._watched.values())
            self._next_look = now + (self.rules.look_every if quick else self.rules.look_without_hints)
            keys = set(self._watched)
        for key in keys:
            watched = self._watched.get(key)
            if watched is not None:
                self._look(key, watched)
        if now >= self._next_sweep:
            self._next_sweep = now + 600.0
            sweep(self.attempts, self.rules.keep)

    def _look(self, key: Key, watched: Watched) -> None:
        if watched.process is not None and watched.process.poll() is not None:
            watched.process = None
        seen = watched.folder.look()
        if seen.stage is Stage.UNCLAIMED:
            seen = self._unclaimed(watched)
        if watched.handle is None and seen.stage in _ALIVE:
            self._hold(key, watched, leftovers.handle_of(seen.pid, seen.start))
        self._report(key, watched, seen)

    def _unclaimed(self, watched: Watched) -> Look:
        """Nobody has begun it. Nobody shall, unless this engine has just sent somebody to do so."""
        folder = watched.folder
        if not folder.path.exists():  # removed by hand: that says nothing about its processes
            mark, token = f"DALLY_PROGRESS={folder.path / 'progress'}", watched.order.get("token")
            if watched.began or leftovers.marked(mark):
                if watched.handle is not None:
                    with contextlib.suppress(OSError):
                        signal.pidfd_send_signal(watched.handle, signal.SIGKILL)
                gone = leftovers.put_out(mark)
                return Look(Stage.GONE if gone else Stage.UNKNOWN, cause="its folder is gone", token=token)
        if watched.process is not None:
            return Look(Stage.UNCLAIMED)
        complaint = folder.complaint()
        try:
            folder.make_void()
        except OSError as error:
            return Look(Stage.UNKNOWN, cause=str(error))  # no room, say: it is tried again
        seen = folder.look()
        return Look(Stage.VOID, cause=complaint) if seen.stage is Stage.VOID else seen

    def _report(self, key: Key, watched: Watched, seen: Look) -> None:
        if seen.stage in (Stage.VOID, Stage.REFUSED):
            void = seen.stage is Stage.VOID and not seen.cause
            self._over(key, NotBegun(*key, seen.cause or "it never began", void))
            return
        if seen.stage in (Stage.RUNNING, Stage.OVER, Stage.GONE) and not watched.began:
            watched.began = True
            self._reports.append(Began(*key))
            self._steps(watched, read=True)
        if seen.stage is Stage.OVER:
            self._steps(watched, read=True)
            self._over(key, Exited(*key, seen.code, seen.cause, seen.asked == "leave" and not watched.asked))
        elif seen.stage is Stage.GONE:
            if self._put_out(watched, seen):
                self._steps(watched, read=True)
                self._over(key, Vanished(*key, seen.cause))
        elif seen.stage in _ALIVE:
            if watched.began:
                self._steps(watched, read=self._socket is None, every=self.rules.steps_every)
            self._insist(watched, seen)

    def _put_out(self, watched: Watched, seen: Look) -> bool:
        """What a dead shim left behind; False if some of it is still there."""
        if seen.token is None:
            return True
        alone = cgroups.put_out(watched.order.get("cgroup"), seen.token)
        return leftovers.put_out(f"DALLY_TOKEN={seen.token}") and alone

    def _insist(self, watched: Watched, seen: Look) -> None:
        """A shim that does not hear, being stopped or stuck, is killed; its ranks die with it. One that has heard is
        left to wait for its ranks: those with much memory on a GPU take their time to die."""
        if seen.asked in ("leave", "out"):
            watched.killed_after.pop("leave", None)
        if seen.asked == "out":
            watched.killed_after.pop("out", None)
        if watched.killed_after and time.monotonic() > min(watched.killed_after.values()):
            handle = leftovers.handle_of(seen.pid, seen.start)
            if handle is not None:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                os.close(handle)

    def _steps(self, watched: Watched, *, read: bool, every: float = 0.0) -> None:
        if read:
            watched.read_progress()
        report = watched.steps(every)
        if report is not None:
            self._reports.append(report)

    def _over(self, key: Key, report: Report) -> None:
        self._ended.add(self._watched[key].folder.path.name)
        self._drop(key)
        self._reports.append(report)

    def _drop(self, key: Key) -> None:
        watched = self._watched.pop(key, None)
        if watched is None:
            return
        if watched.process is not None:
            self._to_reap.append(watched.process)
        if watched.handle is not None:
            self._handles.pop(watched.handle, None)
            with contextlib.suppress(OSError):
                self._events.unregister(watched.handle)
            os.close(watched.handle)

    def _hold(self, key: Key, watched: Watched, handle: int | None) -> None:
        """Be told when this process ends."""
        if handle is not None:
            watched.handle = handle
            self._handles[handle] = key
            self._events.register(handle, select.EPOLLIN | select.EPOLLONESHOT)

    def _look_soon(self, key: Key) -> None:
        self._look_at.add(key)
        self.wake()

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._waker, b"!")

    # --- everything -----------------------------------------------------------------------------------------------

    def running(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for folder in self._living():
            found[folder.job] = max(folder.attempt, found.get(folder.job, 0))
        return found

    def _living(self) -> list[AttemptFolder]:
        with self._lock:
            living = []
            for folder in folders(self.attempts):
                if folder.path.name not in self._ended:
                    seen = folder.look()
                    stage = seen.stage
                    if stage in _ALIVE or (stage is Stage.GONE and leftovers.marked(f"DALLY_TOKEN={seen.token}")):
                        living.append(folder)
                    elif stage in (Stage.VOID, Stage.REFUSED, Stage.OVER):
                        self._ended.add(folder.path.name)
            return living

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for key in list(self._watched):
                self._drop(key)
            if self._socket is not None:
                self._socket.close()
            self.wake()
            self._events.close()
            os.close(self._wakes)
            os.close(self._waker)

    def clear(self) -> None:
        with self._lock:
            for key in list(self._watched):
                self.stop(*key, 0.0)
            for folder in self._living():
                self.adopt(folder.job, folder.attempt)
                self.stop(folder.job, folder.attempt, 0.0)
            while self._watched:
                self._next_look = 0.0
                self._look_around()
                time.sleep(0.005)
