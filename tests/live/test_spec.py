"""Jobs as people write them: every mistake is one sentence that names the field, and nothing is lost on the way."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.catalog.clusters import load_cluster
from dally.core.errors import UserError
from dally.core.job import Job
from dally.live.spec import check_levels, check_model, expand, members, read_spec, to_job, to_program

LEAST = {"command": ["python", "train.py"], "gpus": 4}


def test_a_command_and_a_number_of_gpus_are_enough() -> None:
    spec = read_spec(LEAST)
    assert (spec.title, spec.total_gpus, spec.may_be_preempted) == ("python", 4, False)
    assert spec.plain() == LEAST


def test_a_command_as_one_text_is_split_and_seen_by_no_shell() -> None:
    assert read_spec({"command": "echo '$HOME; rm' $(x)", "gpus": 1}).command == ["echo", "$HOME; rm", "$(x)"]


@pytest.mark.parametrize(("fields", "sentence"), [
    ({"gpus": 4}, "command: it is missing"),
    ({"command": ["a"]}, "gpus: it is missing (or nodes together with gpus_per_node)"),
    ({"command": ["a"], "nodes": 2}, "gpus: it is missing (or nodes together with gpus_per_node)"),
    ({"command": [], "gpus": 1}, "command: it must not be empty"),
    ({"command": "", "gpus": 1}, "command: it must not be empty"),
    ({"command": [""], "gpus": 1}, "command: its first word is empty"),
    ({"command": "a 'b", "gpus": 1}, "command: \"a 'b\" cannot be split into words: No closing quotation"),
    ({"command": ["a", "b\0"], "gpus": 1}, "command[1]: it has a zero byte, which no program can be given"),
    ({"command": ["a", "\ud800"], "gpus": 1}, "command[1]: it is not valid text"),
    ({"command": ["a", "x" * 200_000], "gpus": 1}, "command[1]: it is longer than 131071 bytes, the most the system passes on"),
    ({**LEAST, "gpus": "4"}, "gpus: it must be a whole number, not '4'"),
    ({**LEAST, "gpus": 0}, "gpus: it must be at least 1, not 0"),
    ({**LEAST, "gpus": True}, "gpus: it must be a whole number, not True"),
    ({**LEAST, "gpus": 1.5}, "gpus: it must be a whole number, not 1.5"),
    ({**LEAST, "gpus": 10**9}, "gpus: it must be at most 1e+06, not 1000000000"),
    ({**LEAST, "nodes": 2, "gpus_per_node": 2}, "give either gpus or nodes and gpus_per_node"),
    ({"command": ["a"], "nodes": 1000, "gpus_per_node": 4000}, "gpus: 4000000 are more than 1000000"),
    ({**LEAST, "gpsu": 1}, "gpsu: there is no such field; did you mean gpus?"),
    ({**LEAST, "name": "a\nb"}, "name: 'a\\nb' has characters that cannot be printed"),
    ({**LEAST, "user": "../root"}, "user: '../root' has characters that are not allowed here"),
    ({**LEAST, "placement": {}}, "placement: it needs required or preferred, with the name of a level"),
    ({**LEAST, "placement": {"required": "rack", "wait": "10m"}},
     "placement: wait goes with preferred: for a required level a job waits as long as it takes"),
    ({**LEAST, "placement": {"preferred": "rack", "wait": "10x"}},
     "placement.wait: '10x' is not a time: unknown unit 'x'; write it like 90s, 10m or 1.5h"),
    ({**LEAST, "model": "bert", "profile": "x.yaml"}, "give either model or profile"),
    ({**LEAST, "duration": "-1h"}, "duration: '-1h' is negative"),
    ({**LEAST, "duration": 0}, "duration: it must be above 0"),
    ({**LEAST, "duration": float("inf")}, "duration: inf is not a time: it must be finite"),
    ({**LEAST, "checkpoint": {"signal": "KILL"}},
     "checkpoint.signal: it must be one of TERM, INT, HUP, USR1, USR2, QUIT, ALRM, not 'KILL'"),
    ({**LEAST, "checkpoint": {}, "preemptible": False},
     "preemptible: a job that is never preempted needs no checkpoint; leave one of them out"),
    ({**LEAST, "requeue_on": [0]}, "requeue_on[0]: it must be at least 1, not 0"),
    ({**LEAST, "environment": {"A B": "1"}}, "environment: 'A B' is not the name of a variable"),
    ({**LEAST, "environment": {"DALLY_JOB": "1"}},
     "environment: DALLY_JOB: names that begin with DALLY_ are the service's own"),
    ({**LEAST, "environment": {"A": True}}, "environment.A: it must be a text, not True"),
    ({**LEAST, "after": ["../1"]}, "after[0]: '../1' is not the id of a job"),
    ({**LEAST, "begin": 10}, "begin: write 10m (from now), a date such as 2026-11-20T08:00, or Unix seconds, not 10"),
    ({**LEAST, "begin": "soon"}, "begin: write 10m (from now) or a date such as 2026-11-20T08:00, not 'soon'"),
    ({**LEAST, "array": "5-1"}, "array: '5-1' is not an array: '5-1' counts nothing"),
    ({**LEAST, "array": "0-99999999"}, "array: '0-99999999' has more than 10000 members"),
    ({**LEAST, "processes": "core"}, "processes: it must be 'machine' or 'gpu', not 'core'"),
    ("train.py", "it must be a mapping of fields to values, not 'train.py'"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence_with_its_field(fields: Any, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        read_spec(fields)
    assert str(caught.value) == sentence


WORDS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=20)
SPECS = st.fixed_dictionaries(
    {"command": st.lists(WORDS, min_size=1, max_size=4), "gpus": st.integers(1, 64)},
    optional={
        "name": st.text(st.characters(whitelist_categories=("L", "N")), min_size=1, max_size=20),
        "queue": st.sampled_from(["vision", "a.b-c"]),
        "priority": st.integers(-5, 5),
        "placement": st.sampled_from([{"required": "rack"}, {"preferred": "rack", "wait": "10m"},
                                      {"preferred": "machine", "wait": "forever"}]),
        "duration": st.sampled_from(["10m", 90, "1.5h"]),
        "checkpoint": st.sampled_from([{}, {"grace": "1m"}, {"signal": "SIGUSR1", "directory": "/tmp/c"}]),
        "requeue_on": st.lists(st.integers(1, 255), max_size=3),
        "environment": st.dictionaries(st.sampled_from(["A", "B_1"]), WORDS | st.integers()),
        "array": st.sampled_from(["0-3", "1,5,9", "0-20:5"]),
        "after": st.lists(st.integers(1, 100), max_size=2),
        "begin": st.sampled_from(["10m", 1.8e9, "2030-01-01T00:00"]),
        "hold": st.booleans(),
    },
)  # fmt: skip


@given(SPECS)
def test_a_job_that_is_written_and_read_again_is_the_same_job(fields: dict[str, Any]) -> None:
    import json

    spec = read_spec(fields)
    assert read_spec(json.loads(json.dumps(spec.plain()))) == spec


def test_a_job_with_a_checkpoint_may_be_preempted_and_one_without_may_not_unless_it_says_so() -> None:
    assert read_spec({**LEAST, "checkpoint": {}}).may_be_preempted
    assert not read_spec(LEAST).may_be_preempted
    assert read_spec({**LEAST, "preemptible": True}).may_be_preempted


def test_begin_counts_from_now_where_it_is_a_time() -> None:
    before = time.time()
    begin = read_spec({**LEAST, "begin": "10m"}).begin
    assert begin is not None and before + 600 <= begin <= time.time() + 600
    assert read_spec({**LEAST, "begin": "2030-01-01T00:00+00:00"}).begin == 1893456000.0


def test_arrays_count_as_they_are_written() -> None:
    assert members("0-3") == (0, 1, 2, 3)
    assert members("7,1-2,2") == (7, 1, 2)
    assert members("0-10:5") == (0, 5, 10)


def test_every_member_of_an_array_is_a_job_of_its_own_that_knows_its_number() -> None:
    found = expand(read_spec({**LEAST, "array": "3-4", "environment": {"A": "x"}}))
    assert [(number, spec.array, spec.environment) for number, spec in found] == [
        (3, None, {"A": "x", "ARRAY_INDEX": "3"}), (4, None, {"A": "x", "ARRAY_INDEX": "4"})]  # fmt: skip
    assert expand(read_spec(LEAST)) == [(None, read_spec(LEAST))]


def test_the_scheduler_is_told_what_the_job_says_of_itself() -> None:
    spec = read_spec({**LEAST, "gpus": 8, "user": "alice", "queue": "vision", "priority": 3, "duration": "1h",
                      "time_limit": "2h", "gpu_type": "a100", "model": "resnet50", "checkpoint": {},
                      "placement": {"required": "rack", "preferred": "machine", "wait": "10m"}})  # fmt: skip
    job = to_job(spec, "42", 5.0)
    assert (job.id, job.submit_time, job.gpus, job.user, job.tenant, job.priority) == ("42", 5.0, 8, "alice", "vision", 3)
    assert (job.declared_duration, job.gpu_type, job.model) == (3600.0, "a100", "resnet50")
    wanted = {"preemptible": True, "within": "rack", "prefers": "machine", "wait": 600.0}
    there = {each.name for each in dataclasses.fields(Job)}
    assert {name: getattr(job, name) for name in wanted if name in there} == {
        name: value for name, value in wanted.items() if name in there}  # fmt: skip


def test_a_time_limit_is_a_declaration_where_there_is_no_other() -> None:
    assert to_job(read_spec({**LEAST, "time_limit": "2h"}), "1", 0.0).declared_duration == 7200.0
    assert to_job(read_spec(LEAST), "1", 0.0).declared_duration is None


def test_one_node_is_one_machine_and_several_only_say_how_many_gpus() -> None:
    assert read_spec({"command": ["a"], "nodes": 1, "gpus_per_node": 4}).required_level == "machine"
    several = read_spec({"command": ["a"], "nodes": 2, "gpus_per_node": 4})
    assert (several.total_gpus, several.required_level) == (8, None)


def test_the_engine_is_told_what_to_run_and_how_to_ask_it_to_leave() -> None:
    spec = read_spec({**LEAST, "name": "a/b", "environment": {"A": 1}, "directory": "/tmp", "time_limit": "1h",
                      "checkpoint": {"grace": "30s"}, "output": "/tmp/%x-%j-%A-%a-%%.log"})  # fmt: skip
    program = to_program(spec, "42_7")
    assert (program.command, program.environment, program.directory, program.grace) == (
        ("python", "train.py"), {"A": "1"}, "/tmp", 30.0)  # fmt: skip
    if hasattr(program, "output"):
        assert program.output == "/tmp/a_b-42_7-42-7-%.log"


def test_a_level_the_cluster_does_not_have_is_refused_with_those_it_has() -> None:
    spec = read_spec({**LEAST, "placement": {"required": "pod"}})
    with pytest.raises(UserError, match=r"placement.required: this cluster has no level 'pod'; it has .*rack"):
        check_levels(spec, load_cluster("2x2x4"))
    check_levels(read_spec({**LEAST, "placement": {"required": "rack"}}), load_cluster("2x2x4"))


def test_a_model_nobody_knows_is_refused() -> None:
    with pytest.raises(UserError, match=r"^model: "):
        check_model(read_spec({**LEAST, "model": "no-such-model"}))
    with pytest.raises(UserError, match=r"^profile: .*cannot be read"):
        check_model(read_spec({**LEAST, "profile": "/no/such/profile.yaml"}))
    check_model(read_spec({**LEAST, "model": "resnet50"}))


def test_a_profile_that_is_gone_after_submission_says_nothing_and_breaks_nothing() -> None:
    gone = read_spec({**LEAST, "profile": "/no/such/profile.yaml"})
    assert to_job(gone, "1", 0.0).reference is None and to_program(gone, "1").command == ("python", "train.py")
