"""The shim: the process that runs one attempt of a job and outlives the engine that started it.

    python -I -S -X utf8 shim.py FOLDER

It holds FOLDER/lock for its life, takes the attempt by linking FOLDER/claim (whoever finds one there runs nothing),
starts the ranks, keeps their output within bounds, obeys FOLDER/control (a FIFO: `leave SECONDS`, `out`, `suspend`,
`resume`), and leaves no process behind. How it ended stands in FOLDER/exit, which was allocated before anything
started, so that a full disk cannot lose it. One file, few imports, nothing of dally's: a job should begin as fast as
the interpreter does.
"""

from __future__ import annotations

import _socket  # what `socket` is made of, without the enumerations that take longer than all the rest
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import stat
import sys
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:  # a sixth of the time to start is not worth a name
    from collections.abc import Callable
    from typing import Any

SLOT = 1024  # bytes of one of the two copies of a record; they are written in turn, so that one is always whole
SAVED = 143  # exit code of a rank that saved its checkpoint and left
LOOK_EVERY = 2.0  # seconds between two looks for wishes
_SUBREAPER, _DEATH_SIGNAL = 36, 1  # of prctl(2)
_LIBC = ctypes.CDLL(None, use_errno=True)


# --- the record of an attempt -----------------------------------------------------------------------------------------


def packed(fields: dict[str, Any]) -> bytes:
    """One slot: checksum, then the fields, padded. What is too long for it is the cause, which is cut."""
    text = json.dumps(fields).encode()
    while len(text) > SLOT - 10:
        fields = {**fields, "cause": fields["cause"][: len(fields["cause"]) * 2 // 3]}
        text = json.dumps(fields).encode()
    return (b"%08x " % zlib.crc32(text) + text).ljust(SLOT - 1) + b"\n"


def read_record(path: str) -> dict[str, Any] | None:
    """The newest whole slot; None where there is none."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read(2 * SLOT)
    except OSError:
        return None
    found: list[dict[str, Any]] = []
    for start in (0, SLOT):
        slot = data[start : start + SLOT].rstrip()
        with contextlib.suppress(ValueError):
            if slot and int(slot[:8], 16) == zlib.crc32(slot[9:]):
                found.append(json.loads(slot[9:]))
    return max(found, key=lambda fields: int(fields["turn"]), default=None)


class Record:
    """Writes over what is allocated already."""

    def __init__(self, path: str) -> None:
        self.fields = read_record(path) or {"turn": 0}
        self._file = os.open(path, os.O_RDWR)

    def note(self, **fields: Any) -> None:
        """What is good to know and no more."""
        with contextlib.suppress(OSError):
            self.write(**fields)

    def write(self, durable: bool = False, **fields: Any) -> None:
        self.fields = {**self.fields, **fields, "turn": self.fields["turn"] + 1}
        os.pwrite(self._file, packed(self.fields), self.fields["turn"] % 2 * SLOT)
        if durable:
            os.fsync(self._file)


# --- processes --------------------------------------------------------------------------------------------------------


def stat_of(pid: int | str) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: state, parent, …; the 20th is the start time."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def start_time(pid: int | str) -> str | None:
    """Ticks from boot to when the process began: with the pid, its identity until the next boot."""
    fields = stat_of(pid)
    return fields[19] if fields and fields[0] not in "ZX" else None


def descendants(root: int) -> list[tuple[int, str]]:
    """Everybody below a process with their states, parents before children. Orphans come back to a subreaper, so that
    nobody below the shim is missed for having left its session or its parent."""
    below: dict[int, list[tuple[int, str]]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (fields := stat_of(name)) is not None:
            below.setdefault(int(fields[1]), []).append((int(name), fields[0]))
    found: list[tuple[int, str]] = []
    front = [root]
    while front:
        children = [child for pid in front for child in below.get(pid, ())]
        found += children
        front = [pid for pid, _ in children]
    return found


def cgroup_of(parent: str, token: str) -> str:
    return f"{parent}/dally-{token}"


def write_to(path: str, text: str) -> None:
    with contextlib.suppress(OSError), open(path, "w") as file:  # noqa: PTH123
        file.write(text)


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


# --- output -----------------------------------------------------------------------------------------------------------


class Output:
    """out.log and the full ones before it, out.log.1, out.log.2, …: so many of so many bytes at most, the oldest go.
    What there is no room for is dropped and counted, and said when there is room again; a job never waits for it."""

    def __init__(self, path: str, size: int, files: int, also: str | None) -> None:
        self.path, self.size, self.files = path, size, files
        self.full = self.length = self.dropped = 0
        self._file = -1
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
        self._also = -1 if also is None else os.open(also, how, 0o666)
        if also is not None and not stat.S_ISREG(os.fstat(self._also).st_mode):
            raise OSError(errno.EINVAL, "output can go to a regular file only", also)

    def write(self, data: bytes) -> None:
        if self._also >= 0:
            with contextlib.suppress(OSError):
                os.write(self._also, data)
        if self.dropped:
            note = b"[dally: %d bytes of output were dropped, there was no room]\n" % self.dropped
            if self._put(note) < len(note):
                self.dropped += len(data)
                return
            self.dropped = 0
        self.dropped += len(data) - self._put(data)

    def _put(self, data: bytes) -> int:
        done = 0
        try:
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            while done < len(data):
                if self.length >= self.size:
                    self._rotate()
                wrote = os.write(self._file, data[done : done + self.size - self.length])
                done, self.length = done + wrote, self.length + wrote
        except OSError:
            pass
        return done

    def _rotate(self) -> None:
        os.close(self._file)
        self._file = -1
        os.rename(self.path, f"{self.path}.{self.full + 1}")  # noqa: PTH104
        self.full, self.length = self.full + 1, 0
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}.{self.full - self.files + 1}")  # noqa: PTH108
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


# --- the gang ---------------------------------------------------------------------------------------------------------


class Gang:
    """The ranks of an attempt: started together, ended together."""

    def __init__(self, order: dict[str, Any], output: Output) -> None:
        self.order, self.output = order, output
        self.poll = select.poll()
        self.alive: dict[int, int] = {}  # pid → rank
        self.codes: dict[int, int] = {}  # rank → how it ended, in the order they did
        self.input: int | None = None  # what the ranks read from; None: nothing
        self.orphans: list[int] = []  # how those ended whom a rank left behind when it was asked to leave
        self.cause = ""  # why the attempt was ended, where the engine did not ask for it
        self.asked = False
        self.deadline: float | None = None  # when it is put out
        self.suspended = False
        self.left: float | None = order["time_limit"]  # seconds it may still run
        self._pipes: dict[int, bytes] = {}  # pipe of a rank → the line it has begun
        self._signalled: set[int] = set()
        self._clock = time.monotonic()
        self._cgroup = cgroup_of(order["cgroup"], order["token"]) if order["cgroup"] else None
        self.wakes, woken = os.pipe()  # a byte for every signal that comes
        os.set_blocking(self.wakes, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self.poll.register(self.wakes, select.POLLIN)

    def start(self) -> str | None:
        """Start all ranks; if one cannot be, the cause."""
        if self._cgroup is not None:
            with contextlib.suppress(OSError):
                os.mkdir(self._cgroup)  # noqa: PTH102
        errors = [self._spawn(rank) for rank in range(len(self.order["ranks"]))]
        cause = None
        for pipe in errors:
            with open(pipe, "rb") as file:  # noqa: PTH123
                cause = file.read().decode(errors="replace") or cause
        self._clock = time.monotonic()
        return cause

    def _spawn(self, rank: int) -> int:
        me = os.getpid()
        reading, writing = os.pipe()
        failed, failing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                os.setsid()
                _LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)  # a shim that is killed leaves no rank behind
                if os.getppid() != me:
                    os._exit(127)  # it was killed before the line above
                if self._cgroup is not None:
                    write_to(f"{self._cgroup}/cgroup.procs", "0")
                reads = os.open("/dev/null", os.O_RDONLY) if self.input is None else self.input
                for given, taken in ((reads, 0), (writing, 1), (writing, 2)):
                    os.dup2(given, taken)
                for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.chdir(self.order["directory"])
                environment = {**self.order["environment"], **self.order["ranks"][rank]}
                os.execvpe(self.order["command"][0], self.order["command"], environment)
            except BaseException as error:
                what = error.strerror if isinstance(error, OSError) else str(error)
                where = getattr(error, "filename", None)
                where = where if isinstance(where, str) else self.order["command"][0]  # bytes: of PATH
                os.write(failing, f"{where!r} cannot be started: {what}".encode(errors="replace"))
            finally:
                os._exit(127)
        os.close(writing)
        os.close(failing)
        os.set_blocking(reading, False)
        self.poll.register(reading, select.POLLIN)
        self._pipes[reading] = b""
        self.alive[pid] = rank
        return failed

    def pump(self, pipe: int) -> bool:
        """Pass on what a rank has printed, whole lines only where there are several ranks; False at its end or lull."""
        try:
            data = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        begun = self._pipes[pipe]
        if not data:
            self._pipes.pop(pipe)
            self.poll.unregister(pipe)
            os.close(pipe)
            self.output.write(begun)
            return False
        data = begun + data
        cut = len(data) if len(self.order["ranks"]) == 1 or len(data) > 1 << 16 else data.rfind(b"\n") + 1
        self.output.write(data[:cut])
        self._pipes[pipe] = data[cut:]
        return True

    def drain(self) -> None:
        for pipe in list(self._pipes):
            while pipe in self._pipes and self.pump(pipe):
                pass
            self.output.write(self._pipes.pop(pipe, b""))
        self.output.write(b"")  # what was dropped is said, if there is room now

    # --- leaving --------------------------------------------------------------------------------------------------

    def reap(self) -> None:
        """Who has ended; the first rank that fails ends the others."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                code = os.waitstatus_to_exitcode(status)
                if pid in self.alive:
                    self.codes[self.alive.pop(pid)] = code
                    if code != 0 and not self.asked and self.alive:
                        self.leave(self.order["grace"])
                elif self.asked:
                    self.orphans.append(code)

    def leave(self, grace: float) -> None:
        """Ask every rank to leave; who is still there after the grace is put out. The sooner of two wishes counts."""
        until = time.monotonic() + grace
        self.deadline = until if self.deadline is None else min(until, self.deadline)
        if not self.asked:
            self.asked = True
            self.resume()
            for pid in self.alive:  # not its children: a data loader's workers must not die before the rank has saved
                send(pid, self.order["signal"])

    def signalled(self) -> bool:
        """Whether the shim has been asked to leave since that was last looked at."""
        try:
            return signal.SIGTERM in os.read(self.wakes, 4096)
        except BlockingIOError:
            return False

    def terminated(self) -> None:
        """The shim itself was asked to leave."""
        self.leave(self.order["grace"])

    def keep_time(self) -> float | None:
        """Put out who is late. Seconds until there is something to do."""
        now = time.monotonic()
        if self.left is not None:
            self.left -= 0.0 if self.suspended else now - self._clock
            if self.left <= 0 and not self.asked:
                self.cause = f"its time limit of {self.order['time_limit']:g} s was over"
                self.leave(self.order["grace"])
        self._clock = now
        if self.deadline is not None:
            if now >= self.deadline:
                for pid, _ in descendants(os.getpid()):
                    send(pid, signal.SIGKILL)
                return 0.05
            return self.deadline - now
        return None if self.left is None or self.suspended else max(0.0, self.left)

    def over(self) -> bool:
        """Whether all ranks are gone. What they left behind is given the rest of their grace where they died of being
        asked to leave, as a shell does before the program it runs has saved."""
        if self.alive:
            return False
        if self.asked and self.deadline is not None and time.monotonic() < self.deadline \
                and -self.order["signal"] in self.codes.values():  # fmt: skip
            behind = [pid for pid, state in descendants(os.getpid()) if state != "Z"]
            for pid in behind:
                if pid not in self._signalled:
                    self._signalled.add(pid)
                    send(pid, self.order["signal"])
            if behind:
                return False
            self.reap()  # how the last of them ended
        return True

    def clean(self) -> None:
        """Put out everybody below; return when they are gone, since only then are their GPUs free."""
        pause = 0.002
        while True:
            if self._cgroup is not None:
                write_to(f"{self._cgroup}/cgroup.kill", "1")
            for pid, _ in descendants(os.getpid()):
                send(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                if self._cgroup is None or self._gone(self._cgroup):
                    return
            time.sleep(pause)
            pause = min(0.1, pause * 2)

    @staticmethod
    def _gone(cgroup: str) -> bool:
        """Remove the cgroup, which can be done when nobody is in it."""
        try:
            os.rmdir(cgroup)  # noqa: PTH106
        except OSError as error:
            return error.errno != errno.EBUSY
        return True

    def code(self) -> int:
        """0 if all ranks ended so; 143 if all others saved and left; else that of the first who did neither."""
        asked = -self.order["signal"]
        saved_behind = SAVED in self.orphans and all(code in (0, SAVED) for code in self.orphans)
        codes = [SAVED if code == asked and saved_behind else code for code in self.codes.values()]
        return next((code for code in codes if code not in (0, SAVED)), SAVED if SAVED in codes else 0)

    # --- turns ----------------------------------------------------------------------------------------------------

    def suspend(self) -> None:
        self.suspended = True
        for _ in range(20):  # until nobody is left who could have been forked in between
            moving = [pid for pid, state in descendants(os.getpid()) if state not in "TtZX"]
            for pid in moving:
                send(pid, signal.SIGSTOP)
            if not moving:
                return
            time.sleep(0.001)

    def resume(self) -> None:
        if self.suspended:
            self.suspended = False
            for pid, _ in descendants(os.getpid()):
                send(pid, signal.SIGCONT)

    def obey(self, command: bytes) -> None:
        word, _, argument = command.decode(errors="replace").partition(" ")
        if word == "leave":
            with contextlib.suppress(ValueError):
                self.leave(float(argument))
        elif word == "out":
            self.asked, self.deadline = True, time.monotonic()
        elif word == "suspend" and not self.asked:
            self.suspend()
        elif word == "resume":
            self.resume()


# --- one attempt ------------------------------------------------------------------------------------------------------


def take(folder: str) -> bool:
    """Hold the lock and take the attempt; False if somebody else has it, or it must not begin any more."""
    lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT, 0o600)  # never closed, and not inherited
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if os.path.exists(f"{folder}/claim"):  # noqa: PTH110
                return False
            time.sleep(0.005)  # somebody only looks whether it is held
    try:
        os.link(f"{folder}/run", f"{folder}/claim")
    except FileExistsError:
        return False
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    return True


def hint(order: dict[str, Any], kind: str) -> None:
    """Tell the engine to look. If nobody hears it, nothing is lost but a second."""
    message = json.dumps({"kind": kind, "job": order["job"], "attempt": order["attempt"], "token": order["token"]})
    with contextlib.suppress(OSError):
        sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        sender.setblocking(False)
        sender.sendto(message.encode(), order["report"])


def attend(gang: Gang, control: int, record: Record, wishes: Callable[[], bytes] | None = None) -> None:
    """Until all ranks are gone. `wishes`: commands from where no FIFO reaches, looked for at every signal and now and
    then."""
    gang.poll.register(control, select.POLLIN)
    commands = b""
    while True:
        gang.reap()
        patience = gang.keep_time()
        if gang.over():
            break
        if wishes is not None:
            patience = LOOK_EVERY if patience is None else min(patience, LOOK_EVERY)
            if wish := wishes():
                gang.obey(wish)
                record.note(asked=wish[:5].decode(errors="replace").strip())
                continue
        waiting = gang.asked and not gang.alive  # for those a rank left behind
        for source, _ in gang.poll.poll(20 if waiting else None if patience is None else patience * 1000 + 1):
            if source == gang.wakes:
                if gang.signalled():
                    if not gang.asked:
                        record.note(asked="term")
                    gang.terminated()
            elif source == control:
                heard = os.read(control, 4096)
                if not heard:  # nobody will say anything any more, which a FIFO of our own never comes to
                    gang.poll.unregister(control)
                *whole, commands = (commands + heard).split(b"\n")
                for command in whole:
                    gang.obey(command)
                    if command.startswith((b"leave", b"out")):
                        record.note(asked=command[:5].decode(errors="replace").strip())
            else:
                gang.pump(source)


def run(folder: str, order: dict[str, Any], control: int, make: Callable[[dict[str, Any], Output], Gang] = Gang,
        wishes: Callable[[], bytes] | None = None) -> None:  # fmt: skip
    record = Record(f"{folder}/exit")
    record.write(state="starting", token=order["token"], pid=os.getpid(), start=start_time(os.getpid()))
    try:
        output = Output(f"{folder}/out.log", order["log_size"], order["log_files"], order["output"])
    except OSError as error:
        record.write(durable=True, state="refused", cause=f"{order['output']!r} cannot be written: {error.strerror}")
        return
    _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gang = make(order, output)
    try:
        cause = gang.start()
        if cause is not None:
            gang.clean()
            record.write(durable=True, state="refused", cause=cause)
            return
        record.note(state="running")
        hint(order, "began")
        attend(gang, control, record, wishes)
    finally:
        gang.clean()
        gang.drain()
    if not gang.asked and gang.signalled():  # who signals everybody at once may have hit the ranks first
        record.note(asked="term")
    record.write(durable=True, state="exited", code=gang.code(), cause=gang.cause)


def main() -> None:
    folder = sys.argv[1]
    os.chdir("/")
    try:
        with open(f"{folder}/order.json", encoding="utf-8") as file:  # noqa: PTH123
            order = json.load(file)
        control = os.open(f"{folder}/control", os.O_RDWR | os.O_NONBLOCK)  # for writing too, so that it never ends
        if take(folder):
            run(folder, order, control)
            hint(order, "over")
    except Exception:
        import traceback

        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    main()
