"""JSON read part by part says what the whole document says, and holds one entry at a time."""

from __future__ import annotations

import gc
import io
import json
import random
from pathlib import Path
from typing import IO, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.core.errors import UserError
from dally.traces import load_trace
from dally.traces.json_parts import NotSoError, Part, parts, parts_of

VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
                      lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)  # fmt: skip


class Drop(io.BytesIO):
    """A stream that gives a few bytes at a time, whatever is asked for."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(3, size) if size is not None and size > 0 else size)


def of(text: str) -> list[Part]:
    return list(parts(cast("IO[bytes]", Drop(text.encode()))))


@settings(max_examples=150, deadline=None)
@given(document=st.lists(VALUES) | st.dictionaries(st.text(), VALUES), blank=st.sampled_from([None, 1, "\t"]))
def test_parts_are_those_of_the_whole_document(document: Any, blank: int | str | None) -> None:
    assert of(json.dumps(document, indent=blank)) == list(parts_of(document))


@pytest.mark.parametrize("text", ["", "[1, 2", '{"jobs": [{}', '{"a" 1}', "[1,]", "[1] 2", "{1: 2}", "nothing", '{"a": 01}',
                                  "[" * 100_000])  # fmt: skip
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(NotSoError):
        of(text)


def job(number: int) -> dict[str, Any]:
    begin = 1_770_000_000 + 60 * number
    return {"job_id": number, "state": {"current": ["COMPLETED"]}, "user": f"uü{number % 3}", "partition": "gpu", "nodes": "n1",
            "allocation_nodes": 1, "time": {"submission": begin, "start": begin + 5, "end": begin + 65, "elapsed": 60},
            "tres": {"allocated": [{"type": "gres", "name": "gpu:a100", "count": 2}]}}  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_dump_reads_the_same_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "jobs.json"
    path.write_bytes(json.dumps({"meta": {}, "jobs": [job(n) for n in range(50)]}, ensure_ascii=False).encode(encoding))
    found = load_trace(path)
    assert len(found) == 50 and found.jobs[1].user == "uü1" and found.truths[7].start == 425.0


def test_a_dump_that_is_cut_short_says_where(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps({"jobs": [job(n) for n in range(50)]})[:-40], encoding="utf-8")
    with pytest.raises(UserError, match="is cut short: line 1, column"):
        load_trace(path)


def test_the_time_of_asking_may_stand_behind_the_jobs(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    running = {"job_id": 1, "job_state": ["RUNNING"], "submit_time": 1_770_000_000, "start_time": 1_770_000_100, "end_time": 1_770_009_999,
               "node_count": 1, "nodes": "n1", "tres_alloc_str": "gres/gpu=2", "time_limit": 600}  # fmt: skip
    path.write_text(json.dumps({"jobs": [running], "last_update": 1_770_000_400}), encoding="utf-8")
    assert load_trace(path).truths[0].duration == 300


def test_a_long_list_is_not_in_memory_whole() -> None:
    rng = random.Random(1)
    text = json.dumps({"jobs": [{"n": n, "padding of an entry": rng.randbytes(500).hex()} for n in range(2000)]})
    most = 0
    for count, _ in enumerate(parts(cast("IO[bytes]", io.BytesIO(text.encode())))):
        if count % 500 == 0:
            most = max(most, sum("padding of an entry" in each for each in gc.get_objects() if type(each) is dict))
    assert most < 5
