"""Things by name and options, `name[option=value,…]`: one parser for policies, networks, costs and whoever else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dally.core.errors import UserError
from dally.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Spec:
    """A name and its options as they were written; an option without `=` has the value None."""

    name: str
    options: tuple[tuple[str, str | None], ...] = ()
    bracketed: bool = False  # whether there were brackets, be they empty

    def __str__(self) -> str:
        inside = ",".join(key if value is None else f"{key}={value}" for key, value in self.options)
        return f"{self.name}[{inside}]" if inside else self.name

    def having(self, key: str, value: str) -> Spec:
        """The same with one more option, in the place of an older one of that name."""
        kept = [(k, v) for k, v in self.options if k != key]
        return Spec(self.name, (*kept, (key, value)), True)

    def values(self, what: str, known: Mapping[str, str]) -> dict[str, str]:
        """Options that are all among `known` (name → an example) and all have a value."""
        shown = f"{self.name}[{','.join(f'{key}={value}' for key, value in known.items())}]" if known else self.name
        found: dict[str, str] = {}
        for key, value in self.options:
            if key not in known or value is None:
                raise UserError(f"{what} {str(self)!r}: write {self.name}{f' or {shown}' if known else ''}")
            found[key] = value
        return found


def parse_spec(text: str, what: str) -> Spec:
    """`analytic[bucket=1MB,contention=off]` → name and options; `what` is the kind of thing, for the sentence."""
    stripped = text.strip()
    name, bracket, inside = stripped.partition("[")
    name = name.strip()
    wrong = UserError(f"{text!r} is not a {what}; write name or name[option=value,…]")
    if not name or any(mark in name for mark in "]\n\t "):
        raise wrong
    if not bracket:
        return Spec(name)
    if not inside.endswith("]") or not _closes_at_the_end(inside):
        raise wrong
    options: list[tuple[str, str | None]] = []
    seen: set[str] = set()
    for part in split_commas(inside[:-1]):
        if not part:
            continue
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key.replace("-", "_") in seen:
            raise UserError(f"{what} {name!r}: option {key!r} is given twice")
        seen.add(key.replace("-", "_"))
        options.append((key, value if equals else None))
    return Spec(name, tuple(options), True)


def split_specs(text: str, what: str) -> list[str]:
    """`fifo,srtf[gpu_time=true,placement=any],las` → its parts; commas inside brackets belong to the options."""
    parts = list(split_commas(text))
    if any(not part for part in parts):
        raise UserError(f"{text!r} is not a list of {what}: there is an empty place between two commas")
    return parts


def split_commas(text: str) -> Iterator[str]:
    """The parts between the commas that no bracket encloses, without the blanks around them."""
    depth, start = 0, 0
    for at, mark in enumerate(text):
        if mark == "[":
            depth += 1
        elif mark == "]":
            depth -= 1
        elif mark == "," and depth <= 0:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def _closes_at_the_end(inside: str) -> bool:
    """Whether the bracket that was opened before `inside` is closed by its last mark and no sooner."""
    depth = 1
    for at, mark in enumerate(inside):
        depth += (mark == "[") - (mark == "]")
        if depth == 0:
            return at == len(inside) - 1
    return False
