"""`dally policy`: begin a policy of one's own, check one; show and set the one of the service."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dally.cli.writing import write_whole


@click.group()
def command() -> None:
    """Begin a policy of your own, and check it (docs/writing-a-policy.md); see and change the service's.

    \b
    dally policy new patience
    dally policy check patience.py
    dally policy show
    dally policy set "las[quantum=10m]"
    """


@command.command()
@click.argument("policy")
@click.option("--worlds", type=click.IntRange(min=1), default=30, show_default=True, help="Small worlds per property.")
@click.option("--first", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Number of the first world: to see a failure again, or other worlds.")  # fmt: skip
@click.option("--only", metavar="P1,P2,…", help="Only these properties.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def check(policy: str, worlds: int, first: int, only: str | None, as_json: bool) -> None:
    """Check that a policy keeps what every policy must, in many small worlds.

    \b
    dally policy check mine.py
    dally policy check "mine.py[quantum=10m]" --worlds 200
    dally policy check mine.py --only asking --first 17 --worlds 1

    A policy named without options is checked with every choice of its options in turn. The exit code is 0 where all
    properties hold and 1 where one does not.
    """
    from dally.experiments.checks.checking import Finding, check_policy

    def say(finding: Finding) -> None:
        if as_json:
            return
        print(f"{'ok    ' if finding.holds else 'BROKEN'} {finding.name:<17} {finding.sentence}", flush=True)
        if not finding.holds:
            what = " ".join((finding.what or "").split())
            print(f"       {finding.policy}, world {finding.world}: {what}", flush=True)

    names = [name.strip() for name in only.split(",")] if only else ()
    found = check_policy(policy, worlds=worlds, first=first, only=names, report=say)
    broken = [each for each in found if not each.holds]
    if as_json:
        import json
        from dataclasses import asdict

        print(json.dumps([{**asdict(each), "holds": each.holds} for each in found], indent=2))
    elif broken:
        print(f"{len(broken)} of {len(found)} properties do not hold; see one again with --only {broken[0].name} "
              f"--first {broken[0].world} --worlds 1")  # fmt: skip
    else:
        print(f"all {len(found)} properties hold in {worlds} small worlds each; that is evidence, not proof")
    if broken:
        sys.exit(1)


@command.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def new(name: str, force: bool) -> None:
    """Write a commented policy to begin with, to NAME.py.

    \b
    dally policy new patience
    """
    from dally.core.errors import UserError
    from dally.policies.starting import starting_text

    path = Path(name if name.endswith(".py") else f"{name}.py")
    text = starting_text(path.stem)
    if path.exists() and not force:
        raise UserError(f"{path} is there already; --force writes over it")
    write_whole(path, text, force)
    print(f"{path}: run it with `dally compare … --policies \"fifo,{path}\"`, check it with "
          f"`dally policy check {path}`")  # fmt: skip


@command.command()
def reference() -> None:
    """Print what a policy sees and says, as in docs/writing-a-policy.md."""
    from dally.policies.reference import reference as text

    print(text())


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(as_json: bool) -> None:
    """Print the policy that is in charge of the service."""
    from dally.cli.live.common import client, print_json

    found = client().get("policy")
    if as_json:
        print_json(found)
    else:
        print(found["policy"])


@command.command("set")
@click.argument("policy")
def set_(policy: str) -> None:
    """Put another policy in charge of the service, on the queue as it is. For administrators.

    \b
    dally policy set tiresias
    """
    from dally.cli.live.common import client

    answer = client().send("PUT", ("policy",), body={"policy": policy})
    print(answer.data["policy"] if answer.status == 200 else f"{policy} is accepted and will be in charge soon")
