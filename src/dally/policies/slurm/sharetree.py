"""Fair-share over a tree of accounts and users: Fair Tree, and the classic formula.

Both are as Slurm's priority_multifactor and fair_tree pages describe them. Usage is booked for a user in an account;
what an account has used is what those under it have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from dally.policies.slurm.accounts import ROOT, Accounts, Association

Leaf = str  # `account/user`


def leaf(account: str, user: str) -> Leaf:
    return f"{account}/{user}"


class _Node(NamedTuple):
    name: str
    shares: float
    used: float
    leaf: bool
    children: tuple[_Node, ...] = ()


def tree_shares(used: Mapping[Leaf, float], accounts: Accounts, fair_tree: bool,
                dampening: float = 1.0) -> dict[Leaf, float]:  # fmt: skip
    """The fair-share factor of every user of an account, 0 … 1. Who is in no dump has one share, under its account or,
    where that is not known either, under the root."""
    root = _grown(used, accounts)
    if not fair_tree:
        found: dict[Leaf, float] = {}
        _classic(root, 1.0, 1.0, root.used, True, dampening, found)
        return found
    users = _leaves(root)
    ranked: list[tuple[Leaf, bool]] = []  # with whether it is equal to the one before
    _rank([root], ranked)
    found, factor = {}, 0.0
    for place, (name, equal) in enumerate(ranked):
        if not equal:
            factor = (users - place) / users
        found[name] = factor
    return found


def _grown(used: Mapping[Leaf, float], accounts: Accounts) -> _Node:
    known = accounts.associations
    above: dict[str, str] = {account: each.parent for (account, user), each in known.items() if user is None}
    members: dict[str, dict[Leaf, tuple[float, float]]] = {}
    for name in used:
        account, _, user = name.partition("/")
        shares = known.get((account, user), Association(account, user)).shares
        members.setdefault(account, {})[name] = shares, used[name]
        above.setdefault(account, ROOT)
    below: dict[str, list[str]] = {}
    for account, parent in above.items():
        if account != ROOT:
            below.setdefault(parent if parent in above or parent == ROOT else ROOT, []).append(account)
    entered: set[str] = set()

    def grow(account: str) -> _Node:
        entered.add(account)
        children = [grow(each) for each in below.get(account, ()) if each not in entered]
        children = [each for each in children if _leaves(each)]  # accounts that nobody uses take part in shares below
        children += [_Node(name, shares, amount, True) for name, (shares, amount) in members.get(account, {}).items()]
        own = known.get((account, None), Association(account)).shares
        return _Node(account, own, sum(each.used for each in children), False, tuple(children))

    return grow(ROOT)


def _leaves(node: _Node) -> int:
    return 1 if node.leaf else sum(map(_leaves, node.children))


# --- Fair Tree ----------------------------------------------------------------------------------------------------


def _rank(parents: list[_Node], ranked: list[tuple[Leaf, bool]]) -> None:
    """Users in the order of Fair Tree, the best first: siblings by shares over usage, each account's users before those
    of the next; accounts that are level are ranked as one."""
    level: list[tuple[float, _Node]] = []
    for parent in parents:
        shares, used = sum(each.shares for each in parent.children), parent.used
        for each in parent.children:
            level.append((_level_fs(each, shares, used), each))
    level.sort(key=lambda pair: -pair[0])
    at = 0
    while at < len(level):
        stop = at
        while stop < len(level) and level[stop][0] == level[at][0]:
            stop += 1
        equals = [node for _, node in level[at:stop]]
        users = [node for node in equals if node.leaf]
        ranked.extend((node.name, place > 0) for place, node in enumerate(users))
        groups = [node for node in equals if not node.leaf]
        if groups:
            _rank(groups, ranked)
        at = stop


def _level_fs(node: _Node, shares: float, used: float) -> float:
    """S / U among siblings: ∞ of who has used nothing."""
    part = node.shares / shares if shares else 0.0
    if not part:
        return 0.0
    return part / (node.used / used) if node.used and used else math.inf


# --- the classic formula -------------------------------------------------------------------------------------------


def _classic(node: _Node, part: float, effective: float, total: float, top: bool, dampening: float,
             found: dict[Leaf, float]) -> None:  # fmt: skip
    """F = 2^(−(U_E / S) / d), with U_E = U_A + (U_E of the parent − U_A) × S of it among its siblings."""
    shares = sum(each.shares for each in node.children)
    for each in node.children:
        among = each.shares / shares if shares else 0.0
        actual = each.used / total if total else 0.0
        own = part * among
        counted = actual if top else actual + (effective - actual) * among
        if each.leaf:
            found[each.name] = 2.0 ** -(counted / own / dampening) if own else 0.0
        else:
            _classic(each, own, counted, total, False, dampening, found)
