"""`dally policies`: what there is, with options, defaults and sources."""

from __future__ import annotations

import click


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(name: str | None, as_json: bool) -> None:
    """List the policies with their options, defaults and sources.

    \b
    dally policies
    dally policies srtf
    """
    from dally.cli.printing import console
    from dally.policies.options import all_policies, describe_options, load_policy_class

    chosen = [(name, load_policy_class(name))] if name else list(all_policies())
    if as_json:
        import json
        from dataclasses import asdict

        found = [{"name": title, "about": (maker.__doc__ or "").strip(), "source": getattr(maker, "source", ""),
                  "options": [asdict(row) for row in describe_options(maker)]} for title, maker in chosen]  # fmt: skip
        print(json.dumps(found, indent=2))
        return
    from rich.table import Table

    out = console()
    for title, maker in chosen:
        out.print(f"[bold]{title}[/bold]  {(maker.__doc__ or '').strip().splitlines()[0]}")
        out.print(f"  source: {getattr(maker, 'source', 'not said')}", style="dim")
        table = Table(box=None, padding=(0, 2), show_header=False)
        for row in describe_options(maker):
            about = f"{row.help} \\[{row.only_with}]" if row.only_with else row.help
            table.add_row(f"  {row.name}", row.values, f"default {row.default}", about, f"({row.source})")
        out.print(table)
        out.print()
