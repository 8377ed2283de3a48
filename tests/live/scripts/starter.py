"""A small service to be killed: writes down what it is about to start, starts it, and writes down what became of it."""

import random
import sys
from pathlib import Path

from dally.core.placement import Placement
from dally.live.engine import Began, Order, Program
from dally.live.local.engine import LocalEngine

state, runs, count, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)
JOB = "echo ran >> $0/$DALLY_JOB.$DALLY_ATTEMPT; sleep $1; echo ended >> $0/$DALLY_JOB.$DALLY_ATTEMPT; exit $2"
book = (state / "book").open("a")


def write(*words: object) -> None:
    book.write(" ".join(map(str, words)) + "\n")
    book.flush()


lines = [line.split() for line in (state / "book").read_text().splitlines()]
started = {(words[1], int(words[2])) for words in lines if words[0] == "start"}
unended = started - {(words[1], int(words[2])) for words in lines if words[0] in ("Exited", "NotBegun", "Vanished")}
engine = LocalEngine(state)
for job, attempt in sorted(unended):
    engine.adopt(job, attempt)
print("up", flush=True)
while True:
    while len(started) < count and len(unended) < 6:
        key = (str(len(started)), 1)
        started.add(key), unended.add(key)
        write("start", *key)
        code = chance.choice((0, 0, 3))
        engine.start(Order(*key, Placement.of([(0, 1)]), ("m0",), Program(("sh", "-c", JOB, str(runs), str(chance.choice((0, 0.05, 0.3))), str(code)))))
        if chance.random() < 0.2:
            engine.stop(*key, 0.0)
    for report in engine.observe(0.2):
        write(type(report).__name__, *report)
        if not isinstance(report, Began):
            unended.discard((report.job, report.attempt))
            engine.forget(report.job, report.attempt)
    if len(started) == count and not unended:
        write("done")
        break
