"""`dally journal`: look into the record of a run, execute it again, stop at any moment of it, compare two."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dally.cli.explain import journal_in
from dally.cli.inputs import Time
from dally.cli.writing import force_file_option, write_whole
from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.core.journal import Instant
    from dally.store.journal_file import JournalReader

_RECORD = click.argument("record", type=click.Path(path_type=Path))
_THROUGHPUTS = click.option("--throughputs", type=click.Path(path_type=Path), metavar="FILE",
                            help="Measured throughputs, where the run was made on some.")  # fmt: skip


@click.group()
def command() -> None:
    """RECORD is a journal file, the folder that `--out` wrote, a store, or the state (or store URL) of a service.

    \b
    dally journal show out --job 42
    dally journal verify out
    dally journal replay out --at 2d --policy srtf
    dally journal snapshot out --at 2d --out then.json
    dally journal diff before after
    """


def _open(record: Path) -> JournalReader:
    from dally.live.verified import store_of
    from dally.store.store import open_journal, segments

    url = store_of(record)
    if url is not None:
        from dally.store.database import ServiceJournal

        return ServiceJournal(url)
    return open_journal(record if record.is_dir() and segments(record) else journal_in(record))


def _service(record: Path) -> str | None:
    from dally.live.verified import store_of

    return store_of(record)


def _verify_service(url: str, progress: Callable[[int], None]) -> None:
    """What a service decided, and what it tells people about jobs, both from its journal."""
    from dally.core.journal_text import JournalText
    from dally.live.verified import verify
    from dally.store.database import Database, stored

    found = verify(url, progress)
    if found.difference is not None:
        text = JournalText(stored(Database(url)).first_topology)
        print(str(found.difference))
        if found.difference.recorded is not None:
            print("recorded: " + text.encode(found.difference.recorded), end="")
        print("now:      " + text.encode(found.difference.again), end="")
        sys.exit(1)
    if found.rows:
        print(f"{len(found.rows):,} jobs are not as the journal has them: {', '.join(found.rows[:10])}")
        sys.exit(1)
    print(f"{found.instants:,} instants executed again: all plans as recorded, and every job as it is stored")


def _path(record: Path) -> Path:
    from dally.store.store import segments

    return record if record.is_dir() and segments(record) else journal_in(record)


@command.command()
@_RECORD
@click.option("--job", metavar="ID", help="Only what names this job.")
@click.option("--from", "since", type=Time(), default=0.0, help="From this time of the run on.")
@click.option("--until", type=Time(), help="Up to this time of the run.")
@click.option("--head", type=click.IntRange(min=0), help="So many instants at most.")
@click.option("--json", "as_json", is_flag=True, help="Instants as JSON lines, as they are in the file.")
def show(record: Path, job: str | None, since: float, until: float | None, head: int | None, as_json: bool) -> None:
    """What was run, and its instants in order.

    \b
    dally journal show out --from 1h --until 2h
    dally journal show out --job 42 --json | head
    """
    from dally.core.journal_text import JournalText
    from dally.report.story import entry_text

    journal = _open(record)
    if not as_json:
        for name, value in journal.about.items():
            if name != "topology":
                print(f"# {name}: {value if isinstance(value, str) else json.dumps(value)}")
        print(f"# cluster: {journal.topology.name}, {journal.topology.gpus:,} GPUs "
              f"on {len(journal.topology.machines):,} machines")  # fmt: skip
    shown = 0
    for instant in journal:
        if until is not None and instant.time > until:
            break
        if instant.time < since or (job is not None and not _names(instant, job)):
            continue
        if head is not None and shown == head:
            break
        shown += 1
        if as_json:
            sys.stdout.write(JournalText(journal.topology).encode(instant))
            continue
        for entries, mark in ((instant.happened, " "), (instant.decided or (), ">")):
            for entry in entries:
                if job is None or _about(entry, job):
                    print(f"{instant.time:14.3f} {mark} {entry_text(entry, journal.topology)}")
    if journal.torn and not as_json:
        print("# the record ends in the middle of an instant, which is left out")


def _about(entry: Any, job: str) -> bool:
    named = getattr(entry, "job", getattr(entry, "who", None))
    return bool(named == job or getattr(named, "id", None) == job)


def _names(instant: Instant, job: str) -> bool:
    return any(_about(entry, job) for entry in instant.entries())


@command.command()
@_RECORD
@click.option("--policy", "-p", metavar="P", help="Where the policy comes from, if it is not registered: mine.py[…].")
@_THROUGHPUTS
def verify(record: Path, policy: str | None, throughputs: Path | None) -> None:
    """Execute a record again: on the same events the policy must decide the same, to the last digit.

    Exit code 0: it does; 1: it does not, and the first difference is shown.

    \b
    dally journal verify out
    dally journal verify out --policy "mine.py[head_start=10m]"
    """
    import time

    from dally.core.journal_text import JournalText
    from dally.simulator.replay import verify as execute_again

    started = said = time.monotonic()

    def progress(count: int) -> None:
        nonlocal said
        if time.monotonic() - said > 2.0:
            said = time.monotonic()
            print(f"{count:,} instants so far", file=sys.stderr)

    url = _service(record)
    if url is not None:
        _verify_service(url, progress)
        return
    found = execute_again(_path(record), throughputs, progress, policy)
    if found.difference is None:
        torn = "; it ends in the middle of an instant, which is left out" if found.torn else ""
        print(f"{found.instants:,} instants executed again in {time.monotonic() - started:.1f} s: "
              f"all plans as recorded{torn}")  # fmt: skip
        return
    text = JournalText(_open(record).topology)
    print(str(found.difference))
    if found.difference.recorded is not None:
        print("recorded: " + text.encode(found.difference.recorded), end="")
    print("now:      " + text.encode(found.difference.again), end="")
    sys.exit(1)


@command.command()
@click.argument("record")
@click.option("--at", "until", type=Time(), help="Stop at this time of the run; default: its end.")
@click.option("--policy", "-p", metavar="P", help="What would this policy decide then? Default: the one in charge.")
@click.option("--live", is_flag=True, help="RECORD is a live run, the state directory of a service: do it again in a "
                                           "simulated world with the speeds and times that were measured.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True)
@_THROUGHPUTS
def replay(record: str, until: float | None, policy: str | None, live: bool, as_json: bool,
           throughputs: Path | None) -> None:  # fmt: skip
    """Who runs and who waits at a moment of a run, and what a policy would decide there. Nothing is changed by asking.

    With --live: the same decisions, or each difference with its explanation (docs/explain.md). Exit code 0: all
    differences are explained; 1: some are not.

    \b
    dally journal replay out --at 36h
    dally journal replay out --at 36h --policy "dally[timers=none]"
    dally journal replay ~/.local/state/dally --live
    """
    if live:
        for name, given in (("at", until), ("policy", policy), ("throughputs", throughputs)):
            if given is not None:
                raise UserError(f"--{name} does not go with --live, which does the whole run again as it was")
        _relive(record, as_json)
        return
    from dally.cli.printing import print_table
    from dally.core.units import show_time
    from dally.report.story import entry_text
    from dally.simulator.replay import at_time, standings

    scheduler, now = at_time(_path(Path(record)), until, policy, throughputs)
    rows = standings(scheduler)
    answer = scheduler.ask(now)
    plan = [entry_text(action, scheduler.view.topology) for action in answer.plan]
    if as_json:
        json.dump({"time": now, "policy": scheduler.policy.name, "plan": plan,
                   "jobs": [{**row._asdict(), "state": row.state.value} for row in rows]}, sys.stdout, indent=2)
        print()
        return
    print_table(("job", "state", "GPUs", "for", "where or why"),
                [(row.job, row.state.value, str(row.gpus), show_time(now - row.since), row.why) for row in rows],
                f"after {show_time(now)}")  # fmt: skip
    print(f"{scheduler.policy.name} would decide:" if plan else f"{scheduler.policy.name} would change nothing.")
    for line in plan:
        print(f"  {line}")


def _relive(source: str, as_json: bool) -> None:
    from dally.cli.printing import print_table
    from dally.core.units import show_time
    from dally.live.replayed import live_record, plain, text
    from dally.live.replayed import replay as do_again

    found = do_again(live_record(source))
    if as_json:
        json.dump(plain(found), sys.stdout, indent=2)
        print()
    else:
        said = "as recorded" if found.verified is None else f"not as recorded: {found.verified}"
        print(f"{found.instants:,} instants fed to the policy again: decided {said}")
        print_table(("the simulated world", "same decisions", "other", "times apart at most"),
                    [("… and " * (number > 0) + step.text, f"{step.same:,} of {found.decisions:,}", f"{step.other:,}",
                      show_time(step.latest)) for number, step in enumerate(found.steps)])  # fmt: skip
        for each in found.differences:
            made = each.live or each.simulated
            assert made is not None
            live, simulated = ("not made" if one is None else text(one) for one in (each.live, each.simulated))
            print(f"job {made.job}: live {live}; simulated {simulated}. Why: {each.why}")
    if found.verified is not None or found.unexplained:
        sys.exit(1)


@command.command()
@_RECORD
@click.option("--at", "until", type=Time(), help="Stop at this time of the run; default: its end.")
@click.option("--out", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Default: standard output.")
@force_file_option
@_THROUGHPUTS
def snapshot(record: Path, until: float | None, out: Path | None, force: bool, throughputs: Path | None) -> None:
    """The whole state at a moment of a run, as JSON: for `dally simulate --snapshot`.

    \b
    dally journal snapshot out --at 36h --out then.json
    dally simulate --snapshot then.json --policies fifo,las
    """
    from dally.core.snapshot import save
    from dally.simulator.replay import at_time

    scheduler, _ = at_time(_path(record), until, None, throughputs)
    text = json.dumps(save(scheduler)) + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        write_whole(out, text, force)


@command.command()
@click.argument("one", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path))
def diff(one: Path, other: Path) -> None:
    """Where two records part, and which jobs end at another time. Exit code 0: they are the same; 1: they are not."""
    from itertools import zip_longest

    from dally.core.journal import flat
    from dally.core.journal_text import JournalText
    from dally.report.story import ends_of

    first, second = _open(one), _open(other)
    for name in sorted(set(first.about) | set(second.about)):
        if first.about.get(name) != second.about.get(name):
            said = [json.dumps(about.get(name)) for about in (first.about, second.about)]
            print(f"header, {name}: " + " | ".join(text if len(text) < 60 else text[:57] + "…" for text in said))
    parted = None
    seen: tuple[list[Instant], list[Instant]] = ([], [])
    for number, (a, b) in enumerate(zip_longest(first, second)):
        for found, instant in zip(seen, (a, b), strict=True):
            if instant is not None:
                found.append(instant)
        if a != b and parted is None:
            parted = number
            print(f"they part at instant {number}:")
            for mark, instant, journal in (("<", a, first), (">", b, second)):
                line = "(the end)\n" if instant is None else JournalText(journal.topology).encode(instant)
                print(f"{mark} {line}", end="")
    if parted is None:
        print(f"the same {len(seen[0]):,} instants")
        return
    ends = [ends_of(flat(instants)) for instants in seen]
    other_ends = [job for job in ends[0].keys() | ends[1].keys() if ends[0].get(job) != ends[1].get(job)]
    print(f"{len(other_ends):,} of {len(ends[0].keys() | ends[1].keys()):,} jobs end at another time or in another way")
    sys.exit(1)
