"""What an attempt has printed, read from where one likes, over the files it is kept in.

The shim fills out.log to a fixed size, calls it out.log.1, out.log.2, … in turn and removes the oldest: where a file
begins in all that was ever printed follows from its number.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from dally.live.local.folder import AttemptFolder

_Files = list[tuple[int, int, Path]]  # offset of the first byte, size, path; oldest first


def output_folder(state: Path | str, job: str, attempt: int) -> Path:
    """Where the output of an attempt is, whatever the job is called."""
    return AttemptFolder(Path(state).absolute() / "attempts", job, attempt).path


def read_output(folder: Path, offset: int, limit: int) -> tuple[bytes, int]:
    """So many bytes at most from the offset on, and the offset to go on from. Offsets count all that was ever printed:
    where that is gone already, reading begins with the oldest that is kept. A negative one counts from the end."""
    data, at = b"", max(0, offset)
    for _ in range(10):  # a file may be renamed while it is read
        files = _files(folder)
        if not files:
            break
        end = files[-1][0] + files[-1][1]
        at = max(files[0][0], end + offset if offset < 0 else min(offset, end))
        data = b""
        with contextlib.suppress(FileNotFoundError):
            for first, size, path in files:
                if first <= at < first + size and len(data) < limit:
                    with path.open("rb") as file:
                        file.seek(at - first)
                        part = file.read(min(limit - len(data), first + size - at))
                    data, at = data + part, at + len(part)
        if [path for _, _, path in _files(folder)] == [path for _, _, path in files]:
            break
    return data, at


def _files(folder: Path) -> _Files:
    with contextlib.suppress(FileNotFoundError):
        numbers = sorted(int(path.suffix[1:]) for path in folder.glob("out.log.*") if path.suffix[1:].isdecimal())
        full = (folder / f"out.log.{numbers[-1]}").stat().st_size if numbers else 0
        found: _Files = [((number - 1) * full, full, folder / f"out.log.{number}") for number in numbers]
        newest = folder / "out.log"
        if newest.exists():
            found.append((numbers[-1] * full if numbers else 0, newest.stat().st_size, newest))
        return found
    return []
