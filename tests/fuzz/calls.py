"""Command lines drawn by chance: every reader, the options of a run, policies with options, and files that are spoiled."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.samples import Sample, all_samples, spoil

_TIMES = ("1s", "0", "30d", "1h", "-1s", "1e99d", "1", "abc", "0.001s", "inf", "nan", "1e-9s")
_NUMBERS = ("0", "1", "-1", "7", "1000000", "1e9", "1e400", "nan", "10000000000000000000", "x", "", "0.5", "2", "9" * 30)
_SHAPES = ("1x2x4", "2x4", "1x1x1", "4x8x8", "0x4", "1x", "x", "10000000000000000000x8", "100000x100000x8", "1x1x100000000", "v100=8,k80=4", "v100=0",
           "v100=9999999999999", "a100=8@3", "2x4x8x2", "-1x4", "1.5x4", "philly", "lab", "/", ".", "", "v100", "v100=8,", "v100=8@0")  # fmt: skip
_POLICIES = ("fifo", "srtf", "las", "tiresias", "gandiva", "dally", "dally[timers=auto]", "fifo[backfill=easy]", "fifo[backfill=true]", "fifo[backfill=conservative]",
             "slurm", "srtf[gpu_time=true,placement=best-fit]", "gavel", "optimus", "x", "", "fifo[", "fifo]", "fifo[]", "[a=b]", "fifo[a]", "fifo[a=]", "fifo[=1]",
             "nowhere.py", ".py", "las[quantum=0s]", "las[quantum=1e-9s]", "tiresias[queues=0]", "fifo[placement=spread]")  # fmt: skip
_OPTIONS = {
    "--seed": _NUMBERS, "--jobs": ("1", "3", "10", "0", "-1", "x"), "--load": ("0.5", "1.2", "1e-9", "1e9", "0", "-1", "nan", "inf"),
    "--window": ("all", "10%..90%", "90%..10%", "1d..2d", "x..y", "0%..0%", "..", "1e99d..2e99d", "nan%..1%"),
    "--knowledge": ("declared", "none", "limits", "learned", "auto", "noisy=0.7", "noisy=1e9", "noisy=-1", "noisy=", "noisy", "exact", "", "noisy=nan"),
    "--preemption-cost": ("0", "30s", "model", "model[storage=5GB/s]", "original", "gandiva", "model[storage=0]", "1e99s", "-1", "x", "model[", "nan"),
    "--network": ("analytic", "ideal", "level-penalty[rack=1.2,cluster=2]", "astra", "artist", "analytic[overlap=2]", "level-penalty[rack=nan]", "x", "",
                  "level-penalty[rack=1e308,cluster=1e308]", "ideal[x=1]"),
    "--fabric": ("ethernet-100g", "dally", "infiniband-hdr", "x", ""), "--mtbf": _TIMES, "--mttr": _TIMES, "--job-mtbf": _TIMES,
    "--retries": ("0", "3", "1000000", "-1", "9" * 25), "--checkpoint-interval": _TIMES, "--start-latency": _TIMES,
    "--start-failures": ("0", "0.5", "0.999999", "1", "-1", "nan"), "--slices": ("fluid", "quanta", "x"), "--measurement-noise": ("0", "0.5", "9.9", "10", "-1", "nan"),
    "--interference": ("auto", "catalog", "none", "nowhere.csv", ""), "--duration-means": ("best-placement", "one-gpu", "as-placed", "x"),
    "--traced-cluster": _SHAPES, "--figures": ("all", "main", "x"), "--throughputs": ("catalog", "nowhere.json", "."), "--model-mix": ("nowhere", "."),
    "--queues": ("nowhere", "."), "--outages": ("nowhere", "."),
}  # fmt: skip
_FLAGS = ("--no-contention", "--resample", "--warm-start", "--cold-start", "--json")
_TRACES = ("synth:philly", "synth:helios", "synth:gavel", "synth:pai", "synth:dally-batch", "synth:", "synth:x", "nowhere.csv", ".", "")
_READ = {"outages": "--outages", "queues": "--queues", "throughputs": "--throughputs", "mix": "--model-mix", "scenario": "--scenario"}


@dataclass(frozen=True, slots=True)
class Call:
    """One invocation. `counted`: the trace whose rows must all be accounted for."""

    words: tuple[str, ...]
    counted: tuple[Path, Sample] | None = None


def draw(rng: random.Random, folder: Path) -> Call:
    """One command line, with its files in `folder`."""
    return rng.choices((_trace, _cluster, _side_file, _options, _policies, _other, _twin), (40, 16, 16, 14, 8, 6, 8))[0](rng, folder)


def _spoiled(rng: random.Random, folder: Path, *kinds: str) -> tuple[Path, Sample]:
    sample = rng.choice([each for each in all_samples() if each.kind in kinds])
    path = folder / sample.name
    path.write_bytes(spoil(sample.data, rng) if rng.random() < 0.97 else sample.data)
    return path, sample


def _trace(rng: random.Random, folder: Path) -> Call:
    path, sample = _spoiled(rng, folder, "trace")
    what = rng.randrange(10)
    named = ("--format", rng.choice(("tiresias", "sacct", "helios", "gavel", "swf", "dally", "sacct-json", "pai", "x"))) if rng.random() < 0.05 else ()
    if what < 4:
        return Call(("trace", "describe", str(path), "--json", *named), (path, sample) if sample.rows and not named else None)
    if what < 6:
        return Call(("trace", "validate", str(path), *named))
    if what < 7:
        return Call(("trace", "convert", str(path), str(folder / rng.choice(("o.csv", "o.parquet", "o.txt", "no/o.csv"))), *named))
    policy = rng.choice(_POLICIES[:11])
    return Call(("simulate", "-t", str(path), "-c", rng.choice(("1x2x4", "2x4", "v100=8,k80=4")), "-p", policy, "-q", *_few(rng, 1)))


def _cluster(rng: random.Random, folder: Path) -> Call:
    path, sample = _spoiled(rng, folder, "cluster", "topology")
    more: tuple[str, ...] = ()
    if sample.kind == "topology" and rng.random() < 0.7:
        nodes, _ = _spoiled(rng, folder, "conf")
        more = ("--nodes", str(nodes))
    if rng.random() < 0.5:
        return Call(("clusters", str(path), *more))
    return Call(("simulate", "-t", "synth:philly", "--jobs", "5", "-c", str(path), "-p", rng.choice(_POLICIES[:6]), "-q", *more))


def _side_file(rng: random.Random, folder: Path) -> Call:
    path, sample = _spoiled(rng, folder, "scenario", "sweep", "outages", "queues", "throughputs", "mix", "conf", "pairs")
    trace = "synth:gavel" if sample.kind == "throughputs" else "synth:philly"
    if sample.name == "events.txt":  # has dates, and so must the trace
        dump = folder / "sacct.txt"
        dump.write_bytes(next(each.data for each in all_samples() if each.name == "sacct.txt"))
        return Call(("simulate", "-t", str(dump), "-c", "1x2x4", "-p", rng.choice(_POLICIES[:6]), "-q", "--outages", str(path)))
    if sample.kind == "sweep":
        # a sweep of thousands of cells is work, not a hang
        few = re.sub(rb"(?<=jobs:)\s*(?=[,}\n])", b" 6", path.read_bytes())  # nor is one of as many jobs as it likes
        path.write_bytes(re.sub(rb"(?<=seeds: )[\d_]+", b"2", few))
        return Call(("sweep", str(path), "--workers", "1", "-q", "--out", str(folder / "swept"), "--force"))
    if sample.kind == "scenario":
        return Call(("simulate", "--scenario", str(path), "-p", "fifo", "-q", "--jobs", "5"))
    if sample.kind == "conf":
        return Call(("simulate", "-t", trace, "--jobs", "5", "-c", "1x2x4", "-p", f"slurm[conf={path}]", "-q"))
    return Call(("simulate", "-t", trace, "--jobs", "5", "-c", "v100=8,k80=4", "-p", rng.choice(_POLICIES[:6]), "-q", _READ[sample.kind], str(path)))


def _few(rng: random.Random, most: int) -> Iterator[str]:
    for name in rng.sample(sorted(_OPTIONS), rng.randint(0, most)):
        yield f"{name}={rng.choice(_OPTIONS[name])}"
    if rng.random() < 0.2:
        yield rng.choice(_FLAGS)


def _options(rng: random.Random, folder: Path) -> Call:
    trace = rng.choice(_TRACES) if rng.random() < 0.3 else "synth:philly"
    shape = rng.choice(_SHAPES) if rng.random() < 0.4 else "1x2x4"
    return Call(("simulate", "-t", trace, "--jobs", "8", "-c", shape, "-p", rng.choice(_POLICIES[:6]), "-q", *_few(rng, 4)))


def _policies(rng: random.Random, folder: Path) -> Call:
    """Options by their names with values that may make no sense."""
    from dally.policies.options import all_policies

    name, kind = rng.choice(list(all_policies()))
    fields = list(getattr(kind.Options, "__dataclass_fields__", {})) or ["x"]
    values = ("0", "1", "-1", "true", "false", "1s", "1e99", "nan", "inf", "x", "", "1h", "0.5", "auto", "[1,2]", "1e-300", "1m", "best-fit", "none", "10000000000000000000")
    chosen = ",".join(f"{rng.choice(fields)}={rng.choice(values)}" for _ in range(rng.randint(1, 2)))
    policy = f"{name}[{chosen}]" if rng.random() < 0.9 else rng.choice(_POLICIES)
    return Call(("simulate", "-t", "synth:philly", "--jobs", "6", "-c", "1x2x4", "-p", policy, "-q", *_few(rng, 1)))


def _other(rng: random.Random, folder: Path) -> Call:
    junk, _ = _spoiled(rng, folder, "trace", "cluster", "queues")
    word = rng.choice((*_SHAPES, str(junk), "resnet50", "a100", "nowhere", "-1", ""))
    return Call(rng.choice((
        ("clusters", word), ("models", word), ("gpus", word), ("policies", word), ("explain", "1", word), ("journal", "show", word), ("journal", "verify", word),
        ("rerun", word), ("trace", "synth", rng.choice(("philly", "x", "gavel")), str(folder / "s.csv"), "--jobs", rng.choice(("1", "5", "0", "x")), "--seed",
                          rng.choice(_NUMBERS), "--load", rng.choice(("0.5", "1e300", "nan", "inf")), "--cluster", rng.choice(_SHAPES)),
        ("network", "step", word), ("network", word), ("calibrate", str(junk), "--cluster", word, "--out", str(folder / "c.yaml")), ("profile", "show", word),
        ("compare", "-t", "synth:philly", "--jobs", "5", "-c", "1x2x4", "-p", rng.choice(("fifo,fifo", "fifo,las", ",", "fifo,,las", "fifo[a=1,b=2],las")), "--workers", "1",
         "-q", "--loads", rng.choice(("0.5", "0.5,x", "", "nan", "1e300", "-1"))),
        ("policy", "check", word), (word,), ("simulate", word),
    )))  # fmt: skip


_TWIN = {
    "--present": ("fit", "fifo", "fifo[backfill=easy]", "slurm", "slurm[textbook=easy]", "x", ""), "--policies": ("none", "fifo", "las,dally", "", ",", "x"),
    "--fabrics": ("infiniband-hdr", "x", ""), "--more-racks": ("r0", "n1", "", "x,y"), "--limits": ("x0.5", "x0", "max=1h", "max=", "x", "x1e400", "max=1e99d", "xnan"),
    "--warm-up": ("0", "10", "90", "nan", "-1"), "--cool-down": ("0", "9.99", "inf"), "--knowledge": ("limits", "exact", "learned", "x"),
    "--cluster": (*_SHAPES[:9], "nowhere", "."), "--network": ("ideal", "analytic", "x"), "--nodes": (".", "nowhere"), "--outages": (".", "nowhere"),
}  # fmt: skip


def _history(rng: random.Random) -> bytes:
    """A dump of a few dozen jobs that are no two alike, as long as a twin needs."""
    rows = ["JobID|User|Account|Partition|Submit|Eligible|Start|End|State|TimelimitRaw|NNodes|AllocTRES|NodeList"]
    for number in range(rng.randint(20, 70)):
        minute, nodes = 9 * number, rng.choice((1, 1, 1, 2))
        times = [f"2026-03-{2 + at // 1440:02}T{at // 60 % 24:02}:{at % 60:02}:00" for at in (minute, minute + rng.choice((0, 0, 3)), minute + rng.choice((4, 9)), minute + rng.choice((10, 50)))]
        where = rng.choice(("n1", "n2", "n3")) if nodes == 1 else "n[1-2]"
        rows.append(f"{number}|u{number % 3}|lab{number % 2}|{rng.choice(('gpu', 'gpu', 'long', 'gpu,long'))}|{'|'.join(times)}|{rng.choice(('COMPLETED', 'FAILED', 'TIMEOUT', 'NODE_FAIL'))}"
                    f"|{rng.choice((30, 60, 'UNLIMITED', ''))}|{nodes}|gres/gpu:a100={nodes * rng.choice((1, 2, 4))}|{where}")  # fmt: skip
    return "\n".join(rows).encode() + b"\n"


def _twin(rng: random.Random, folder: Path) -> Call:
    """A history, spoiled or not, and beside it a configuration, events of its nodes, and what might have been."""
    if rng.random() < 0.2:
        path, _ = _spoiled(rng, folder, "trace")
    else:
        path = folder / "history.txt"
        path.write_bytes(spoil(_history(rng), rng) if rng.random() < 0.5 else _history(rng))
    words = ["twin", "--history", str(path), "-q", "--workers", "1"]
    if rng.random() < 0.4:
        words += [rng.choice(("--conf", "--cluster", "--nodes")), str(_spoiled(rng, folder, "conf", "topology")[0])]
    if rng.random() < 0.3:
        words += ["--outages", str(_spoiled(rng, folder, "outages")[0])]
    if rng.random() < 0.3:
        words += ["--out", str(folder / rng.choice(("out", "no/out", path.name)))]
    for name in rng.sample(sorted(_TWIN), rng.randint(1, 3)):
        words.append(f"{name}={rng.choice(_TWIN[name])}")
    if not any(word.startswith("--policies") for word in words):
        words.append("--policies=none")
    return Call((*words, *(("--json",) if rng.random() < 0.3 else ())))
