"""The terminal table: what is marked, what a narrow terminal loses, what the notes say."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dally.report.compared import ReportRun
from dally.report.metrics import Summary
from dally.report.table import COLUMNS, column_texts, plain_table, print_table
from dally.report.wording import column_times


@pytest.fixture
def summaries(few_runs: list[ReportRun]) -> list[Summary]:
    return [run.summary for run in few_runs]


def shown(summaries: list[Summary], width: int, notes: tuple[str, ...] = ()) -> str:
    out = io.StringIO()
    print_table(summaries, notes, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("width", [200, 100, 60])
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(summaries: list[Summary], width: int) -> None:
    text = shown(summaries, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for summary in summaries:
        assert summary.policy in text


@pytest.mark.parametrize("width", [200, 170, 140, 110, 90])
def test_without_colours_it_is_the_same_to_the_byte(summaries: list[Summary], width: int) -> None:
    alike = [replace(each, told="nothing") for each in summaries]
    shared = [replace(summaries[0], policy="a[b=c]", migrations=3), summaries[1]]
    for each in (summaries, alike, shared, summaries[:1], summaries[1:]):
        lines = plain_table(each, width, ("a note",))
        wide = max(map(len, shown(each, 1000, ("a note",)).splitlines()))
        assert lines is not None or wide > width  # something is folded
        if lines is not None:
            assert "\n".join([*lines, ""]) == shown(each, width, ("a note",))


def test_what_must_be_folded_or_is_not_one_place_wide_is_left_to_rich(summaries: list[Summary]) -> None:
    assert plain_table(summaries, 60) is None
    for name in ("策略", "a\u0301", "\x1b[1m"):
        assert plain_table([replace(summaries[0], policy=name)], 200) is None


def test_a_narrow_terminal_says_which_columns_it_left_out(summaries: list[Summary]) -> None:
    assert "Left out" not in shown(summaries, 200)
    narrow = " ".join(shown(summaries, 60).split())
    assert "Left out to fit the terminal: " in narrow
    assert "p95 queueing" in narrow.split("Left out", 1)[1]
    assert "avg JCT" in narrow


def test_the_best_of_a_column_among_those_told_the_same_carries_a_mark_besides_being_bold(summaries: list[Summary]) -> None:
    texts, best = column_texts(COLUMNS[0], summaries)
    assert [each.told for each in summaries] == ["nothing", "exact durations", "nothing"]
    peers = [row for row, each in enumerate(summaries) if each.told == "nothing"]
    winner = min(peers, key=lambda row: summaries[row].avg_jct or 0)
    assert best == {winner}  # srtf was told durations, and there is nobody to be better than
    assert f"{texts[winner]} *" in shown(summaries, 200)


def test_policies_told_the_same_stand_below_each_other_with_a_headline_for_each_group(summaries: list[Summary]) -> None:
    lines = shown(summaries, 200).splitlines()
    order = [line.split()[0] for line in lines[1:6]]
    assert order == ["–", "fifo", "las", "–", "srtf"]
    assert "told nothing" in lines[1] and "told exact durations" in lines[4]
    said = " ".join(lines[6:])
    assert "Told nothing: las wins with an average JCT of" in said and "sooner than the runner-up, fifo" in said
    assert "Told exact durations: srtf is alone" in said and "One run of each: no interval" in said
    alike = [replace(each, told="exact durations") for each in summaries]
    assert "– told" not in shown(alike, 200) and "Told of the future: exact durations." in shown(alike, 200)


def test_nobody_is_best_where_all_are_equal(summaries: list[Summary]) -> None:
    same = [replace(summaries[0], policy=name) for name in ("x", "y")]
    assert all(not column_texts(column, same)[1] for column in COLUMNS)
    assert "best of the column" not in shown(same, 200)


def test_larger_is_better_for_useful_utilisation_only_and_nobody_is_best_for_holding_gpus(summaries: list[Summary]) -> None:
    useful, held = (next(column for column in COLUMNS if column.title == title) for title in ("useful", "utilisation"))
    two = [replace(summaries[0], gpu_utilization=0.9, useful_utilization=0.3), replace(summaries[0], gpu_utilization=0.5, useful_utilization=0.4)]
    assert column_texts(useful, two)[1] == {1}
    assert column_texts(held, two)[1] == set()


def test_who_was_told_more_is_compared_with_those_told_less_where_they_are_no_worse(summaries: list[Summary]) -> None:
    srtf = next(each for each in summaries if each.policy == "srtf")
    more = replace(srtf, policy="more", told="exact durations and speeds", avg_jct=2 * (srtf.avg_jct or 0))
    assert "srtf, told exact durations only, is no worse with 20.7 min" in " ".join(shown([*summaries, more], 200).split())
    assert "is no worse" not in shown(summaries, 200)
    alike = [replace(srtf, policy="a", told="nothing"), replace(srtf, policy="b"), replace(more, avg_jct=srtf.avg_jct)]
    assert "a, told nothing only, and b, told exact durations only, are no worse with" in " ".join(shown(alike, 300).split())


def test_the_notes_tell_what_is_not_in_the_averages(summaries: list[Summary]) -> None:
    two = [replace(summaries[0], rejected=3), replace(summaries[1], rejected=3, complete=False, finished=9)]
    text = " ".join(shown(two, 120, ("Durations are assumed.",)).split())
    assert "3 jobs were turned away because the cluster can never hold them" in text
    assert "Stopped before the end: srtf" in text
    assert "over different jobs" in text
    assert "Durations are assumed." in text


def test_a_column_keeps_to_one_unit() -> None:
    assert column_times([5400.0, 36000.0, None, 18000.0]) == ["1.50 h", "10.0 h", "–", "5.00 h"]
    assert column_times([0.0, 0.0]) == ["0 s", "0 s"]
