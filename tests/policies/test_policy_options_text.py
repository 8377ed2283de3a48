"""Policies by text: `name[option=value,…]`."""

from __future__ import annotations

import dataclasses
import itertools
import types
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.core.errors import UserError
from dally.policies.options import (
    Condition,
    OptionInfo,
    all_policies,
    describe_options,
    make_policy,
    option,
    refuse_idle_options,
    split_policies,
    unless,
    when,
    written,
)  # fmt: skip

POLICIES = dict(all_policies())


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_without_options_is_written_as_its_name(name: str) -> None:
    assert make_policy(name).name == name


@pytest.mark.parametrize("name", POLICIES)
def test_every_option_says_what_it_does_and_where_its_default_comes_from(name: str) -> None:
    for info in describe_options(POLICIES[name]):
        assert isinstance(info, OptionInfo)
        assert info.help and info.source and info.values, (name, info.name)


# what an option needs beside it that a list of conditions does not say: it may also come from a file
BESIDE = {("slurm", "favor_small", "true"): ",priority=multifactor,weight_jobsize=1",
          ("slurm", "fair_tree", "false"): ",priority=multifactor,weight_fairshare=1",
          ("slurm", "whole_nodes", "false"): ",bf_job_part_count_reserve=1",
          **{("slurm", "associations", each): ",priority=multifactor,weight_fairshare=1"
             for each in ("accounts", "parents", "partitions")},
          ("slurm", "preempt", "partition"): ",tiers=a:2", ("slurm", "preempt", "qos"): ",tenant=qos"}  # fmt: skip


@pytest.mark.parametrize("name", POLICIES)
def test_every_choice_of_every_listed_option_makes_a_policy_that_is_written_the_same_way(name: str) -> None:
    hints = typing.get_type_hints(POLICIES[name].Options)
    for field in dataclasses.fields(POLICIES[name].Options):
        hint = hints[field.name]
        values: list[str] = []
        for kind in typing.get_args(hint) if typing.get_origin(hint) is types.UnionType else (hint,):
            if typing.get_origin(kind) is typing.Literal:
                values += [str(v) for v in typing.get_args(kind)]
            elif kind is bool:
                values += ["true", "false"]
        where = "".join(f",{other}={choices[0]}" for condition in field.metadata.get("only_with", ())
                        if condition.counts for other, choices in condition.others[:1])  # fmt: skip
        for value in values:
            idle = value == str(field.default).lower()  # what is not written cannot be refused
            beside = BESIDE.get((name, field.name, value), "" if idle else where)
            made = make_policy(f"{name}[{field.name}={value}{beside}]")
            assert make_policy(made.name).name == made.name
            assert str(getattr(made.options, field.name)).lower() == value  # type: ignore[attr-defined]


@given(st.floats(0, 1e12, allow_nan=False, allow_subnormal=False), st.booleans(),
       st.sampled_from(["any", "spread", "best-fit"]))  # fmt: skip
def test_what_is_written_makes_exactly_the_same_policy_again(quantum: float, gpu_time: bool, rule: str) -> None:
    las = POLICIES["las"]
    options = las.Options(quantum=quantum, placement=rule)
    again = make_policy(written("las", options))
    assert again.options == options  # type: ignore[attr-defined]
    srtf = POLICIES["srtf"].Options(gpu_time=gpu_time, placement=rule)
    assert make_policy(written("srtf", srtf)).options == srtf  # type: ignore[attr-defined]


@pytest.mark.parametrize(("text", "value"), [("10m", 600.0), ("90", 90.0), ("1.5h", 5400.0)])
def test_times_are_written_as_people_write_them(text: str, value: float) -> None:
    assert make_policy(f"las[quantum={text}]").options.quantum == value  # type: ignore[attr-defined]


@pytest.mark.parametrize(("text", "says"), [
    ("fifoo", "there is no policy 'fifoo'; there are: .*fifo.*las.*smallest.*srtf"),
    ("fifo[speed=3]", "has no option 'speed'; it has: backfill, placement"),
    ("fifo[backfill]", "option 'backfill' has no value; write backfill=… with true | false | any | easy | conservative"),
    ("fifo[backfill=maybe]", "backfill='maybe' is not valid; it takes true | false | any | easy | conservative"),
    ("fifo[placement=corner]", "it takes any | consolidated | spread | best-fit"),
    ("fifo[backfill=true,backfill=true]", "given twice"),
    ("las[quantum=-1]", "it takes time, and nothing below 0"),
    ("dally[timers=auto,breadth=0.5]", "breadth would do nothing here: it belongs to timers=value"),
    ("las[quantum=soon]", "it takes time"),
    ("fifo[placement=any", "is not a policy; write name"),
    ("", "is not a policy; write name"),
    ("missing.py", "there is no policy file 'missing.py'"),
])  # fmt: skip
def test_a_mistake_is_one_sentence_with_the_valid_names(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        make_policy(text)


CONDITIONS = [(name, field.name, condition) for name, maker in POLICIES.items()
              for field in dataclasses.fields(maker.Options)
              for condition in field.metadata.get("only_with", ())]  # fmt: skip


@pytest.mark.parametrize(("policy", "option", "condition"), CONDITIONS)
def test_an_option_depends_on_values_that_other_options_really_take(
    policy: str, option: str, condition: Condition
) -> None:
    known = {field.name: field.default for field in dataclasses.fields(POLICIES[policy].Options)}
    hints = typing.get_type_hints(POLICIES[policy].Options)
    assert condition.why
    for other, values in condition.others:
        assert other in known and other != option
        if typing.get_origin(hints[other]) is typing.Literal:
            assert set(values) < set(typing.get_args(hints[other])), "on all of them is on none"
        else:
            assert all(isinstance(value, hints[other]) for value in values)


@dataclasses.dataclass(frozen=True)
class Choices:
    colour: str = option("red", "of the rose")
    thorns: int = option(3, "how many", only_with=unless("roses without a stem have none", stem=False))
    stem: bool = option(True, "whether there is one")
    tint: float = option(0.5, "how dark", only_with=(
        when("white is always the same", colour=("red", "pink")), when("nobody sees it", thorns=(3, 4), stem=True)))


@pytest.mark.parametrize(("chosen", "says"), [
    (Choices(thorns=4, stem=False), "policy 'rose': thorns would do nothing here: roses without a stem have none"),
    (Choices("white", tint=1.0), "policy 'rose': tint would do nothing here: white is always the same"),
    (Choices(thorns=5, stem=False), "thorns would do nothing here"),
    (Choices(stem=False, tint=0.1), None),  # the default of thorns is as good as any that makes it count
    (Choices("pink", tint=0.1), None),
    (Choices("white", 3, False), None),  # what was not changed is not refused
])  # fmt: skip
def test_an_option_that_would_do_nothing_is_refused_with_the_sentence_that_says_why(
    chosen: Choices, says: str | None
) -> None:
    if says is None:
        refuse_idle_options("rose", chosen)
        return
    with pytest.raises(UserError, match=says):
        refuse_idle_options("rose", chosen)


def test_the_listing_says_where_an_option_counts() -> None:
    told = {info.name: info.only_with for info in describe_options(POLICIES["tiresias"])}
    assert told["variant"] == ""
    assert told["distribution"] == "only with index=gittins"
    assert told["quantum"] == "only with continuous=true or queues=1 or variant=dally-paper"
    assert told["promote"] == "not with variant=dally-paper; not with continuous=true or queues=1"
    assert "only with placement=auto|profile" in told["pack_limit"]


def test_commas_inside_brackets_belong_to_the_options() -> None:
    assert split_policies("fifo, srtf[gpu_time=true,placement=any],las") == [
        "fifo", "srtf[gpu_time=true,placement=any]", "las"]  # fmt: skip
    with pytest.raises(UserError, match="empty place"):
        split_policies("fifo,,las")


OWN = """
from dataclasses import dataclass
from dally.policies.fifo import Fifo

class Mine(Fifo):
    '''My own rule.'''
    title = "mine"
"""


def test_a_policy_can_come_from_ones_own_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    assert make_policy(f"{file}[backfill=true]").name == "mine[backfill=true]"


@pytest.mark.parametrize(("text", "says"), [
    ("x = 1", "it has 0"), ("import nowhere_at_all", "cannot be loaded"), ("def (", "cannot be loaded"),
    (OWN + "\nclass Other(Fifo):\n    title = 'other'\n", "it has 2"),
])  # fmt: skip
def test_a_file_without_exactly_one_policy_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(UserError, match=says):
        make_policy(str(file))


def test_policies_are_listed_in_order_of_name() -> None:
    names = [name for name, _ in all_policies()]
    assert all(a < b for a, b in itertools.pairwise(names))
    assert {"fifo", "las", "smallest", "srtf"} <= set(names)
