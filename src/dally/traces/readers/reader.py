"""What a reader is: a name, a test of the content, and a function from a source to a trace."""

from __future__ import annotations

from collections.abc import Callable

from dally.core.records import dataclass
from dally.traces.source import Source
from dally.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Reader:
    """One file format. `recognises` looks at content only and must hold for no file of another reader."""

    name: str  # what `--format` takes
    title: str  # what messages call it
    recognises: Callable[[Source], bool]
    read: Callable[[Source], Trace]


def has_columns(source: Source, *wanted: str) -> bool:
    """Whether the first line names all these columns; false for JSON and for folders."""
    if source.is_folder or source.looks_like_json:
        return False
    return set(wanted) <= set(source.header())
