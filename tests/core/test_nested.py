"""Short files that stand for more than fits anywhere: counted, not written out, and refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from dally.cli.main import main
from dally.core.nested import written_out

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)
)


def test_parts_count_as_often_as_they_are_used() -> None:
    part = [1, 2]
    assert written_out(3) == 1 and written_out(part) == 3 and written_out({"a": part, "b": [part]}) == 10
    circle: list[object] = []
    circle.append([circle])
    assert written_out(circle) == math.inf
    assert written_out(yaml.safe_load(BOMB)) > 1e20 and written_out(yaml.compose(BOMB)) > 1e20


@pytest.mark.parametrize(
    "words",
    [("simulate", "-t", "synth:philly", "-c", "1x2x4", "-p", "fifo", "--scenario"), ("sweep",), ("clusters",), ("profile", "show"),
     ("simulate", "-t", "synth:philly", "-c", "1x2x4", "-p", "fifo", "--queues"), ("simulate", "-t", "synth:philly", "-p", "fifo", "-c")],
)  # fmt: skip
def test_a_yaml_bomb_is_one_sentence(words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text("dally-cluster: 1\ndally-profile: 1\n" + BOMB, encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main([*words, str(path)])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("dally: ") and said.count("\n") == 1 and ("hold each other" in said or "no file" in said), said
