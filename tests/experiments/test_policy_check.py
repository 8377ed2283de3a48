"""`dally policy check` finds what is broken, `dally policy new` writes what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dally.cli.main import main
from dally.experiments.checks.checking import check_policy
from dally.experiments.checks.properties import PROPERTIES
from dally.policies.options import all_policies

HEAD = """from dataclasses import dataclass
from dally.core.events import StartFailed
from dally.policies.writing import *
from dally.policies.las import Las
from dally.policies.srtf import Srtf


class Mine({base}):
    title = "mine"

    @dataclass(frozen=True, slots=True)
    class Options({base}.Options):
        pass

"""
# property → (what it is made from, the mistake)
BROKEN = {
    "asking": ("Las", """    seen = 0
    def plan(self, view, memory, now):
        self.seen += 1
        return super().plan(view, memory, now) if self.seen % 2 else [Wait(d, Reason(Token.PRIORITY, "not now")) for d in view.waiting.buckets]
"""),
    "memory": ("Las", """    def attach(self, view, memory):
        self.ended = set()
    def hear(self, view, memory, now, entries):
        self.ended.update(e.job for e in entries if type(e).__name__ == "Finished")
        return list(view.waiting)
    def rank(self, view, memory, job, now):
        return Rank(float(job.number if len(self.ended) % 2 else -job.number))
    preempts = False
"""),
    "knowledge": ("Srtf", "    uses = frozenset()\n"),
    "holds": ("Las", """    def new_memory(self):
        self.released = set()
        return super().new_memory()
    def hear(self, view, memory, now, entries):
        self.released.update(e.job for e in entries if type(e).__name__ == "Released")
        return ()
    def plan(self, view, memory, now):
        return [a for a in super().plan(view, memory, now) if not isinstance(a, Start) or a.job not in self.released]
"""),
    "levels": ("Las", """    def plan(self, view, memory, now):
        return [a for a in super().plan(view, memory, now) if not isinstance(a, Start) or view.job(a.job).job.within is None]
"""),
    "shapes": ("Las", """    def plan(self, view, memory, now):
        return plan_by_rank(view, now, lambda free, demand: place_any(free, demand._replace(where=None)), preempt=False)
from dally.policies.placing import place_any
"""),
    "queues": ("Las", """    def plan(self, view, memory, now):
        return [a for a in super().plan(view, memory, now) if not isinstance(a, Start) or view.job(a.job).job.tenant != "b"]
"""),
    "nobody-forgotten": ("Las", """    def plan(self, view, memory, now):
        return [a for a in super().plan(view, memory, now) if not isinstance(a, Start) or a.job != "j0"]
"""),
    "late-starts": ("Las", """    def new_memory(self):
        self.failed = set()
        return super().new_memory()
    def hear(self, view, memory, now, entries):
        self.failed.update(e.job for e in entries if isinstance(e, StartFailed))
        return ()
    def plan(self, view, memory, now):
        return [a for a in super().plan(view, memory, now) if not isinstance(a, Start) or a.job not in self.failed]
"""),
    "taken-over": ("Las", """    def new_memory(self):
        self.mine = set()
        return super().new_memory()
    def plan(self, view, memory, now):
        self.mine.update(j.id for j in view.waiting if j.state is State.WAITING and j.preemptions == 0 and j.last_change == now)
        return [a for a in super().plan(view, memory, now) if not isinstance(a, Start) or a.job in self.mine]
"""),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_property_is_found(broken: str, tmp_path: Path) -> None:
    base, code = BROKEN[broken]
    (tmp_path / "mine.py").write_text(HEAD.format(base=base) + code)
    (finding,) = check_policy(f"{tmp_path}/mine.py", worlds=30, only=[broken])
    assert not finding.holds, finding
    assert finding.what and finding.world is not None


def test_a_new_policy_passes_every_check_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, code, said in (
        (["policy", "new", "my-first"], 0, "my-first.py: run it with"),
        (["policy", "new", "my-first"], 2, "is there already"),
        (["policy", "new", "1st"], 2, "is no name for a policy"),
        (["policy", "check", "my-first.py", "--worlds", "4"], 0, f"all {len(PROPERTIES)} properties hold in 4 small worlds"),
        (["policy", "check", "my-first.py", "--only", "nonsense"], 2, "there is no property 'nonsense'; there are: ends, gpus"),
        (["policy", "check", "nobody.py"], 2, "there is no policy file 'nobody.py'"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(words)
        out = capsys.readouterr()
        assert ended.value.code == code and said in out.out + out.err


def test_a_failed_check_says_which_world_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    base, code = BROKEN["knowledge"]
    Path("mine.py").write_text(HEAD.format(base=base) + code)
    with pytest.raises(SystemExit) as ended:
        main(["policy", "check", "mine.py", "--only", "ends,knowledge", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1 and [each["holds"] for each in found] == [True, False]
    assert "told other durations it decides otherwise" in found[1]["what"]
    again = ["policy", "check", found[1]["policy"], "--only", "knowledge", "--first", str(found[1]["world"]), "--worlds", "1"]
    with pytest.raises(SystemExit) as ended:
        main(again)
    said = capsys.readouterr().out
    assert ended.value.code == 1 and "BROKEN knowledge" in said and f"world {found[1]['world']}: " in said


@pytest.mark.parametrize("name", [name for name, _ in all_policies()])
def test_every_registered_policy_keeps_what_it_says_of_its_knowledge(name: str) -> None:
    for finding in check_policy(name, worlds=12, only=["knowledge", "taken-over", "killed"]):
        assert finding.holds, finding
