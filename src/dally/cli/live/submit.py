"""`dally submit`: a job from a file, a script or the command line."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import Any

import click

from dally.cli.live.common import client, json_option, print_json
from dally.core.errors import UserError


class WithCommand(click.Command):
    """Keeps what follows `--` apart: it is the job's command, not ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["dally.command"] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


def _variable(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE`, or `NAME` for its value here."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise UserError(f"--env {name}: there is no such variable here; write {name}=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


@click.command(cls=WithCommand)
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option("--gpus", "-g", type=int, help="GPUs, all or nothing.")
@click.option("--nodes", type=int, help="With --gpus-per-node: so many times as many GPUs.")
@click.option("--gpus-per-node", type=int)
@click.option("--name", "-n", help="What people call it.")
@click.option("--user", help="Whose it is; a label that only administrators may give.")
@click.option("--queue", "-q", help="Queue whose share it counts against.")
@click.option("--priority", type=int, help="Larger is more important, for policies that look at it.")
@click.option("--gpu-type", help="Only GPUs of this type.")
@click.option("--required", metavar="LEVEL", help="All GPUs in one domain of this level: machine, rack, …")
@click.option("--preferred", metavar="LEVEL", help="… where that is worth waiting for.")
@click.option("--wait-for", metavar="TIME", help="How long a preferred level is waited for: auto, 10m, none, forever.")
@click.option("--model", help="Model of the catalog: tells how it feels distance.")
@click.option("--profile", metavar="FILE", help="Measured profile (`dally profile run`).")
@click.option("--duration", metavar="TIME", help="How long it is said to run.")
@click.option("--checkpoint", metavar="DIR", help="Where it saves checkpoints; it may be preempted then.")
@click.option("--signal", metavar="NAME", help="How it is asked to save and leave; TERM if not given.")
@click.option("--grace", metavar="TIME", help="How long it may take for that; 10s if not given.")
@click.option("--preemptible/--not-preemptible", default=None, help="Whether it may be stopped for others at all.")
@click.option("--requeue-on", metavar="CODE,…", help="Exit codes after which it is queued again.")
@click.option("--retries", type=int, help="Crashes it survives.")
@click.option("--time-limit", "-t", metavar="TIME", help="It is stopped after this time.")
@click.option("--env", "-e", "environment", multiple=True, callback=_variable, metavar="NAME[=VALUE]",
              help="Variable for its processes; without a value, the one of this shell.")  # fmt: skip
@click.option("--directory", "-D", metavar="DIR", help="Where it runs; this folder if not given.")
@click.option("--array", "-a", metavar="0-9", help="One job for each number, in ARRAY_INDEX.")
@click.option("--after", metavar="ID,…", help="Not before these jobs have ended.")
@click.option("--after-ok", metavar="ID,…", help="Not before these jobs have finished well.")
@click.option("--begin", metavar="TIME", help="Not before: 10m from now, or 2026-11-20T08:00.")
@click.option("--processes", type=click.Choice(["machine", "gpu"]), help="One process per machine, or per GPU.")
@click.option("--hold", is_flag=True, default=None, help="Do not start it until it is released.")
@click.option("--output", "-o", metavar="FILE", help="Where its output goes; %j is its id, %x its name, %a its number.")
@click.option("--key", metavar="TEXT", help="Submitted twice with the same key, it is one job.")
@click.option("--dry-run", is_flag=True, help="Only say where and when it would start.")
@click.option("--wait", "wait", is_flag=True, help="Wait until it has ended; the exit code says how.")
@json_option
@click.pass_context
def command(ctx: click.Context, /, file: Path | None, key: str | None, dry_run: bool, wait: bool, as_json: bool,
            **given: Any) -> None:  # fmt: skip
    """Submit a job: a YAML file, a script with #SBATCH lines, or a command after `--`. Prints its id.

    \b
    dally submit --gpus 4 --name bert -- python train.py --epochs 3
    dally submit job.yaml
    dally submit job.sh -- --epochs 3
    dally submit --gpus 16 --dry-run -- python train.py
    """
    words: tuple[str, ...] = ctx.meta["dally.command"]
    over = fields_of(given)
    notes: tuple[str, ...] = ()
    if file is None:
        if not words:
            raise UserError("there is nothing to run: name a file, or write the command after --")
        if "gpus" not in over and "nodes" not in over:
            raise UserError("the number of GPUs is missing: write --gpus N")
        plain = [{"command": list(words), **over}]
    else:
        plain, notes = _from_file(file, words, over)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    submit([_here(each) for each in plain], key, dry_run, wait, as_json)


def submit(specs: list[dict[str, Any]], key: str | None, dry_run: bool, wait: bool, as_json: bool) -> None:
    found = client()
    body = specs[0] if len(specs) == 1 else specs
    if dry_run:
        answer = found.post("jobs", body=body, dry_run="true")
        if as_json:
            print_json(answer)
        else:
            from dally.live.telling import dry_run_text

            for each in answer if isinstance(answer, list) else [answer]:
                print(dry_run_text(each))
        return
    ids: list[str] = found.post("jobs", body=body, key=key or uuid.uuid4().hex)["ids"]
    if not as_json:
        print("\n".join(ids), flush=True)
    if not wait:
        if as_json:
            print_json({"id": ids[0]} if len(ids) == 1 else [{"id": id} for id in ids])
        return
    from dally.cli.live.wait import report, wait_for

    rows = wait_for(found.follow(), ids)
    if as_json:
        print_json(rows[0] if len(ids) == 1 else rows)
    sys.exit(report(rows, len(ids), quiet=as_json))


def _from_file(file: Path, words: tuple[str, ...],
               over: dict[str, Any]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:  # fmt: skip
    if not file.exists():
        raise UserError(f"there is no file {str(file)!r}; a command is written after --")
    from dally.live.spec_file import read_jobs

    read = read_jobs(file, words, over)
    return [spec.plain() for spec in read.specs], read.notes


def _here(plain: dict[str, Any]) -> dict[str, Any]:
    from dally.live.submitting import from_here

    try:
        folder = os.getcwd()  # noqa: PTH109 - a text
    except OSError:
        raise UserError("the folder this is run in is gone") from None
    return from_here(plain, folder, os.environ)


def fields_of(given: dict[str, Any]) -> dict[str, Any]:
    """The options as fields of a job; times stay as they are written, the service reads them."""
    known = {name: value for name, value in given.items() if value is not None and value != {}}
    placement = {field: known.pop(name) for name, field in
                 (("required", "required"), ("preferred", "preferred"), ("wait_for", "wait"))
                 if name in known}  # fmt: skip
    checkpoint = {field: known.pop(name) for name, field in
                  (("checkpoint", "directory"), ("signal", "signal"), ("grace", "grace")) if name in known}  # fmt: skip
    if placement:
        known["placement"] = placement
    if checkpoint:
        known["checkpoint"] = checkpoint
    for name in ("after", "after_ok"):
        if name in known:
            known[name] = [id.strip() for id in known[name].split(",")]
    if "requeue_on" in known:
        codes = [code.strip() for code in known["requeue_on"].split(",")]
        if not all(code.isdigit() for code in codes):
            raise UserError(f"--requeue-on {known['requeue_on']!r}: write exit codes with commas between, such as 3,75")
        known["requeue_on"] = [int(code) for code in codes]
    if "begin" in known:
        known["begin"] = _moment(known["begin"])
    return known


def _moment(text: str) -> float | str:
    """A date is meant in the time of this machine, not of the service's."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return text
