"""`dally serve`: a service that schedules real jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dally.live.config import Configured


@click.command()
@click.option("--state", metavar="DIR", show_default="$DALLY_STATE or ~/.local/state/dally",
              help="Folder for everything the service must not forget.")  # fmt: skip
@click.option("--config", "config", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Configuration in YAML (docs/formats/service.md); options below win over it.")  # fmt: skip
@click.option("--host", metavar="ADDRESS", show_default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), show_default="$DALLY_PORT or 7433", envvar="DALLY_PORT",
              help="Port to listen on; 0: any free one.")  # fmt: skip
@click.option("--policy", "-p", metavar="P", show_default="dally", help="Policy in charge at first.")
@click.option("--cluster", "-c", metavar="C", show_default="this machine's GPUs, or 8 virtual ones",
              help="2x2x4 (racks x machines x GPUs, virtual ones of this machine), or a cluster file.")  # fmt: skip
@click.option("--engine", type=click.Choice(["local", "slurm"]), show_default="local",
              help="What runs the jobs: this machine, or the Slurm that its commands reach.")  # fmt: skip
@click.option("--store", metavar="URL", show_default="SQLite in the state", help="postgresql://user@host/name.")
@click.option("--stop", type=click.Choice(["go-on", "checkpoint"]), show_default="go-on",
              help="What becomes of running jobs when the service is stopped.")  # fmt: skip
@click.option("--insecure", is_flag=True, default=None, help="Listen beyond this machine without TLS.")
@click.option("--dry-run", is_flag=True, help="With --engine slurm: only watch everybody's jobs, say what the policy "
              "would do with them, and what that would have gained. Nothing is touched, nothing served.")  # fmt: skip
def command(config: Path | None, host: str | None, port: int | None, dry_run: bool, **options: Any) -> None:
    """Schedule real jobs on this machine, or on a Slurm, and answer over HTTP, until SIGTERM or Ctrl-C.

    \b
    dally serve
    dally serve --cluster 2x2x4 --policy tiresias --port 8080
    dally serve --config dally.yaml
    dally serve --engine slurm --dry-run

    SIGHUP reads the configuration again.
    """
    from dally.live.config import read_config
    from dally.live.opening import open_service
    from dally.live.run import run

    listen = {name: value for name, value in (("host", host), ("port", port)) if value is not None}

    def read() -> Configured:
        return read_config(config, {**options, "listen": listen or None})

    if dry_run:
        from dally.live.slurm.opening import watch

        sys.exit(watch(read()))
    sys.exit(run(read, open_service))
