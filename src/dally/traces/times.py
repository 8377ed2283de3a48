"""Times and numbers as trace files write them; what stands for "unknown" becomes None, never a guess."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

_UNKNOWN = frozenset({"", "none", "null", "nan", "nat", "n/a", "na", "unknown", "-", "invalid"})
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 1e11  # the year 5138; larger numbers are no dates
_ONE_SECOND = timedelta(seconds=1)
_ELAPSED = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)$")
# Dates with slashes, as SLURM_TIME_FORMAT makes them: 2026/01/31-13:57:00. Without the year first, which of the two
# numbers is the month is the file's secret: `slashed` asks for it.
_YEAR_FIRST = re.compile(r"^(\d{4})/(\d{1,2})/(\d{1,2})[T\s-]+(\d{1,2}:\d{2}(?::\d{2})?)$")
_YEAR_LAST = re.compile(r"^(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})[T\s-]+(\d{1,2}:\d{2}(?::\d{2})?)$")
# Zone names some logs append instead of an offset.
_ZONES = {"UTC": "+00:00", "GMT": "+00:00", "PST": "-08:00", "PDT": "-07:00"}


def number(text: object) -> float | None:
    """A finite number, or None for anything that is not one."""
    if not isinstance(text, (int, float, str)) or isinstance(text, bool):
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def moment(text: object) -> tuple[float, bool] | None:
    """A wall-clock time as seconds since 1970 and whether it named its zone; None where it is unknown.

    A time with an offset is placed in UTC. A naive one is taken as it stands: differences are right as
    long as the file keeps to one zone. A bare number is seconds since 1970; 0 and below mean "never".
    """
    if isinstance(text, str):
        text = text.strip()
        if text.lower() in _UNKNOWN:
            return None
        if "/" in text:
            text = _with_dashes(text)
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            zone = _ZONES.get(text[-3:].upper())
            if zone is not None:
                return moment(text[:-3].strip() + zone)
        else:
            if when.year <= 1970:  # an unset clock: 1970-01-01, give or take the zone
                return None
            if when.tzinfo is None:
                return (when - _EPOCH) / _ONE_SECOND, False
            return (when - _EPOCH_UTC) / _ONE_SECOND, True
    value = number(text)
    return (value, True) if value is not None and 0 < value < _LATEST else None


def _with_dashes(text: str) -> str:
    """`2026/01/31-13:57:00` as ISO 8601; anything else as it is."""
    match = _YEAR_FIRST.match(text)
    return text if match is None else f"{match[1]}-{match[2]:0>2}-{match[3]:0>2}T{_clock(match[4])}"


def _clock(text: str) -> str:
    return f"{text:0>8}" if text.count(":") == 2 else f"{text:0>5}"


def slashed(text: str, day_first: bool) -> str:
    """`01/31/2026 13:57:00` (or `31/01/2026`, the day first) as ISO 8601; anything else as it is."""
    match = _YEAR_LAST.match(text.strip())
    if match is None:
        return text
    month, day = (match[2], match[1]) if day_first else (match[1], match[2])
    year = match[3] if len(match[3]) == 4 else f"20{match[3]}"
    return f"{year}-{month:0>2}-{day:0>2}T{_clock(match[4])}"


def days_and_months(text: str) -> tuple[int, int] | None:
    """The two numbers of `01/31/2026 13:57:00`, whichever is the month; None for another form."""
    match = _YEAR_LAST.match(text.strip())
    return None if match is None else (int(match[1]), int(match[2]))


def known(text: object) -> str | None:
    """A name, or None where the file has a word for "unknown"."""
    if text is None:
        return None
    word = str(text).strip()
    return None if word.lower() in _UNKNOWN else word


def elapsed(text: object) -> float | None:
    """A length of time as Slurm writes it, `[D-][HH:]MM:SS[.fff]`, or plain seconds."""
    if isinstance(text, str) and (match := _ELAPSED.match(text.strip())) is not None:
        days, hours, minutes, secs = (float(part) if part else 0.0 for part in match.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + secs
    return number(text)


def iso(since_1970: float, zoned: bool) -> str | None:
    """The ISO 8601 text of a moment, with an offset only where the file gave one; None beyond all calendars."""
    try:
        when = _EPOCH_UTC + timedelta(seconds=since_1970)
    except OverflowError:
        return None
    return when.isoformat() if zoned else when.replace(tzinfo=None).isoformat()
