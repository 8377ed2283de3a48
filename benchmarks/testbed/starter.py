"""Forks ranks with PyTorch loaded: one process per host that `rank.py` asks. See there for why."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import sys
import threading
import traceback
from pathlib import Path
from typing import Any


def serve(path: str) -> None:
    import torch

    from testbed.train import main

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)  # the first optimizer imports half of PyTorch
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the ranks but those who asked for them
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen(256)
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            _become(connection, main)
        connection.close()


def _become(connection: socket.socket, main: Any) -> None:
    """In the child: be what the client would have been. Does not return."""
    code = 1
    try:
        head, files, _, _ = socket.recv_fds(connection, 4, 3)
        wish = json.loads(_exactly(connection, int.from_bytes(head, "big")))
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _enter(struct.unpack("3i", credentials)[0])
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(wish["cwd"])
        os.environ.clear()
        os.environ.update(wish["environment"])
        for one in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(one, signal.SIG_DFL)
        os.setpgid(0, 0)
        threading.Thread(target=_listen, args=(connection,), daemon=True).start()
        main(wish["words"])
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            connection.send(bytes([code & 255]))
        os._exit(code & 255)


def _enter(pid: int) -> None:
    """The network, host name and mounts of the client, that is, of its node."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("net", "uts", "mnt"):
        file = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        if libc.setns(file, 0) != 0:
            raise OSError(ctypes.get_errno(), f"setns {kind}")
        os.close(file)


def _listen(connection: socket.socket) -> None:
    """Signals that the client was sent; its end is ours."""
    while data := connection.recv(16):
        for number in data:
            os.kill(os.getpid(), number)
    os._exit(137)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError("the client has gone")
        data += more
    return data


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
    serve(sys.argv[1])
