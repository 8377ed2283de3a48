"""Files that are no traces, or broken ones: one clear sentence each, never a traceback."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dally.core.errors import UserError
from dally.traces import load_trace

TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"

BROKEN: list[tuple[str, bytes, str]] = [
    ("empty.csv", b"", "is empty"),
    ("blank.csv", b"\n\n  \n", "is empty"),
    ("photo.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), "binary file, not text"),
    ("noise.bin", bytes((i * 37 + 11) % 251 + 5 for i in range(4000)), "binary file, not text"),
    ("cut.json", b'[{"job_id": "1", "duration": "5", "max_parall', "is cut short: line 1"),
    ("typo.json", b'[{"job_id": 1,, "duration": 5}, {"a": 1}]', "is not valid JSON: line 1"),
    ("other.json", b'[{"colour": "red", "size": 3}]', "keys 'colour, size'"),
    ("scalar.json", b"[1, 2, 3]", "is JSON but no trace"),
    ("prices.csv", b"date,open,close\n2020-01-01,1,2\n", "first line reads 'date, open, close'"),
    ("letter.txt", b"Dear operator,\nthe cluster is slow.\n", "is not a known trace"),
    ("nodes.csv", b"sn,cpu_milli,memory_mib,gpu,model\nn0,1,2,3,P100\n", "first line reads 'sn, cpu_milli"),
    ("zero.csv", TIRESIAS.encode() + b"0,0,0,5,vgg,9,0\n1,0,0,5,vgg,9,0\n", "none of its 2 rows is usable: 2 ×"),
    ("header.csv", TIRESIAS.encode(), "has no rows"),
    ("cut.csv.gz", gzip.compress(TIRESIAS.encode() * 50)[:60], "damaged gzip"),
    ("new.csv", b"# dally-trace 9\nid,submit_time,gpus\n", "version 9"),
    ("own.csv", b"# dally-trace 1\nid,submit_time\na,1\n", "line 2: the header lacks the columns gpus"),
    ("field.csv", b"# dally-trace 1\nid,submit_time,gpus,duration\na,soon,1,5\n", "line 3, submit_time: 'soon'"),
    ("frame.parquet", b"PAR1" + bytes(40), "damaged Parquet"),
    ("sacct.txt", b"       JobID      State\n------------ ----------\n1   COMPLETED\n", "without submit"),
]


@pytest.mark.parametrize(("name", "data", "says"), BROKEN, ids=[name for name, _, _ in BROKEN])
def test_a_broken_file_gets_one_sentence(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(UserError) as caught:
        load_trace(file)
    message = str(caught.value)
    assert says in message
    assert str(file) in message
    assert "\n" not in message


def test_a_missing_file_and_a_folder_that_is_no_pai_folder_say_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_trace(tmp_path / "nothing.csv")
    with pytest.raises(UserError, match="is a folder without pai_task_table"):
        load_trace(tmp_path)


def test_an_unknown_format_names_the_known_ones(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(TIRESIAS)
    with pytest.raises(UserError, match=r"'excel' is not a trace format; known are .*tiresias"):
        load_trace(file, format="excel")


@pytest.mark.parametrize("format", ["acme", "dally", "dally-json", "gavel", "helios", "openb", "pai", "philly-csv",
                                    "philly-json", "sacct", "sacct-json", "swf", "tiresias"])  # fmt: skip
@pytest.mark.parametrize("data", [b"a,b\n1,2\n", b'{"a": 1}', b"a\tb\n", b"[]"])
def test_a_reader_forced_on_a_foreign_file_still_gives_one_sentence(tmp_path: Path, format: str, data: bytes) -> None:
    file = tmp_path / "foreign.txt"
    file.write_bytes(data)
    with pytest.raises(UserError):
        load_trace(file, format=format)
