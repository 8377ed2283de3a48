"""The five measurements of a script, one launch after another, with whatever was measured kept when one fails."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.profiler.document import Profile, Run
from dally.profiler.inside.task import Task
from dally.profiler.launch import HERE, Launch, Machine, Outcome
from dally.profiler.readings import (
    Records,
    batch_of,
    checkpoint_of,
    device_of,
    memory_of,
    notes_of,
    run_of,
    table_of,
    trainers,
)
from dally.profiler.stalls import host_share, rates, stalls
from dally.version import __version__

Say = Callable[[str], None]
_BUSY = 0.10  # share of the host's CPUs from which on other work is worth a note
_RUNS = {
    "all": "all devices, synthetic data",
    "one": "one device, synthetic data",
    "cold": "all devices, real data, cold cache",
    "cached": "all devices, real data, cached",
    "apart": "the same number of devices over several machines, synthetic data",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asks of a profile."""

    command: Sequence[str]  # interpreter, script, arguments
    processes: int = 1
    warmup: int = 5
    steps: int = 20
    repeats: int = 3
    launches: int = 1
    patience: float = 300.0
    threads: int | None = None
    machines: Sequence[Machine] = ()
    link: str = ""
    name: str = ""
    trace: Path | None = None
    drop_caches: bool = False
    only: Sequence[str] = ()  # runs to make; all of them by default


@dataclass(slots=True)
class Found:
    """What was found so far: a profile can be made of it at any moment."""

    wish: Wish
    records: dict[str, list[Records]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    log: str = ""
    own_data: bool = False
    others: list[float] = field(default_factory=list)  # share of the CPUs that went to other work, where it was large

    def runs(self) -> dict[str, Run]:
        found = {}
        for name, data in (("one", "synthetic"), ("all", "synthetic"), ("cold", "cold"), ("cached", "cached")):
            chosen = "own" if self.own_data and data == "synthetic" else data
            run = run_of(self.records.get(name, ()), chosen)
            if run is not None and not (name == "one" and run.processes > 1):  # a script that starts ranks itself
                found[name] = run
        return found

    def apart(self) -> list[Run]:
        data = "own" if self.own_data else "synthetic"
        run = run_of(self.records.get("apart", ()), data, len(self.wish.machines) or 1, self.wish.link)
        return [] if run is None else [run]

    def everything(self) -> list[Records]:
        order = ("one", "all", "cached", "cold", "apart")
        return [one for name in order for one in self.records.get(name, ())]

    def profile(self) -> Profile | None:
        """None where nothing at all was measured."""
        runs, apart, records = self.runs(), self.apart(), self.everything()
        device = device_of(records)
        if device is None or not (runs or apart):
            return None
        made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, dally {__version__}, torch {_torch(records)}"
        batch = batch_of(self.records.get("all", []) or records)
        table, other = table_of(records, runs, batch, device, made)
        busy = runs.get("all") or runs.get("one")
        mfu = None
        if table is not None and busy is not None and device.peak:
            mfu = table.flops / busy.step / device.peak
        timeline, exposed = _timeline(self.wish.trace)
        if table is not None and device.kind == "cuda" and timeline:
            share = min(1.0, sum(m["end"] - m["start"] for m in timeline if m["lane"] == "compute") / _length(timeline))
            table = table.model_copy(
                update={"utilization": {"value": round(share, 3), "source": "kernels in the trace"}}
            )
        script = next((part for part in self.wish.command if part.endswith(".py")), self.wish.command[-1])
        return Profile(
            name=self.wish.name or Path(script).stem,
            status="partial" if self.troubles else "complete",
            made=made,
            script=shlex.join(self.wish.command[1:]),
            device=device,
            batch=batch,
            runs=runs,
            apart=apart,
            stalls=stalls(runs, apart),
            host_share=host_share(runs),
            rates=rates(runs, batch),
            other=other,
            workers=_workers(records),
            memory=memory_of(records),
            checkpoint=checkpoint_of(records),
            mfu=mfu,
            exposed=exposed,
            trace=self.wish.trace.name if self.wish.trace is not None and self.wish.trace.exists() else None,
            timeline=timeline,
            notes=[*self.troubles, *self.notes, *self._busy_host(), *notes_of(records)],
            model=table,
        )

    def _busy_host(self) -> list[str]:
        if not self.others:
            return []
        most = max(self.others)
        return [
            f"other work took up to {most:.0%} of this host's CPUs in {len(self.others)} of the runs: they took longer"
        ]


def measure(wish: Wish, say: Say, found: Found) -> Found:
    """Fill `found`, run by run. It stays usable when this is interrupted."""
    plan = [name for name in ("all", "one", "cold", "cached", "apart") if not wish.only or name in wish.only]
    if wish.processes == 1:
        plan = [name for name in plan if name != "all"]  # one device is all devices
    if not wish.machines:
        plan = [name for name in plan if name != "apart"]
    with tempfile.TemporaryDirectory(prefix="dally-profile-") as folder:
        for launch in range(wish.launches):
            for name in plan:
                if name in ("cold", "cached") and found.own_data:
                    continue
                outcome = _launch(wish, name, Path(folder) / f"{name}-{launch}", say, found)
                found.records.setdefault(name, []).append(outcome.records)
                if wish.processes == 1 and name == "one":
                    found.records.setdefault("all", []).append(outcome.records)
                _look(name, outcome, wish, found)
                if outcome.trouble is not None and not trainers(outcome.records):
                    return found  # it will not go better with other data
    return found


def _launch(wish: Wish, name: str, folder: Path, say: Say, found: Found) -> Outcome:
    data = {"cold": "cold", "cached": "real"}.get(name, "synthetic")
    known = batch_of(found.records.get("all", []))
    lone = name == "one"
    task = Task(
        folder=str(folder),
        data=data,
        warmup=wish.warmup,
        steps=wish.steps,
        repeats=wish.repeats,
        batch=known if lone else None,
        anatomy=5 if lone else 0,
        silent=name in ("all", "apart"),
        checkpoint=lone,
        trace=str(wish.trace) if wish.trace is not None and name == ("one" if wish.processes == 1 else "all") else None,
    )
    if name == "cold":
        os.sync()  # pages that are not written yet cannot be dropped
        if wish.drop_caches:
            _drop_caches(found)
    threads = wish.threads or max(1, (os.cpu_count() or 1) // wish.processes)
    title = _RUNS[name]
    say(f"{title}: starting")
    run = Launch(
        command=wish.command,
        processes=1 if lone else wish.processes,
        task=task,
        folder=folder,
        machines=wish.machines if name == "apart" else (HERE,),
        patience=wish.patience,
        threads=threads,
        say=lambda text: say(f"{title}: {text}"),
    )
    return run.run()


def _drop_caches(found: Found) -> None:
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError as error:
        _add(
            found.notes,
            f"the page cache could not be dropped ({error.strerror}); files are dropped one by one when "
            "they are opened, or are ones never read before",
        )


def _add(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)


def _look(name: str, outcome: Outcome, wish: Wish, found: Found) -> None:
    """What a reader of the profile must know about this run."""
    if outcome.trouble is not None:
        _add(found.troubles, f"{_RUNS[name]}: {outcome.trouble}")
        found.log = outcome.log
    if outcome.others > _BUSY:
        found.others.append(outcome.others)
    begun = trainers(outcome.records)
    wanted = 1 if name == "one" else wish.processes
    if begun > wanted:
        advice = "; give --processes 1 and let the script start its ranks" if wanted > 1 else ""
        _add(
            found.notes,
            f"the script starts processes of its own ({begun} ranks where {wanted} were launched); they "
            f"were measured as they are, and one device alone was not{advice}",
        )
    events = [e for one in outcome.records.values() for e in one]
    begin = next((e for e in events if e["event"] == "begin"), None)
    if begin is not None and not _loaders(events):
        found.own_data = True
        _add(
            found.notes,
            "the script does not draw its data from a DataLoader: its own data were measured instead of "
            "synthetic ones, and what CPU and disk cost cannot be told; "
            "dally.profiler.profile(step, data) can tell, in three lines",
        )
    if begin is not None and begin["world"] == 1 and wanted > 1:
        _add(
            found.notes,
            f"{wanted} processes were started but the script did not join them in a process group: they "
            "train beside each other, and there is no interconnect to measure",
        )
    if name == "cold":
        _say_whether_cold(events, found)


def _loaders(events: Sequence[Mapping[str, Any]]) -> bool:
    return any(e.get("loaders") for e in events if e["event"] in ("begin", "batch", "end"))


def _say_whether_cold(events: Sequence[Mapping[str, Any]], found: Found) -> None:
    read = [e["read"] for e in events if e["event"] == "window" and e["read"] is not None]
    if not any(e["event"] == "window" for e in events):
        return
    if not read:
        _add(found.notes, "the kernel does not say what was read from storage: how cold the cold run was is not known")
    elif max(read) < 1:
        _add(
            found.notes,
            "a cold cache could not be had: nothing was read from storage in the cold run (data made up or "
            "in memory, or opened by a library that Python does not see), so its disk stall means "
            "little; --drop-caches, as root, drops everything",
        )


def _workers(records: Sequence[Records]) -> int | None:
    found = [e["workers"] for one in records for events in one.values() for e in events if e.get("workers") is not None]
    return max(found, default=None)


def _torch(records: Sequence[Records]) -> str:
    for one in records:
        for events in one.values():
            for event in events:
                if event["event"] == "begin":
                    return str(event["torch"])
    return "?"


def _length(timeline: Sequence[Mapping[str, Any]]) -> float:
    return max(float(moment["end"]) for moment in timeline) or 1.0


def _timeline(trace: Path | None) -> tuple[list[dict[str, Any]], float | None]:
    if trace is None or not trace.exists():
        return [], None
    from dally.profiler.timeline import read_trace

    try:
        return read_trace(trace)
    except UserError:
        return [], None
