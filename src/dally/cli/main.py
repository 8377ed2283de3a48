"""`dally`: the commands by name, loaded when they are called, and one clear line for whatever goes wrong."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from typing import NoReturn

import click

from dally.compiled import build_text
from dally.version import __version__

# name → (module[:attribute], one line of help); the order is that of the help page
LIVE = {
    "serve": ("live.serve", "Run a service that schedules real jobs on this machine."),
    "submit": ("live.submit", "Submit a job: a file, a script with #SBATCH lines, or a command."),
    "queue": ("live.queue", "List the jobs that wait and run."),
    "job": ("live.job", "Show one job."),
    "wait": ("live.wait", "Wait until jobs have ended; the exit code says how."),
    "cancel": ("live.acting:cancel", "Cancel jobs."),
    "hold": ("live.acting:hold", "Keep jobs from starting."),
    "release": ("live.acting:release", "Let held jobs start again."),
    "requeue": ("live.acting:requeue", "Stop jobs and put them back into the queue."),
    "logs": ("live.logs", "Print what a job printed."),
    "nodes": ("live.cluster:nodes", "List the machines of the service."),
    "drain": ("live.cluster:drain", "Start nothing more on a machine."),
    "resume": ("live.cluster:resume", "Let a machine take jobs again."),
    "topology": ("live.cluster:topology", "Show the cluster of the service as a tree."),
    "top": ("live.top", "Watch machines and jobs."),
    "token": ("live.token", "Make, list and remove tokens of a service."),
    "testbed": ("testbed", "A real Slurm on this host to try things on: up, down, status."),
}
SIMULATED = {
    "simulate": ("simulate", "Replay a trace on a cluster under one policy."),
    "compare": ("compare", "Replay a trace under several policies, side by side."),
    "twin": ("twin", "Replay a cluster's recorded past, say how near that comes, then what would have been."),
    "sweep": ("sweep", "Run policies over traces, clusters, loads, seeds and any option."),
    "sensitivity": ("sensitivity", "Say how a comparison depends on models and fabric."),
    "rerun": ("rerun", "Make a folder of results again and compare byte for byte."),
    "explain": ("explain", "Say why a job waits: of the service, or from a run's journal."),
    "journal": ("journal", "Show, verify, replay and compare journals."),
    "network": ("network", "Say what a training step is made of, or check the network model."),
    "profile": ("profile", "Measure where a training script stalls; say what would help and what to rent."),
    "calibrate": ("calibrate", "Fit the links of a cluster file to measured training steps."),
    "reproduce": ("reproduce", "Run a paper's comparison again, its figures beside ours."),
    "trace": ("trace", "Convert, describe, validate and synthesise traces."),
    "policy": ("policy", "Begin a policy of your own and check one; the service's policy."),
    "policies": ("policies", "List the policies with their options, defaults and sources."),
    "clusters": ("clusters", "List cluster and fabric presets, or show one cluster."),
    "models": ("models", "List the catalog's models, or show one."),
    "gpus": ("gpus", "List the catalog's GPUs."),
}

COMMANDS = SIMULATED | LIVE


class Commands(click.Group):
    """A group that imports a command's module only when that command runs: `dally --help` is instant."""

    called = ""  # the command that runs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        self.called = cmd_name
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(f"dally.cli.{module}"), attribute or "command", None)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in (("Commands", SIMULATED), ("Real jobs (docs/live.md)", LIVE)):
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", message=f"dally %(version)s ({build_text()})")
def cli() -> None:
    """Which job runs next, on which GPUs, given that distance costs time?

    \b
    dally compare --trace synth:philly --cluster 4x8x8 --policies fifo,srtf,las --out out
    dally simulate --trace jobs.csv --cluster 30x10x8 --policy "fifo[backfill=true]" --json
    sacct -P -a -o ALL | dally trace describe -
    """


def main(args: list[str] | None = None) -> None:
    """Bad input ends in one sentence and exit code 2, never in a traceback."""
    from dally.core.collecting import collect_seldom
    from dally.core.errors import PlanError, RunError, UserError

    collect_seldom()
    if sys.stdout is None or sys.stderr is None:  # closed by whoever started us
        if sys.stderr is not None:
            _say("standard output is closed: there is nowhere to write to")
        sys.exit(2)
    try:
        code = cli.main(args=args, prog_name="dally", standalone_mode=False)
        sys.stdout.flush()
        if args is None and _nothing_is_left():
            _leave(code if isinstance(code, int) else 0)
        sys.exit(code if isinstance(code, int) else 0)
    except UserError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except PlanError as error:
        _say(f"the plan was refused: {error}")
        sys.exit(1)
    except RunError as error:
        _say(str(error))
        sys.exit(1)
    except click.UsageError as error:
        where = f" (see `{error.ctx.command_path} --help`)" if error.ctx is not None else ""
        _say(error.format_message().rstrip(".") + where)
        sys.exit(2)
    except click.ClickException as error:
        _say(error.format_message())
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        if args is None:
            _leave(130)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; there is nobody to tell
        sys.exit(1)
    except OSError as error:  # a disk that is full, a folder that cannot be written, a file that is gone
        _leave_output()
        where = f"{error.filename}: " if error.filename is not None else ""
        _say(f"{where}{error.strerror or error}")
        sys.exit(2)
    except MemoryError:
        _say("out of memory: take fewer jobs or run fewer policies at a time")
        sys.exit(2)


def _nothing_is_left() -> bool:
    """Whether Python would only tidy up, object by object, which takes a tenth of a small simulation: nobody measures
    or follows it, no thread is at work, and no service that holds anything open."""
    import threading

    assert isinstance(cli, Commands)
    watched = sys.getprofile() is not None or sys.gettrace() is not None
    return cli.called in SIMULATED and threading.active_count() == 1 and not watched


def _leave(code: int) -> NoReturn:
    """Out with this exit code, come what may. Where Ctrl-C met Python inside an `exec`, as while a dataclass is made,
    `python -m` would end itself by the signal instead, though somebody has answered it."""
    import atexit
    import os

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _leave_output() -> None:
    """What could not be written is not tried again when Python ends."""
    import os

    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    print("dally: " + " ".join(text.split()), file=sys.stderr)


if __name__ == "__main__":
    main()
