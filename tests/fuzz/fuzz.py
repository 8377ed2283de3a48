"""The fuzz: drawn command lines, run in this process, each of which must end in good order.

    python tests/fuzz/fuzz.py --calls 10000 --seed 7

No traceback, no hang (a limit of processor seconds per call), no memory beyond a limit, one sentence with exit code 2 for
what is refused, and no row of a trace that is neither a job nor said to be left out.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root), str(root / "src")]

from tests.fuzz.calls import Call, draw
from tests.fuzz.samples import Sample

CPU_SECONDS = 10.0  # of one call, most of which take hundredths
SLOW = 2.0  # seconds from which a call is named, though nothing is wrong with it
STUCK = 300.0  # seconds after which a call that does not even come back to Python is given up, and with it the process
MEMORY = 6 * 1024**3  # bytes that this process may have
# Words of Python's in a sentence for people: an exception that was shown and not understood.
_PYTHON = re.compile(r"Traceback|<class |object at 0x|NoneType|KeyError|IndexError|TypeError|AttributeError|ValueError|AssertionError|"
                     r"ZeroDivisionError|OverflowError|RecursionError|invalid literal for|list index|unhashable|not subscriptable")  # fmt: skip


class TooLongError(BaseException):
    """Not an Exception: nobody may catch it on the way."""


@dataclass(slots=True)
class Finding:
    what: str
    call: Call
    details: str
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Score:
    calls: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    counted: int = 0  # traces whose rows were counted
    slowest: float = 0.0
    findings: list[Finding] = field(default_factory=list)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLongError


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    faulthandler.dump_traceback_later(STUCK, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGVTALRM, before)


def run(call: Call) -> tuple[int | None, str, str, str]:
    """(exit code, output, errors, what was wrong in itself)."""
    from dally.cli.main import main

    out, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), _watched():
            main(list(call.words))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else None, out.getvalue(), errors.getvalue(), ""
    except TooLongError:
        return None, "", "", "hang: " + "".join(traceback.format_exc().splitlines(keepends=True)[-7:])
    except BaseException:
        return None, "", "", "traceback: " + traceback.format_exc()
    return None, out.getvalue(), errors.getvalue(), "it ended without an exit code"


def judge(call: Call, code: int | None, out: str, errors: str) -> str | None:
    """What is wrong with how it ended; None where nothing is."""
    if code not in (0, 1, 2, 3):
        return f"exit code {code}"
    if code == 2 and (not errors.strip() or not errors.rstrip().splitlines()[-1].startswith("dally: ")):
        return "refused without a sentence"
    if "out of memory" in errors:
        return "out of memory"
    # what a policy file of the user's own breaks in may be named; these are all ours
    if code != 0 and (found := _PYTHON.search(errors)):
        return f"Python's words: {found[0]}"
    if code == 0 and call.counted is not None:
        return lost(out, *call.counted)
    return None


def _is_written(line: bytes) -> bool:
    """Whether there is more in it than blanks of any alphabet."""
    try:
        return bool(line.decode().strip())
    except UnicodeDecodeError:
        return bool(line.decode("latin-1").strip())


def lost(out: str, path: Path, sample: Sample) -> str | None:
    """Rows in the file that are neither jobs nor said to be left out, joined or passed over."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if data[:2] in (b"\x1f\x8b", b"PK", b"\xff\xfe", b"\xfe\xff"):
        return None
    # a carriage return ends a line where nothing else does (old Macs'); among other lines it is a character like others
    lines = [line for line in re.split(rb"\r?\n" if b"\n" in data else rb"\r", data) if _is_written(line) and not line.lstrip().startswith((b"#", b";"))]
    given = len(lines) - (0 if sample.name.endswith(".swf") else sample.head)
    sections = json.loads(out)
    general = dict(row[:2] for row in sections["trace"]["rows"])
    jobs = int(general["jobs"].replace(",", ""))
    dropped = sum(int(count.replace(",", "")) for reason, count in sections["dropped"]["rows"] if reason != "nothing")
    said = sum(int(found[1].replace(",", "")) for note, _ in sections.get("notes", {"rows": []})["rows"]
               if (found := re.match(r"([\d,]+) (?:job steps|lines|attempts|records)", note)))  # fmt: skip
    return f"silent loss: {given} rows given, {jobs} jobs, {dropped} dropped, {said} said" if jobs + dropped + said < given else None


def fuzz(calls: int, seed: int, *, seconds: float | None = None, stop_after: int = 50, say: bool = False) -> Score:
    """`seconds`: of processor time, after which no further call is begun."""
    score = Score()
    began = time.process_time()
    for number in range(calls):
        if seconds is not None and time.process_time() - began > seconds:
            break
        rng = random.Random(f"{seed}/{number}")
        with tempfile.TemporaryDirectory(prefix="dally-fuzz-") as name:
            folder = Path(name)
            call = draw(rng, folder)
            before = time.process_time()
            code, out, errors, broken = run(call)
            took = time.process_time() - before
            score.slowest = max(score.slowest, took)
            if say and took > SLOW:
                print(f"slow: call {number}, {took:.1f} s: {' '.join(call.words)}", flush=True)
            wrong = broken or judge(call, code, out, errors)
            score.calls += 1
            score.counted += call.counted is not None and code == 0
            if code is not None:
                score.codes[code] += 1
            if wrong:
                files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.stat().st_size < 1 << 20}
                score.findings.append(Finding(wrong, call, errors, files))
                if say:
                    print(f"--- call {number} of seed {seed}: {' '.join(call.words)}\n{wrong}\n{errors[-1500:]}", flush=True)
                if len(score.findings) >= stop_after:
                    break
        if say and score.calls % 500 == 0:
            print(f"{score.calls} calls, exit codes {dict(score.codes)}, {len(score.findings)} findings, slowest {score.slowest:.1f} s", flush=True)
    return score


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the one call of this number, with its files kept")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ.setdefault("COLUMNS", "160")
    home = tempfile.mkdtemp(prefix="dally-fuzz-home-")
    os.chdir(home)
    try:
        if options.only is not None:
            folder = Path(tempfile.mkdtemp(prefix="dally-fuzz-kept-"))
            call = draw(random.Random(f"{options.seed}/{options.only}"), folder)
            print(" ".join(call.words), "\n", *run(call), sep="\n")
            return
        score = fuzz(options.calls, options.seed, say=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(f"{score.calls} calls, seed {options.seed}: exit codes {dict(score.codes)}, rows counted in {score.counted} traces, slowest {score.slowest:.1f} s of "
          f"processor time, {len(score.findings)} findings")  # fmt: skip
    sys.exit(bool(score.findings))


if __name__ == "__main__":
    main()
