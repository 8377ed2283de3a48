"""The own format: what is written is what is read, and what is wrong is named with its line."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dally.core.errors import UserError
from dally.core.job import DurationMeans, Ending, Job, Truth
from dally.traces import Trace, load_trace, validate_trace, write_trace

number = st.floats(allow_nan=False, allow_infinity=False, min_value=0, max_value=1e300)
name = st.one_of(st.none(), st.text(max_size=12))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    ids = draw(st.lists(st.text(max_size=12), unique=True, min_size=1, max_size=6))
    submits = sorted(draw(st.lists(number, min_size=len(ids), max_size=len(ids))))
    jobs, truths = [], []
    for ident, submit in zip(ids, submits, strict=True):
        gpus = draw(st.integers(1, 2**40))
        jobs.append(Job(
            ident, submit, gpus, gpu_type=draw(name), model=draw(name), user=draw(name), tenant=draw(name),
            priority=draw(st.integers(-(2**60), 2**60)), declared_duration=draw(st.none() | number),
            declared_steps=draw(st.none() | number), deadline=draw(st.none() | number),
            gpu_fraction=draw(st.floats(0.001, 1)) if gpus == 1 else 1.0,
            min_gpus=draw(st.none() | st.integers(1, gpus)),
            max_gpus=draw(st.none() | st.integers(gpus, 2**41)),
            slo=draw(st.none() | st.floats(0.001, 1e6)), within=draw(name), prefers=draw(name),
            wait=draw(st.none() | number | st.just(math.inf)), preemptible=draw(st.booleans())))  # fmt: skip
        duration = draw(st.none() | number)
        truths.append(Truth(
            duration, draw(number) if duration is None else draw(st.none() | number), draw(st.sampled_from(Ending)),
            draw(st.none() | number), tuple(sorted(draw(st.sets(st.floats(0, 1), max_size=3)))),
            tuple(draw(st.lists(st.tuples(st.text(max_size=8), st.integers(1, 16)), max_size=3))),
            draw(st.sampled_from(DurationMeans))))  # fmt: skip
    counts = st.dictionaries(st.text(max_size=8), st.integers(1, 9), max_size=2)
    return Trace(draw(st.text(max_size=8)), draw(st.text(max_size=8)), jobs, truths, Counter(draw(counts)),
                 Counter(draw(counts)), draw(st.lists(st.text(max_size=8), max_size=2)), draw(name))  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces())
def test_every_field_survives_a_round_trip(tmp_path: Path, ending: str, trace: Trace) -> None:
    file = tmp_path / f"trace.{ending}"
    write_trace(trace, file)
    assert load_trace(file) == trace


def one(**fields: object) -> str:
    return "# dally-trace 1\n" + ",".join(fields) + "\n" + ",".join(str(value) for value in fields.values()) + "\n"


def test_a_file_written_by_hand_needs_only_four_columns(tmp_path: Path) -> None:
    file = tmp_path / "hand.csv"
    file.write_text("# dally-trace 1\nid,submit_time,gpus,duration\nb,60,8,3600\na,0,1,1.5\n")
    trace = load_trace(file)
    assert [job.id for job in trace.jobs] == ["a", "b"]
    assert trace.truths[0] == Truth(1.5)


@pytest.mark.parametrize(("text", "says"), [
    (one(id="a", submit_time=0, gpus=0, duration=5), "line 3, gpus: a job needs at least one"),
    (one(id="a", submit_time=0, gpus="1.5", duration=5), "line 3, gpus: '1.5' is not a whole number"),
    (one(id="a", submit_time=0, gpus=2, duration=5, min_gpus=3), "min_gpus: lies between 1 and gpus, 2"),
    (one(id="a", submit_time=0, gpus=2, duration=5, min_gpus=0), "min_gpus: lies between 1 and gpus, 2"),
    (one(id="a", submit_time=0, gpus=2, duration=5, slo=0), "slo: is a multiple of the run time"),
    (one(id="a", submit_time=0, gpus=2, duration=5, max_gpus=1), "max_gpus: is not below gpus, 2"),
    (one(id="a", submit_time=0, gpus=2, duration=5, gpu_fraction=0.5), "only a job of one GPU can ask for a share"),
    (one(id="a", submit_time=0, gpus=2), "line 3, duration: neither duration nor steps is given"),
    (one(id="a", submit_time=0, gpus=2, duration=-1), "line 3, duration: is below 0"),
    (one(id="a", submit_time=0, gpus=2, duration=1, wait=-1), "line 3, wait: is below 0"),
    (one(id="a", submit_time=0, gpus=2, duration=1, wait="nan"), "line 3, wait: 'nan' is not a number"),
    (one(id="a", submit_time=0, gpus=2, duration=1, preemptible="perhaps"), "preemptible: 'perhaps' is neither true nor false"),
    (one(id="a", submit_time=0, gpus=2, duration=1, ending="dead"), "line 3, ending: 'dead'"),
    (one(id="", submit_time=0, gpus=2, duration=1), "line 3, id: is missing"),
    (one(id="a", submit_time=0, gpus=2, duration=1, failures="[2]"), "line 3, failures: are fractions"),
    (one(id="a", submit_time=0, gpus=2, duration=1, colour="red"), "line 2: the header has unknown columns 'colour'"),
    (one(id="a", submit_time=0, gpus=2, duration=1) + "a,1,1,1\n", "line 4, id: used before"),
])  # fmt: skip
def test_a_mistake_is_named_with_line_and_field(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "own.csv"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load_trace(file)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_validation_lists_every_mistake_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("# dally-trace 1\nid,submit_time,gpus,duration\na,x,y,5\nb,1,1,5\nb,2,1,5\nc,3,1,\n")
    found = validate_trace(file)
    assert not found.ok
    assert found.sentences() == [
        "1. line 3, job 'a': submit_time: 'x' is not a number (dropped)",
        "2. line 3, job 'a': gpus: 'y' is not a number (dropped)",
        "3. line 5, job 'b': id: used before (dropped)",
        "4. line 6, job 'c': duration: neither duration nor steps is given (dropped)",
    ]
    assert [job.id for job in found.trace.jobs] == ["b"]


def test_another_ending_and_a_folder_that_is_not_there_are_refused(tmp_path: Path) -> None:
    trace = Trace("t", "f", [Job("a", 0, 1)], [Truth(1.0)])
    with pytest.raises(UserError, match=r"written as \.csv or \.parquet, not '\.xlsx'"):
        write_trace(trace, tmp_path / "t.xlsx")
    with pytest.raises(UserError, match="cannot be written"):
        write_trace(trace, tmp_path / "nowhere" / "t.csv")


def test_a_foreign_parquet_file_is_no_trace(tmp_path: Path) -> None:
    import polars as pl

    file = tmp_path / "t.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(file)
    with pytest.raises(UserError, match="is a Parquet file but no trace"):
        load_trace(file)
