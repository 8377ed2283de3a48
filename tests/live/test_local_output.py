"""What jobs print is kept within bounds and can be read from anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_attempts import begins, ends, eventually, order, python

from dally.live.engine import Exited
from dally.live.local import shim
from dally.live.local.engine import LocalEngine
from dally.live.local.output import output_folder, read_output
from dally.live.local.watched import EngineRules


def everything(folder: Path, limit: int, offset: int = 0) -> tuple[bytes, int]:
    data = b""
    while True:
        part, offset = read_output(folder, offset, limit)
        if not part:
            return data, offset
        data += part


def test_a_million_lines_take_no_more_room_than_allowed_and_the_last_ones_are_kept(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path, EngineRules(log_size=100_000, log_files=4))
    engine.start(python("for n in range(1000000): print(n)", environment={"PYTHONUNBUFFERED": ""}))
    assert ends(engine)[-1] == Exited("1", 1, 0)
    folder = output_folder(tmp_path, "1", 1)
    sizes = [path.stat().st_size for path in folder.glob("out.log*")]
    assert len(sizes) == 4 and sum(sizes) <= 400_000
    whole = "".join(f"{n}\n" for n in range(1_000_000)).encode()
    data, end = everything(folder, 77_777)
    assert end == len(whole)
    assert whole.endswith(data) and len(data) == sum(sizes)
    assert read_output(folder, -30, 1000) == (whole[-30:], end)
    assert read_output(folder, end + 5, 10) == (b"", end)
    engine.close()


@pytest.mark.parametrize("files", [2, 3, 8])
def test_whatever_the_pieces_nothing_kept_is_changed(tmp_path: Path, files: int) -> None:
    whole = b"".join(b"%d," % number for number in range(400))
    output = shim.Output(str(tmp_path / "out.log"), 100, files, None)
    for start in range(0, len(whole), 33):
        output.write(whole[start : start + 33])
        data, end = everything(tmp_path, 17)
        written = whole[: start + 33]
        assert end == len(written) and written.endswith(data)
        assert len(data) >= min(len(written), 100 * (files - 1))


def test_there_is_nothing_to_read_where_nothing_was_printed(tmp_path: Path) -> None:
    assert read_output(tmp_path / "nowhere", 0, 10) == (b"", 0)
    assert read_output(tmp_path, -5, 10) == (b"", 0)


def test_lines_of_several_ranks_are_not_torn(tmp_path: Path, local: LocalEngine) -> None:
    code = "import os, sys, time\nfor n in range(300):\n  for part in (os.environ['RANK'] * 50, os.environ['RANK'] * 50 + '\\n'):\n" \
           "    sys.stdout.write(part); sys.stdout.flush()"  # fmt: skip
    local.start(python(code, machines=("m0", "m1"), mask=3, processes="gpu"))
    ends(local)
    lines = (local.attempts / "1.1" / "out.log").read_text().splitlines()
    assert sorted(lines) == sorted([rank * 100 for rank in "0123"] * 300)


def test_output_goes_to_the_file_the_job_names_as_well(tmp_path: Path, local: LocalEngine) -> None:
    for attempt in (1, 2):
        local.start(order("echo", f"attempt {attempt}", attempt=attempt, directory=str(tmp_path), output="out.txt"))
        ends(local)
    assert (tmp_path / "out.txt").read_text() == "attempt 1\nattempt 2\n"
    assert (local.attempts / "1.2" / "out.log").read_text() == "attempt 2\n"


def test_a_job_that_prints_faster_than_anybody_reads_is_not_held_up(tmp_path: Path, local: LocalEngine) -> None:
    """Nobody reads the log, and the job ends all the same."""
    local.start(python("import sys\nfor _ in range(200): sys.stdout.write('y' * 100000)"))
    assert ends(local)[-1] == Exited("1", 1, 0)
    assert read_output(local.attempts / "1.1", -1, 10)[1] == 20_000_000


def test_what_is_printed_is_there_while_the_job_runs(local: LocalEngine) -> None:
    local.start(python("import time\nprint('hello')\ntime.sleep(1000)"))
    begins(local)
    eventually(lambda: read_output(local.attempts / "1.1", 0, 100)[0] == b"hello\n")
