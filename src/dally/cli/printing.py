"""Tables and notes for the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from dally.report.metrics import Summary


PIPED = 200  # characters in a line of what is no terminal


def console() -> Console:
    """Standard output. Piped, it is as wide as it needs to be, so that nothing is cut off."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPED, highlight=False, soft_wrap=False)


def is_plain_output() -> bool:
    """Whether nobody asks for colours: standard output is no terminal, and is not to be taken for one."""
    return not (sys.stdout.isatty() or os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE"))


def print_summaries(above: str, summaries: Sequence[Summary]) -> None:
    """The table of policies, a line above it."""
    from dally.report.table import is_plain, plain_table, print_table

    if is_plain_output() and is_plain(above, PIPED) and (lines := plain_table(summaries, PIPED)) is not None:
        print(above, *lines, sep="\n")
        return
    from rich.text import Text

    console().print(Text(above, style="bold"))
    print_table(summaries, console=console())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    # escaped: `las[quantum=1m]` is a policy, not a style
    table = Table(*map(escape, columns), title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold")
    for row in rows:
        table.add_row(*map(escape, row))
    console().print(table)


def print_pairs(pairs: Iterable[Sequence[str]], title: str | None = None, columns: Sequence[str] = ()) -> None:
    """Label and value(s), one pair a line."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2),
                  show_header=bool(columns))  # fmt: skip
    rows = [tuple(pair) for pair in pairs]
    for index in range(max((len(row) for row in rows), default=1)):
        table.add_column(columns[index - 1] if columns and 0 < index <= len(columns) else "")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_notes(notes: Iterable[str]) -> None:
    """Notes go to standard error: standard output is for results."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
