"""The reference for who writes a policy, made from the docstrings and comments of what a policy sees and says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from dally.core import plan
from dally.core.active import ActiveJob
from dally.core.estimates import Estimates
from dally.core.free import FreeGpus, Pool
from dally.core.job import Job
from dally.core.memory import Memory, Order, Table
from dally.core.placement import Placement
from dally.core.policy import Policy, View
from dally.core.ranking import Bucket, Rank, Ranking
from dally.core.reasons import Reason, Token
from dally.core.sharing import Share
from dally.core.topology import Topology
from dally.policies.greedy import plan_by_rank, plan_in_order
from dally.policies.placing import RULES

CHAPTERS: tuple[tuple[str, str, tuple[type, ...]], ...] = (
    ("The policy", "What you write. `PolicyBase` and `RankedPolicy` have a default for all but `rank` and `plan`.",
     (Policy,)),
    ("The view", "What you may look at; the scheduler alone changes it.", (View, Ranking, Bucket, Rank)),
    ("The job", "", (ActiveJob, Job)),
    ("What you may be told", "Say in `uses` which of it you use.", (Estimates,)),
    ("Placing", "Try placements inside `with view.free.trial() as free:`; they are undone at the end of the block.",
     (FreeGpus, Pool, Placement, Topology)),
    ("The plan", "A list of these.",
     (plan.Start, plan.Preempt, plan.Migrate, plan.Resize, plan.Reshare, plan.Extend, plan.Wait, plan.WakeAt,
      plan.Demand, Reason, Token, Share)),
    ("The memory", "Whatever a plan depends on besides view, time and options.", (Memory, Table, Order)),
)  # fmt: skip
_HIDDEN = {"move", "begin", "keep", "drop", "draft", "fields", "give_mask", "take_mask", "parse", "add", "discard",
           "unwatch", "accrue"}
_COMMENT = re.compile(r"^        self\.(\w+)(?:: ([^=]+?))? = .*?(?:  # (.*))?$")
_FIELD = re.compile(r"^    (\w+): ([^=#]+?)(?: = [^#]+?)?(?:  # (.*))?$")


def reference() -> str:
    """As Markdown."""
    parts = []
    for title, text, classes in CHAPTERS:
        parts.append(f"### {title}\n")
        if text:
            parts.append(f"{text}\n")
        for each in classes:
            parts.append(_of_class(each))
        if title == "Placing":
            parts.append("Placement rules, by the name they have in options:\n")
            parts.append("\n".join(f"- `{name}`: {_first(rule)}" for name, rule in RULES.items()) + "\n")
        if title == "The plan":
            parts.append("Plans that are made for you:\n")
            parts.append("\n".join(f"- `{each.__name__}{_signature(each)}`: {_first(each)}"
                                   for each in (plan_by_rank, plan_in_order)) + "\n")  # fmt: skip
    return "\n".join(parts)


def _of_class(each: type) -> str:
    lines = [f"**`{each.__name__}`** {_whole(each)}\n"]
    lines += [f"- `{name}`{f': {kind}' if kind else ''}{f' – {text}' if text else ''}" for name, kind, text in
              _attributes(each)]  # fmt: skip
    lines += [f"- `{name}{signature}`{f' – {text}' if text else ''}" for name, signature, text in _members(each)]
    return "\n".join(lines) + "\n"


def _attributes(each: type) -> Iterator[tuple[str, str, str]]:
    """Fields with the comments beside them: the type where it is written down."""
    if each is Token:
        for token in Token:
            yield token.name, "", ""
        return
    source, seen = inspect.getsource(each), set[str]()
    pattern = _COMMENT if "def __init__" in source else _FIELD
    for line in source.splitlines():
        found = pattern.match(line)
        if found and not found[1].startswith("_") and found[1] not in _HIDDEN | seen:
            seen.add(found[1])
            yield found[1], f"`{found[2].strip()}`" if found[2] else "", found[3] or ""


def _members(each: type) -> Iterator[tuple[str, str, str]]:
    if each in (Table, Order):  # a dictionary and a sorted list, by the methods everybody knows
        return
    for name, member in vars(each).items():
        if name.startswith("_") or name in _HIDDEN:
            continue
        if isinstance(member, property):
            yield name, "", _first(member)
        elif isinstance(member, (classmethod, staticmethod)):
            yield name, _signature(member.__func__), _first(member.__func__)
        elif inspect.isfunction(member):
            yield name, _signature(member), _first(member)


def _signature(function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    kept = [value for name, value in found.parameters.items() if name not in ("self", "cls")]
    return re.sub(r"'", "", str(found.replace(parameters=kept)))


def _whole(each: type) -> str:
    return " ".join((vars(each).get("__doc__") or "").split())


def _first(each: object) -> str:
    """The first paragraph of the docstring."""
    return " ".join(inspect.cleandoc(getattr(each, "__doc__", None) or "").split("\n\n")[0].split())
