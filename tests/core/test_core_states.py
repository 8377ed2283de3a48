"""The life of a job as a table, and the picture of it in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.core.reasons import Token
from dally.core.states import ENDED, TRANSITIONS, IllegalTransition, State, after

PAGE = Path(__file__).parents[2] / "docs" / "states.md"


def picture() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.WAITING.value}"]
    steps = [(a, b, what) for what, moves in TRANSITIONS.items() for a, b in moves.items()]
    order = list(State)
    for a, b, what in sorted(steps, key=lambda s: (order.index(s[0]), order.index(s[1]))):
        lines.append(f"    {a.value} --> {b.value}: {what}")
    lines += [f"    {state.value} --> [*]" for state in State if state in ENDED]
    return "\n".join([*lines, "```"])


def test_the_picture_in_the_docs_is_the_table(update_golden: bool) -> None:
    text = PAGE.read_text()
    block = re.compile(r"```mermaid\n.*?\n```", re.S)
    if update_golden:
        PAGE.write_text(block.sub(lambda _: picture(), text))
        text = PAGE.read_text()
    assert block.search(text).group() == picture()  # type: ignore[union-attr]


@given(st.sampled_from(State), st.sampled_from(sorted(TRANSITIONS)))
def test_what_is_not_in_the_table_cannot_happen(state: State, what: str) -> None:
    if state in TRANSITIONS[what]:
        assert after("j", state, what) is TRANSITIONS[what][state]
    else:
        with pytest.raises(IllegalTransition, match=f"'j' is {state.value} and cannot {what}"):
            after("j", state, what)


@pytest.mark.parametrize("state", sorted(ENDED, key=lambda s: s.value))
def test_an_ended_job_stays_ended(state: State) -> None:
    assert not any(state in moves for moves in TRANSITIONS.values())


def test_every_state_can_be_reached_and_left_or_is_an_end() -> None:
    reached = {State.WAITING} | {to for moves in TRANSITIONS.values() for to in moves.values()}
    left = {a for moves in TRANSITIONS.values() for a in moves}
    assert reached == set(State)
    assert left == set(State) - ENDED


def test_every_reason_token_is_given_by_somebody() -> None:
    source = "".join(file.read_text() for file in (Path(__file__).parents[2] / "src" / "dally").rglob("*.py") if file.parts[-2:] != ("core", "reasons.py"))
    assert [token.name for token in Token if f"Token.{token.name}" not in source] == []
