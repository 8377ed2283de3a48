"""Makes the reference results beside it: the authors' programs on jobs drawn here.

python tests/references/make.py --tiresias PATH --python2 PROGRAM --gavel PATH
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from unittest import mock

from dally.experiments.released import comparing, gavel, tiresias

HERE = Path(__file__).parent
TIRESIAS = {"jobs": 100, "seed": 11}
GAVEL = {"jobs": 36, "seed": 11}


def kept(module: object, *arguments: object, **more: object) -> dict[str, dict[str, float]]:
    """The JCTs of theirs, by what they call the policy."""
    found: dict[str, dict[str, float]] = {}

    def keep(theirs: str, ours: str, their_jcts: dict[str, float], *rest: object) -> object:
        found[theirs] = {name: round(jct, 6) for name, jct in sorted(their_jcts.items(), key=lambda pair: int(pair[0]))}
        return comparing.compared(theirs, ours, their_jcts, *rest)  # type: ignore[arg-type]

    with mock.patch.object(module, "compared", keep):
        list(module.against(*arguments, **more))  # type: ignore[attr-defined]
    return found


def write(name: str, drawn: dict[str, int], jcts: dict[str, dict[str, float]]) -> None:
    (HERE / name).write_text(json.dumps({"drawn": drawn, "jct": {k: list(v.values()) for k, v in jcts.items()}}, indent=None) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--tiresias", "--python2", "--gavel"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    schedules = [name for name in tiresias.SCHEDULES if "gittins" not in name]  # their distribution is theirs
    write("released-tiresias.json", TIRESIAS, kept(tiresias, Path(given.tiresias), given.python2, schedules=schedules, **TIRESIAS))
    write("released-gavel.json", GAVEL, kept(gavel, Path(given.gavel), None, **GAVEL))


if __name__ == "__main__":
    main()
