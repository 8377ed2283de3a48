"""Checking a policy: every property in many small worlds, and the first world in which one does not hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dally.core.errors import PlanError, RunError, UserError
from dally.core.records import dataclass
from dally.experiments.checks.properties import PROPERTIES, Property, maker
from dally.experiments.checks.replay import PropertyError
from dally.experiments.checks.worlds import variants
from dally.simulator.experiment import as_policy, naming

WORLDS = 30


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one property."""

    name: str
    sentence: str
    worlds: int  # in which it held
    policy: str | None = None  # with which options it broke
    world: int | None = None  # in which it broke
    what: str | None = None  # what happened there

    @property
    def holds(self) -> bool:
        return self.what is None


def check_policy(text: str, *, worlds: int = WORLDS, first: int = 0, only: Sequence[str] = (),
                 report: Callable[[Finding], None] | None = None) -> list[Finding]:  # fmt: skip
    """Every property in worlds `first` to `first + worlds − 1`. A policy named without options is checked with each
    choice of its options in turn."""
    names = [each.name for each in PROPERTIES]
    unknown = sorted(set(only) - set(names))
    if unknown:
        raise UserError(f"there is no property {unknown[0]!r}; there are: {', '.join(names)}")
    as_policy(text)  # refused before anything runs
    texts = [text] if text.endswith("]") else variants(text)
    found = []
    for each in PROPERTIES:
        if only and each.name not in only:
            continue
        finding = _checked(each, texts, range(first, first + worlds))
        found.append(finding)
        if report is not None:
            report(finding)
    return found


def _checked(each: Property, texts: Sequence[str], seeds: range) -> Finding:
    for done, seed in enumerate(seeds):
        text = texts[done % len(texts)]
        try:
            with naming(as_policy(text)):
                each.check(maker(text), seed)
        except (PropertyError, PlanError, RunError) as error:
            return Finding(each.name, each.sentence, done, text, seed, str(error))
    return Finding(each.name, each.sentence, len(seeds))
