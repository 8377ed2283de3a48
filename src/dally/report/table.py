"""The terminal table: one line per policy, times for people, each policy as a multiple of the lower bound.

Rich draws it on a terminal, and wherever a line must be folded. Elsewhere it is plain text, which needs no rich: that
takes as long to import and to draw as a small simulation to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dally.core.records import dataclass
from dally.report.alarm import allowance_text
from dally.report.groups import Peers, groups_of, headlines, told_text
from dally.report.metrics import Summary
from dally.report.wording import column_times, count_text, run_notes, share_text, time_text, times_text

if TYPE_CHECKING:
    from rich.console import Console, Group

BEST = "*"
_WIDE_FROM = 0x300  # the first character that may take two places or none
_NARROW = "–—…"  # and these that do not


@dataclass(frozen=True, slots=True)
class Column:
    """One figure: where it comes from, how it is written, and when a narrow terminal may lose it."""

    title: str
    value: Callable[[Summary], float | None]
    texts: Callable[[Sequence[float | None]], list[str]]
    drop: int  # the larger, the sooner it goes; 0 stays
    larger_is_better: bool = False
    judged: bool = True  # whether one can be best: GPUs that communicate slowly are used too
    shared: bool = False  # only of interest where somebody shared or resized


def _each(text: Callable[[float | None], str]) -> Callable[[Sequence[float | None]], list[str]]:
    return lambda values: [text(value) for value in values]


_TIMES, _MULTIPLES, _SHARES, _COUNTS = column_times, _each(times_text), _each(share_text), _each(count_text)


COLUMNS = (
    Column("avg JCT", lambda s: s.avg_jct, _TIMES, 0),
    Column("× bound", lambda s: s.avg_jct_over_bound, _MULTIPLES, 0),
    Column("p50", lambda s: s.median_jct, _TIMES, 6),
    Column("p95", lambda s: s.p95_jct, _TIMES, 3),
    Column("p99", lambda s: s.p99_jct, _TIMES, 7),
    Column("makespan", lambda s: s.makespan, _TIMES, 1),
    Column("× bound", lambda s: s.makespan_over_bound, _MULTIPLES, 8),
    Column("avg queueing", lambda s: s.avg_queueing, _TIMES, 2),
    Column("p95 queueing", lambda s: s.p95_queueing, _TIMES, 9),
    Column("comm share", lambda s: s.comm_share, _SHARES, 5),
    Column("utilisation", lambda s: s.gpu_utilization, _SHARES, 9, judged=False),
    Column("useful", lambda s: s.useful_utilization, _SHARES, 4, larger_is_better=True),
    Column("preemptions", lambda s: s.preemptions, _COUNTS, 10),
    Column("first 100", lambda s: s.avg_first_minibatches, _TIMES, 4, shared=True),
    Column("suspensions", lambda s: s.suspensions, _COUNTS, 11, shared=True),
    Column("migrations", lambda s: s.migrations, _COUNTS, 12, shared=True),
    Column("packs", lambda s: s.packs, _COUNTS, 13, shared=True),
    Column("unpacks", lambda s: s.unpacks, _COUNTS, 15, shared=True),
    Column("resizes", lambda s: s.resizes, _COUNTS, 14, shared=True),
)


def columns_for(summaries: Sequence[Summary]) -> tuple[Column, ...]:
    """All columns; those about sharing only where somebody shared or resized."""
    shared = any(each.shared for each in summaries)
    return tuple(column for column in COLUMNS if shared or not column.shared)


def column_texts(column: Column, summaries: Sequence[Summary]) -> tuple[list[str], set[int]]:
    """The column as text, and the rows that read best among those told the same: none where all of these read the
    same, then nobody is better."""
    values = [column.value(each) for each in summaries]
    texts = column.texts(values)
    order = max if column.larger_is_better else min
    found: set[int] = set()
    for group in groups_of(summaries) if column.judged else ():
        known = [row for row in group.members if values[row] is not None]
        if len(known) < 2 or len({texts[row] for row in known}) == 1:
            continue
        best = order(known, key=lambda row: values[row] or 0.0)
        found |= {row for row in known if texts[row] == texts[best]}
    return texts, found


class _Laid(NamedTuple):
    """What stands where in a table of some width, before it is drawn."""

    first: int  # places of the column of names
    kept: list[int]  # columns that fit
    widths: list[int]  # of these
    rows: list[tuple[str, list[tuple[str, bool]]]]  # name, and cells with whether they are best; a heading has none
    captions: list[str]


def _cells(column: Column, summaries: Sequence[Summary]) -> list[tuple[str, bool]]:
    texts, best = column_texts(column, summaries)
    pad = "  " if best else ""  # keeps the figures below each other
    return [(f"{text} {BEST}", True) if row in best else (text + pad, False) for row, text in enumerate(texts)]


def _laid(summaries: Sequence[Summary], width: int, notes: Sequence[str], length: Callable[[str], int]) -> _Laid:
    names = [each.policy for each in summaries]
    columns = columns_for(summaries)
    cells = [_cells(column, summaries) for column in columns]
    widths = [
        max(*(length(text) for text, _ in column_cells), length(column.title))
        for column, column_cells in zip(columns, cells, strict=True)
    ]
    groups = groups_of(summaries)
    heads = [_heading(group) for group in groups] if len(groups) > 1 else []
    first = max(length("policy"), *map(length, names), *map(length, heads))
    kept = list(range(len(columns)))
    # Two blanks between columns; the policy's name never goes, it wraps when all else is gone.
    while first + sum(widths[index] + 2 for index in kept) > width:
        droppable = [index for index in kept if columns[index].drop]
        if not droppable:
            break
        kept.remove(max(droppable, key=lambda index: columns[index].drop))
    rows: list[tuple[str, list[tuple[str, bool]]]] = []
    for group in groups:
        if len(groups) > 1:
            rows.append((_heading(group), []))
        rows += [(names[row], [cells[index][row] for index in kept]) for row in group.members]
    captions = _captions(summaries, columns, kept, notes)
    return _Laid(first, kept, [widths[index] for index in kept], rows, captions)


def summary_table(summaries: Sequence[Summary], width: int, notes: Sequence[str] = ()) -> Group:
    """The table for a terminal `width` characters wide, with the notes below it."""
    from rich.cells import cell_len
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    laid = _laid(summaries, width, notes, cell_len)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("policy", overflow="fold")
    columns = columns_for(summaries)
    for index, wide in zip(laid.kept, laid.widths, strict=True):
        table.add_column(columns[index].title, justify="right", min_width=wide)
    for name, cells in laid.rows:
        table.add_row(Text(name, style="" if cells else "italic"),
                      *(Text(text, style="bold" if best else "") for text, best in cells))  # fmt: skip
    return Group(table, *(Text(line, style="dim") for line in laid.captions))


def plain_table(summaries: Sequence[Summary], width: int, notes: Sequence[str] = ()) -> list[str] | None:
    """The same without colours, line by line; None where one would have to be folded, or is not of plain letters."""
    laid = _laid(summaries, width, notes, len)
    columns = columns_for(summaries)
    lines = []
    for name, texts in [("policy", [columns[index].title for index in laid.kept]),
                        *((name, [text.rstrip() for text, _ in cells]) for name, cells in laid.rows)]:  # fmt: skip
        filled = texts or [""] * len(laid.kept)
        lines.append("  ".join([name.ljust(laid.first), *map(str.rjust, filled, laid.widths)]))
    lines += laid.captions
    return lines if all(is_plain(line, width) for line in lines) else None


def is_plain(line: str, width: int) -> bool:
    """Whether a line fits as it is, one place a character."""
    return len(line) <= width and line.isprintable() and all(ord(c) < _WIDE_FROM or c in _NARROW for c in line)


def _captions(summaries: Sequence[Summary], columns: Sequence[Column], kept: Sequence[int],
              notes: Sequence[str]) -> list[str]:  # fmt: skip
    lines = []
    bounds = {(each.lower_bound.avg_jct, each.lower_bound.makespan) for each in summaries}
    if len(bounds) == 1:
        avg, makespan = next(iter(bounds))
        if avg is not None:
            allows = allowance_text(summaries[0].lower_bound)
            lines.append(f"Lower bound: avg JCT {time_text(avg)}, makespan {time_text(makespan)}. {allows}".rstrip())
    elif bounds:
        lines.append("Lower bounds differ between the rows, since different jobs finished.")
    if any(column_texts(columns[index], summaries)[1] for index in kept):
        same = " among those told the same" if len(groups_of(summaries)) > 1 else ""
        lines.append(f"{BEST} best of the column{same}")
    dropped = [_full_title(columns, index) for index in range(len(columns)) if index not in kept]
    if dropped:
        lines.append(f"Left out to fit the terminal: {', '.join(dropped)}.")
    told = {each.told for each in summaries}
    if len(told) == 1 and "" not in told:
        lines.append(f"Told of the future: {told.pop()}.")
    return [*headlines(summaries), *lines, *run_notes(summaries), *notes]


def _heading(group: Peers[int]) -> str:
    return f"– {told_text(group.told)} –"


def _full_title(columns: Sequence[Column], index: int) -> str:
    title = columns[index].title
    return f"{columns[index - 1].title} {title}" if title == "× bound" else title


def print_table(summaries: Sequence[Summary], notes: Sequence[str] = (), console: Console | None = None) -> None:
    """Print the table; where the output is no terminal, rich's own width (80, or COLUMNS) decides."""
    from rich.console import Console

    console = console or Console()
    console.print(summary_table(summaries, console.width, notes))
