"""Units: people write `10m`, `25 GB/s`, `400 Gbit/s`; inside, all is seconds, bytes, bytes per second."""

from __future__ import annotations

import math
import re

from dally.core.errors import UserError

_NUMBER = re.compile(r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s].*?)?\s*$")

_TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0,
         "h": 3600.0, "d": 86400.0, "w": 604800.0}  # fmt: skip
_BYTES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
          "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}  # fmt: skip
_BITS = {"bit": 0.125, "kbit": 125.0, "Mbit": 125e3, "Gbit": 125e6, "Tbit": 125e9}


def _parse(text: str | float | int, units: dict[str, float], bare: float | None, what: str, like: str) -> float:
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        value, unit = float(text), None
    else:
        match = _NUMBER.match(str(text))
        if match is None:
            raise UserError(f"{text!r} is not a {what}; write it like {like}")
        value, unit = float(match[1]), match[2]
    if unit is None:
        if bare is None and value != 0:
            raise UserError(f"{text!r} has no unit; a {what} is written like {like}")
        factor = bare if bare is not None else 1.0
    elif unit in units:
        factor = units[unit]
    else:
        raise UserError(f"{text!r} is not a {what}: unknown unit {unit!r}; write it like {like}")
    if not math.isfinite(value * factor):
        raise UserError(f"{text!r} is not a {what}: it must be finite")
    return value * factor


def seconds(text: str | float | int) -> float:
    """`90`, `90s`, `10m`, `1.5h`, `2d`, `500ns` → seconds. A bare number is seconds."""
    return _parse(text, _TIME, 1.0, "time", "90s, 10m or 1.5h")


def size_bytes(text: str | float | int) -> float:
    """`25MB`, `1.5 GiB` → bytes. A bare number is bytes."""
    return _parse(text, _BYTES | _BITS, 1.0, "size", "25MB or 1.5GiB")


def bandwidth(text: str | float | int) -> float:
    """`25 GB/s`, `400 Gbit/s`, `400Gbps` → bytes per second. A bare number is refused: bits or bytes?"""
    if isinstance(text, str):
        text = re.sub(r"bps\s*$", "bit/s", text)
    units = {f"{unit}/s": factor for unit, factor in (_BYTES | _BITS).items()}
    return _parse(text, units, None, "bandwidth", "25 GB/s or 400 Gbit/s")


def show_time(value: float) -> str:
    """Seconds for people: `12.0 s`, `3.4 min`, `5.6 h`, `2.1 d`."""
    if value != value:
        return "–"
    if value == 0:
        return "0.0 s"
    magnitude = abs(value)
    if magnitude < 1:
        for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs")):
            if magnitude < limit:
                return f"{value * factor:.3g} {unit}"
        return f"{value * 1e3:.3g} ms"
    if magnitude < 120:
        return f"{value:.1f} s"
    if magnitude < 7200:
        return f"{value * (1 / 60):.3g} min"
    if magnitude < 172800:
        return f"{value * (1 / 3600):.3g} h"
    return f"{value / 86400:.1f} d"


def show_bytes(value: float) -> str:
    """Bytes for people: `25 MB`."""
    for limit, factor, unit in ((1e3, 1, "B"), (1e6, 1e-3, "kB"), (1e9, 1e-6, "MB"), (1e12, 1e-9, "GB")):
        if abs(value) < limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e-12:.3g} TB"
