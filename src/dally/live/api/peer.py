"""Whose process is at the other end of a connection inside this machine: the kernel's table of connections says it."""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2  # of linux/netlink.h and linux/sock_diag.h
_ANY = 0xFFFFFFFF
_UID_AT = 16 + 4 + 48 + 12  # behind the header, four bytes of state, the addresses, three counters

Address = tuple[str, int]


def owner_of(client: Address, server: Address) -> int | None:
    """User id of the process that connects from `client` to `server`; None where the kernel knows of no such
    connection, or does not tell."""
    try:
        return _asked(client, server)
    except OSError:
        return _looked_up(client, server)


def _asked(client: Address, server: Address) -> int | None:
    """About this one connection: as quick with many connections as with few."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    near, far = (socket.inet_pton(family, host).ljust(16, b"\0") for host in (client[0], server[0]))
    asked = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ANY) + struct.pack("!HH", client[1], server[1])
    asked += near + far + struct.pack("=III", 0, _ANY, _ANY)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.sendto(struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked, (0, 0))
        answer = kernel.recv(8192)
    if struct.unpack_from("=H", answer, 4)[0] == _ERROR:
        number = -struct.unpack_from("=i", answer, 16)[0]
        if number == errno.ENOENT:
            return None
        raise OSError(number, "the kernel does not tell")
    return int(struct.unpack_from("=I", answer, _UID_AT)[0])


def _looked_up(client: Address, server: Address) -> int | None:
    """In the whole table, where the kernel answers no questions about one connection."""
    near, far = set(_spellings(*client)), set(_spellings(*server))
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 7 and words[1] in near and words[2] in far:
                return int(words[7])
    return None


def _spellings(host: str, port: int) -> Iterator[str]:
    """As the tables write an address: words of the address in the machine's byte order; IPv4 also inside IPv6."""
    try:
        if ":" in host:
            yield f"{_words(socket.inet_pton(socket.AF_INET6, host))}:{port:04X}"
            return
        four = socket.inet_aton(host)
    except OSError:
        return
    yield f"{_words(four)}:{port:04X}"
    yield f"{_words(bytes(10) + bytes((255, 255)) + four)}:{port:04X}"


def _words(address: bytes) -> str:
    order = "<" if sys.byteorder == "little" else ">"
    return "".join(f"{word:08X}" for word in struct.unpack(f"{order}{len(address) // 4}I", address))
