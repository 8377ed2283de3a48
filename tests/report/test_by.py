"""Figures by user, tenant, size and hour add up to those of the whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dally
from dally.report.by import parts_by

SACCT = "JobID|Submit|Start|End|State|AllocTRES|User|Account\n" + "".join(
    f"{i}|2026-03-01T{10 + i % 3}:30:00|2026-03-01T14:00:00|2026-03-01T14:10:00|COMPLETED|gres/gpu={1 << i % 4}|u{i % 2}|ml\n" for i in range(12))  # fmt: skip


def test_parts_add_up_to_the_whole(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(SACCT)
    run = dally.simulate("fifo", trace=str(tmp_path / "sacct.txt"), cluster="1x1x8").measured.run
    for key, names in (("user", {"u0", "u1"}), ("tenant", {"ml"}), ("size", {"1 GPU", "2", "3–4", "5–8"}), ("hour", {"10:00", "11:00", "12:00"}),
                       ("partition", {"–"})):  # fmt: skip
        parts = parts_by(key, run)
        assert {part.name for part in parts} == names
        assert sum(part.jobs for part in parts) == sum(part.finished for part in parts) == 12
        assert sum(part.gpu_hours for part in parts) == pytest.approx(sum(row.gpu_seconds for row in run.ledger.rows) / 3600)
    assert [part.name for part in parts_by("size", run)] == ["1 GPU", "2", "3–4", "5–8"]


def test_the_command_prints_them_and_explain_knows_the_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dally.cli.main import main

    (tmp_path / "sacct.txt").write_text(SACCT)
    run = ["simulate", "-t", str(tmp_path / "sacct.txt"), "-c", "1x1x8", "-p", "fifo", "-q", "--out", str(tmp_path / "out"), "--by", "user"]
    with pytest.raises(SystemExit):
        main([*run, "--json"])
    assert [part["jobs"] for part in json.loads(capsys.readouterr().out)["by"]["user"]] == [6, 6]
    with pytest.raises(SystemExit):
        main(run)
    assert "u0" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["explain", "0", str(tmp_path / "out")])
    assert "2026-03-01 10:30:00  starts on 1 GPU: 1 of rack0/m0" in capsys.readouterr().out
