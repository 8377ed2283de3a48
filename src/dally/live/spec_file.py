"""Jobs from files: YAML with one job per document, or a list of them, and scripts with `#SBATCH` headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dally.core.errors import UserError
from dally.live.lines import Document, documents, read_text
from dally.live.plain_errors import Location
from dally.live.spec import JobSpec

_YAML = (".yaml", ".yml", ".json")


class ReadJobs(NamedTuple):
    """The jobs of a file, and what had to be left out, in sentences."""

    specs: list[JobSpec]
    notes: tuple[str, ...] = ()


def read_jobs(path: Path, arguments: Sequence[str] = (), over: Mapping[str, Any] | None = None) -> ReadJobs:
    """All jobs of a file. `over` are fields given elsewhere, which win; `arguments` go to a script."""
    text = read_text(path)
    if path.suffix.lower() in _YAML:
        if arguments:
            raise UserError(f"{path}: a job in YAML has its command in it; words after -- go to scripts only")
        return ReadJobs(jobs_in(str(path), text, over))
    from dally.live.sbatch import read_script

    return read_script(path, text, arguments, over)


def jobs_in(name: str, text: str, over: Mapping[str, Any] | None = None) -> list[JobSpec]:
    """The jobs of a YAML text; errors name the file, the line and the field."""
    found: list[JobSpec] = []
    for document in documents(name, text):
        if isinstance(document.data, list):
            for number, each in enumerate(document.data):
                found.append(_job(_part(document, number, each), over))
        else:
            found.append(_job(document, over))
    if not found:
        raise UserError(f"{name}: there is no job in it")
    return found


def _part(document: Document, number: int, data: Any) -> Document:
    """One item of a list as a document of its own."""
    lines: dict[Location, int] = {where[1:]: line for where, line in document.lines.items() if where[:1] == (number,)}
    return Document(document.name, data, lines)


def _job(document: Document, over: Mapping[str, Any] | None) -> JobSpec:
    if over and isinstance(document.data, dict):
        document = Document(document.name, overridden(document.data, over), document.lines)
    return document.read(JobSpec)


def overridden(data: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """What is given elsewhere wins, field by field; the two ways to say how many GPUs replace each other, and
    variables add up."""
    kept = dict(data)
    if "gpus" in over:
        kept = {name: value for name, value in kept.items() if name not in ("nodes", "gpus_per_node")}
    elif "nodes" in over or "gpus_per_node" in over:
        kept.pop("gpus", None)
    for name, value in over.items():
        before = kept.get(name)
        both = isinstance(value, dict) and isinstance(before, dict)
        kept[name] = {**before, **value} if both and before is not None else value
    return kept
