"""What `dally twin` is asked for is looked up before anything is read or replayed."""

from __future__ import annotations

import pytest

from dally.cli.main import main

NAMES = [
    (("--policies", "fifo,nosuch"), "there is no policy 'nosuch'"),
    (("--policies", "dally[wait=3h]"), "policy 'dally' has no option 'wait'"),
    (("--policies", "none", "--fabrics", "nosuch"), "there is no fabric 'nosuch'"),
    (("--policies", "none", "--knowledge", "psychic"), "knowledge 'psychic'"),
]


@pytest.mark.parametrize(("words", "sentence"), NAMES)
def test_a_what_if_that_cannot_be_is_refused_before_the_history_is_read(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["twin", "--history", "there-is-no-such-file", *words])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("dally: ") and sentence in said and said.count("\n") == 1
