"""Whose process is at the other end of a loopback connection: the kernel's table of connections says it."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def owner_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """User id of the process that connects from `client` to `server`, both of this machine; None where nobody knows."""
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
