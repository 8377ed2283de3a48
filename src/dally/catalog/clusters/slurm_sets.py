"""Which nodes of a Slurm cluster belong to which partition and have which feature: sets of machines jobs are tied to.

A partition's set has its name; a feature's is called `feature:NAME`, since both may be called alike.
"""

from __future__ import annotations

import json
from pathlib import Path

from dally.catalog.clusters.hostlist import expand
from dally.catalog.clusters.slurm_conf import conf_lines
from dally.core.errors import UserError

FEATURE = "feature:"
_FEATURES = ("feature", "features", "availablefeatures", "activefeatures")
_SINFO_NAMES = ("NODELIST", "HOSTNAMES", "NODE", "NODEHOST")

Sets = dict[str, tuple[str, ...]]  # node → sets it belongs to


def read_sets(path: Path, text: str) -> Sets:
    """Of every node that is in any; empty where the text says nothing of it."""
    if text.lstrip()[:1] == "{":
        found = _from_json(text)
    elif "=" in text:
        found = _from_conf(path, text)
    else:
        found = _from_sinfo(text)
    return {node: tuple(dict.fromkeys(sets)) for node, sets in found.items() if sets}


def _from_conf(path: Path, text: str) -> dict[str, list[str]]:
    """`slurm.conf`, or what `scontrol show node` prints."""
    found: dict[str, list[str]] = {}
    node_sets: dict[str, list[str]] = {}
    by_feature: dict[str, str] = {}  # node set → the feature it is made of
    partitions: list[tuple[str, str]] = []
    kind, names = "", [""]
    for file, line, pairs in conf_lines(path, text):
        for key, value in pairs:
            if key in ("nodename", "partitionname", "nodeset", "switchname", "blockname"):
                kind, names = key, [value]
                if key == "nodename":
                    names = [] if value.upper() == "DEFAULT" else _expanded(value, f"{file}, line {line}")
                    for name in names:
                        found.setdefault(name, [])
            elif kind == "nodename" and key in _FEATURES:
                for name in names:
                    found[name] += [FEATURE + each for each in _listed(value)]
            elif kind == "nodename" and key == "partitions":
                for name in names:
                    found[name] += _listed(value)
            elif kind == "nodeset" and key == "nodes":
                node_sets[names[0]] = _expanded(value, f"{file}, line {line}")
            elif kind == "nodeset" and key in _FEATURES:
                by_feature[names[0]] = FEATURE + value
            elif kind == "partitionname" and key == "nodes" and names[0].upper() != "DEFAULT":
                partitions.append((names[0], value))
    for name, feature in by_feature.items():
        node_sets[name] = [node for node, sets in found.items() if feature in sets]
    for partition, members in partitions:
        for part in [*found] if members.upper() == "ALL" else _expanded(members, f"{path}, partition {partition}"):
            for node in node_sets.get(part, [part]):
                found.setdefault(node, []).append(partition)
    return found


def _from_json(text: str) -> dict[str, list[str]]:
    try:
        listed = json.loads(text).get("nodes", ())
    except (ValueError, RecursionError, AttributeError):
        return {}
    found: dict[str, list[str]] = {}
    for node in listed if isinstance(listed, list) else ():
        if isinstance(node, dict) and node.get("name"):
            features = _listed(node.get("active_features") or node.get("features"))
            found[str(node["name"])] = [*_listed(node.get("partitions")), *(FEATURE + each for each in features)]
    return found


def _from_sinfo(text: str) -> dict[str, list[str]]:
    """Where its header names the partition."""
    found: dict[str, list[str]] = {}
    name = partition = -1
    for line in text.splitlines():
        words = [word.strip() for word in line.split("|")] if "|" in line else line.split()
        upper = [word.upper() for word in words]
        if "PARTITION" in upper and (named := [at for at, word in enumerate(upper) if word in _SINFO_NAMES]):
            name, partition = named[0], upper.index("PARTITION")
        elif 0 <= partition < len(words) and name < len(words):
            for node in _expanded(words[name], "sinfo"):
                found.setdefault(node, []).extend(_listed(words[partition].rstrip("*")))
    return found


def _listed(value: object) -> list[str]:
    """Names between commas, or a list of them."""
    parts = value if isinstance(value, (list, tuple)) else str(value or "").split(",")
    return [name for part in parts if (name := str(part).strip()) and name.lower() not in ("(null)", "n/a")]


def _expanded(names: str, where: str) -> list[str]:
    try:
        return expand(names)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
