"""Policies grouped by what they were told: a comparison is fair inside a group, and headlines stay inside one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from dally.core.records import dataclass
from dally.core.told import NOTHING
from dally.report.metrics import Summary
from dally.report.wording import listed, share_text, time_text, times_text

ONE_RUN = "one run of each: no interval; --seeds 5 gives one"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Peers(Generic[T]):
    """Those who were told the same, in the order given."""

    told: str  # "" where nobody wrote it down
    members: tuple[T, ...]


def grouped(items: Sequence[T], told: Sequence[str]) -> list[Peers[T]]:
    """In order of first appearance."""
    found: dict[str, list[T]] = {}
    for item, what in zip(items, told, strict=True):
        found.setdefault(what, []).append(item)
    return [Peers(what, tuple(members)) for what, members in found.items()]


def groups_of(summaries: Sequence[Summary]) -> list[Peers[int]]:
    """Row numbers by what the policies were told."""
    return grouped(range(len(summaries)), [each.told for each in summaries])


def told_text(told: str) -> str:
    return f"told {told}" if told else "nobody wrote down what they were told"


def by_how_much(ratio: float) -> str:
    """3.1× for large factors; for small ones the share of time saved."""
    return times_text(ratio) if ratio >= 1.5 else share_text(1 - 1 / ratio)


def first_and_second(summaries: Sequence[Summary]) -> tuple[list[Summary], Summary | None]:
    """Those who read best (several where they read the same), and the first who reads worse. A run that was stopped
    is nobody's better: it comes last, whatever its average."""
    known = sorted((each for each in summaries if each.avg_jct is not None),
                   key=lambda each: (not each.complete, each.avg_jct or 0.0))  # fmt: skip
    if not known:
        return [], None
    best = known[0]
    tied = [each for each in known
            if each.complete == best.complete and time_text(each.avg_jct) == time_text(best.avg_jct)]  # fmt: skip
    return tied, next((each for each in known if each not in tied), None)


def headline(summaries: Sequence[Summary]) -> str:
    """Of one group: who is first in average JCT, who is second, and by how much. Without a full stop."""
    tied, second = first_and_second(summaries)
    if not tied:
        return "no job finished" if len(summaries) == 1 else "nobody finished a job"
    average = f"an average JCT of {time_text(tied[0].avg_jct)}"
    if len(summaries) == 1:
        return f"{tied[0].policy} is alone, with {average}"
    if len(tied) == len(summaries):
        return f"a tie: all {len(tied)} policies reach {average}"
    head = f"{listed([each.policy for each in tied])} {'tie' if len(tied) > 1 else 'wins'} with {average}"
    if second is None or not second.avg_jct or not tied[0].avg_jct:
        return head
    if not second.complete:
        return f"{head}; the others were stopped"
    ratio = second.avg_jct / tied[0].avg_jct
    return f"{head}, {by_how_much(ratio)} sooner than the runner-up, {second.policy} ({time_text(second.avg_jct)})"


def told_less(members: Sequence[Summary], summaries: Sequence[Summary]) -> str:
    """What those who were told less reach, where it matters: nobody was told the same, or one of them is ahead."""
    mine = _parts(members[0].told)
    best, _ = first_and_second(members)
    others = [each for each in summaries if _parts(each.told) < mine]
    less, _ = first_and_second(others)
    if not best or not less or best[0].avg_jct is None or less[0].avg_jct is None:
        return ""
    ahead = less[0].complete >= best[0].complete and less[0].avg_jct <= best[0].avg_jct
    if not ahead and len(members) > 1:
        return ""
    by_told: dict[str, list[str]] = {}
    for each in less:
        by_told.setdefault(each.told, []).append(each.policy)
    names = " and ".join(f"{listed(policies)}, told {told} only," for told, policies in by_told.items())
    verb = ("is no worse with", "are no worse with") if ahead else ("reaches", "reach")
    return f"; {names} {verb[len(less) > 1]} {time_text(less[0].avg_jct)}"


def _parts(told: str) -> frozenset[str]:
    return frozenset(told.split(" and ")) - {NOTHING, ""}


def headlines(summaries: Sequence[Summary]) -> list[str]:
    """One sentence per group where there is something to compare."""
    if len(summaries) < 2:
        return []
    groups, said = groups_of(summaries), []
    for group in groups:
        members = [summaries[row] for row in group.members]
        sentence = headline(members) + told_less(members, summaries)
        said.append(f"Told {group.told}: {sentence}." if group.told else f"{sentence[0].upper()}{sentence[1:]}.")
    if any(len(group.members) > 1 for group in groups):
        said.append(f"{ONE_RUN[0].upper()}{ONE_RUN[1:]}.")
    return said
