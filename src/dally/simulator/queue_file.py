"""Queues as people write them: a mapping of names to weights and limits, in a file of its own or part of a config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.queues import Queue


def read_queues(path: str) -> tuple[Queue, ...]:
    """A YAML or JSON file: `queues: {vision: {weight: 2, max_gpus: 64}, …}`."""
    from dally.simulator.scenario import read_mapping

    found = read_mapping(path, "queues")
    unknown = sorted(set(found) - {"queues"})
    if unknown or not isinstance(found.get("queues"), dict):
        needs = "it needs a mapping `queues` of names to weights and limits"
        raise UserError(f"queues {path}: {f'unknown field {unknown[0]!r}; ' if unknown else ''}{needs}")
    return queues_of(found["queues"], f"queues {path}", _lines(path))


def queues_of(values: Mapping[str, Any], where: str,
              lines: Mapping[tuple[str, ...], int] | None = None) -> tuple[Queue, ...]:  # fmt: skip
    """In the order given. What makes no sense is refused in a sentence that names file, line, queue and field; `lines`:
    of (queue,) and of (queue, field), where they are known."""
    if not values:
        raise UserError(f"{where}: there is no queue in it")
    return tuple(_queue(name, given, where, lines or {}) for name, given in values.items())


def _lines(path: str) -> dict[tuple[str, ...], int]:
    """Where queues and their fields stand in the file."""
    import yaml

    found: dict[tuple[str, ...], int] = {}
    root = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    for _, queues in root.value:
        for name, queue in queues.value:
            found[name.value,] = name.start_mark.line + 1
            for field, _ in queue.value if isinstance(queue, yaml.MappingNode) else ():
                found[name.value, field.value] = field.start_mark.line + 1
    return found


def _queue(name: Any, given: Any, where: str, lines: Mapping[tuple[str, ...], int]) -> Queue:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError

    class Form(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)

        weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
        max_gpus: int | None = Field(default=None, ge=1)
        max_gpus_per_user: int | None = Field(default=None, ge=1)
        max_jobs_per_user: int | None = Field(default=None, ge=1)

    if not isinstance(name, str) or not name:
        raise UserError(f"{where}: {name!r} is no name for a queue: names are text, in quotes where they are numbers")
    try:
        form = Form.model_validate({} if given is None else given)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        known = ", ".join(Form.model_fields)
        what = f"there is no such field; a queue has {known}" if first["type"] == "extra_forbidden" else \
            first["msg"][:1].lower() + first["msg"][1:]  # fmt: skip
        line = lines.get((name, field)) or lines.get((name,))
        place = where if line is None else f"{where}, line {line}"
        raise UserError(f"{place}, queue {name!r}{f', {field}' if field else ''}: {what}") from None
    return Queue(name, **form.model_dump())
