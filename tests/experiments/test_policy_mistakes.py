"""Mistakes in a policy, each named in one sentence with exit code 1, and never a run that looks as if it were one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dally.cli.main import main

HEAD = """from dataclasses import dataclass
from dally.policies.writing import *
from dally.policies.fifo import Fifo
BUSY = Reason(Token.WAITING_FOR_GPUS, "as it says")


def waits(view):
    return [Wait(demand, BUSY) for demand in view.waiting.buckets]


class Mine(Fifo):
    title = "mine"
    preempts = True

    @dataclass(frozen=True, slots=True)
    class Options(Fifo.Options):
        pass

"""
# a gang of all GPUs is started, taken off and started again before it has loaded anything
CIRCLES = """    def plan(self, view, memory, now):
        plan = []
        with view.free.trial() as free:
            for job in list(view.preemptible):
                plan.append(Preempt(job.id))
                free.give(job.placement)
            for job in view.waiting.ordered(now)[:1]:
                placement = self.place(free, job.demand)
                if placement is not None:
                    plan.append(Start(job.id, placement))
        return [*plan, *waits(view), WakeAt(now + 5.0)]
"""
MISTAKES = {
    "starts nobody": ("    def plan(self, view, memory, now):\n        return waits(view)\n",
                      "leaves job 'a' waiting for ever: 3 jobs wait at the end, 8 GPUs are free"),
    "woken in vain": ("    def plan(self, view, memory, now):\n        return [*waits(view), WakeAt(now + 3600.0)]\n",
                      "times in a row and starts nobody, though 8 GPUs are free and 3 jobs wait"),
    "woken too often": ("    def plan(self, view, memory, now):\n        return [*super().plan(view, memory, now), WakeAt(now + 1e-3)]\n",
                        "no job arrived or ended meanwhile (does it ask to be woken too soon?)"),
    "preempts in circles": (CIRCLES, "none of the 3 there are got on by a step"),
    "rank is no number": ("    def rank(self, view, memory, job, now):\n        return Rank(float('nan'))\n",
                          "policy 'mine', job 'a': its rank is not a number (NaN)"),
    "tie is no number": ("    def rank(self, view, memory, job, now):\n        return Rank(0.0, tie=(float('nan'),))\n",
                         "policy 'mine', job 'a': its rank is not a number (NaN)"),
    "rank is no rank": ("    def rank(self, view, memory, job, now):\n        return 3.0\n", "its rank is 3.0, and must be a Rank"),
    "slopes differ": ("    def rank(self, view, memory, job, now):\n        return Rank(0.0, float(job.number))\n",
                      "jobs of one demand must age alike"),
    "no list": ("    def plan(self, view, memory, now):\n        return None\n",
                "policy 'mine', job 'any': the plan is NoneType None, and must be a list of actions"),
    "a generator": ("    def plan(self, view, memory, now):\n        yield WakeAt(now + 1)\n", "must be a list of actions"),
    "unknown action": ("    def plan(self, view, memory, now):\n        return [*waits(view), 'start a']\n",
                       "the plan holds 'start a', which is no action of a policy"),
    "unknown job": ("    def plan(self, view, memory, now):\n        return [*waits(view), Preempt('ghost')]\n", "job 'ghost': is not known"),
    "woken at no time": ("    def plan(self, view, memory, now):\n        return [*waits(view), WakeAt(float('nan'))]\n", "time would stand still"),
    "woken at the end of time": ("    def plan(self, view, memory, now):\n        return [*waits(view), WakeAt(float('inf'))]\n", "at the end of time"),
    "error in plan": ("    def plan(self, view, memory, now):\n        return {}['x']\n",
                      "policy 'mine' failed: KeyError: 'x' (mine.py, line 20, in plan)"),
    "error in rank": ("    def rank(self, view, memory, job, now):\n        return Rank(1 / 0)\n",
                      "policy 'mine' failed: ZeroDivisionError: division by zero (mine.py, line 20, in rank)"),
    "error in hear": ("    def hear(self, view, memory, now, entries):\n        raise ValueError('what?')\n",
                      "policy 'mine' failed: ValueError: what? (mine.py, line 20, in hear)"),
    "hear names strangers": ("    def hear(self, view, memory, now, entries):\n        return ['a']\n", "hear must return jobs of the view"),
}  # fmt: skip
TRACE = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
a,8,0,100,resnet50,500,7
b,8,10,100,resnet50,500,7
c,8,10,100,resnet50,500,7
"""


def said_of(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[object, str]:
    (folder / "mine.py").write_text(HEAD + code)
    (folder / "jobs.csv").write_text(TRACE)
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--trace", "jobs.csv", "--cluster", "2x4", "--policy", "mine.py", "--preemption-cost", "30s", "--quiet", *more])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_policy_is_one_sentence_that_names_it(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, sentence = MISTAKES[mistake]
    ended, said = said_of(code, tmp_path, monkeypatch, capsys)
    assert sentence in said, said
    assert ended == 1 and "mine" in said and len(said.splitlines()) == 1


def test_a_policy_that_cannot_be_made_or_lacks_parts_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, said = said_of("    def __init__(self, options):\n        raise TypeError('no')\n", tmp_path, monkeypatch, capsys)
    assert ended == 2 and said == "dally: policy 'mine.py' cannot be made: TypeError: no\n"
    (tmp_path / "bare.py").write_text("from dataclasses import dataclass\n\n\nclass Bare:\n    def __init__(self, options): ...\n"
                                      "    def plan(self, view, memory, now): ...\n    @dataclass\n    class Options: ...\n")
    with pytest.raises(SystemExit) as caught:
        main(["simulate", "--trace", "jobs.csv", "--cluster", "2x4", "--policy", "bare.py"])
    assert caught.value.code == 2
    assert "has no name, preempts, shares" in (said := capsys.readouterr().err) and "derive its class from PolicyBase" in said


def test_who_waits_for_a_machine_that_is_down_for_good_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "down.csv").write_text("machine,down,up\nm0,5,\n")
    ended, said = said_of("", tmp_path, monkeypatch, capsys, "--outages", "down.csv")
    assert ended == 0, said
