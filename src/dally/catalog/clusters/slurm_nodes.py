"""The nodes of a Slurm cluster and their GPUs, from slurm.conf, `scontrol show node`, `sinfo`, slurmrestd or a CSV."""

from __future__ import annotations

import json
import re
from pathlib import Path

from dally.catalog.clusters.hostlist import expand
from dally.catalog.clusters.slurm_conf import conf_lines
from dally.catalog.clusters.tables import read_rows, whole_number
from dally.core.errors import UserError
from dally.core.records import dataclass

# Where Slurm's own files say nothing of nodes, these are looked for beside the topology.
BESIDE = ("slurm.conf", "nodes.conf", "nodes.txt", "nodes.csv")
_PARENTHESES = re.compile(r"\([^)]*\)")
_NAME_COLUMNS = ("node", "nodename", "nodelist", "name", "hostname", "host", "sn")
_COUNT_COLUMNS = ("gpus", "gpu", "num_gpus", "gpu_count")
_TYPE_COLUMNS = ("gpu_type", "type", "model")
_SINFO_NAMES = ("NODELIST", "HOSTNAMES", "NODE", "NODEHOST")


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    gpus: tuple[tuple[str | None, int], ...]  # (type as written or None, count); empty without GPUs
    where: str  # file and line, for errors


def read_nodes(path: Path, text: str) -> dict[str, Node]:
    """Nodes by name in the order of the file; one that is listed twice must be listed alike."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    head = lines[0].lower() if lines else ""
    if text.lstrip()[:1] == "{":
        found = _from_json(path, text)
    elif path.suffix.lower() == ".csv" or ("," in head and "[" not in head and "=" not in head):
        found = _from_csv(path, text)
    elif any("nodename=" in line.lower() or line.lower().split()[:1] == ["include"] for line in lines):
        found = _from_conf(path, text)
    else:
        found = _from_sinfo(path, text)
    nodes: dict[str, Node] = {}
    for node in found:
        other = nodes.setdefault(node.name, node)
        if other.gpus != node.gpus:
            raise UserError(f"{node.where}: node {node.name!r} has other GPUs than in {other.where}")
    if not nodes:
        raise UserError(
            f"{path} lists no nodes; give slurm.conf, the output of `scontrol show node`"
            " or of `sinfo -N -o '%N %G'`, or a CSV with the columns node and gpus"
        )
    return nodes


def parse_gres(text: str) -> tuple[tuple[str | None, int], ...]:
    """`gpu:a100:4(S:0-1),gpu:v100:2,nvme:1` → (("a100", 4), ("v100", 2)); no count means one."""
    counts: dict[str | None, int] = {}
    for part in _PARENTHESES.sub("", text).split(","):
        words = [word for word in part.strip().removeprefix("gres/").split(":") if word != "no_consume"]
        if words[0].lower() != "gpu":
            continue
        kind: str | None = None
        count = 1
        if len(words) > 1 and not words[-1].isdigit():
            if len(words) > 2:
                raise UserError(f"{part.strip()!r} is not a GRES such as gpu:4 or gpu:a100:8")
            kind = words[1]
        elif len(words) > 1:
            count = int(words[-1])
            kind = words[1] if len(words) == 3 else None
        if len(words) > 3:
            raise UserError(f"{part.strip()!r} is not a GRES such as gpu:4 or gpu:a100:8")
        counts[kind] = counts.get(kind, 0) + count
    return tuple((kind, count) for kind, count in counts.items() if count)


def _from_conf(path: Path, text: str) -> list[Node]:
    """`NodeName=` begins a node or several; the GRES may be on the same line or, from scontrol, further down."""
    found: list[tuple[str, str, str]] = []  # names, GRES, where
    default = ""
    current: list[str] | None = None  # names, GRES, where
    for file, line, pairs in conf_lines(path, text):
        where = f"{file}, line {line}"
        for key, value in pairs:
            if key == "nodename":
                if current is not None:
                    found.append((current[0], current[1], current[2]))
                current = [value, default, where]
            elif key == "gres" and current is not None:
                current[1] = value
                if current[0].upper() == "DEFAULT":
                    default = value
            elif key in ("partitionname", "nodeset", "switchname", "blockname") and current is not None:
                found.append((current[0], current[1], current[2]))
                current = None
    if current is not None:
        found.append((current[0], current[1], current[2]))
    found = [entry for entry in found if entry[0].upper() != "DEFAULT"]
    return [node for names, gres, where in found for node in _nodes(names, gres, where)]


def _from_sinfo(path: Path, text: str) -> list[Node]:
    """Nodes and their GRES: two columns, with or without sinfo's header; or any columns between bars, under a header
    or with the name first and the GRES as the first that looks like one."""
    nodes: list[Node] = []
    name, gres = 0, 1
    for number, line in enumerate(text.splitlines(), 1):
        bars = "|" in line
        words = [word.strip() for word in line.split("|")] if bars else line.split()
        if not line.strip() or words[0].startswith("#"):
            continue
        where = f"{path}, line {number}"
        upper = [word.upper() for word in words]
        named = [at for at, word in enumerate(upper) if word in _SINFO_NAMES]
        if named:
            if "GRES" not in upper:
                raise UserError(f"{where}: sinfo prints no GRES here; ask for it with `sinfo -N -o '%N %G'`")
            name, gres = named[0], upper.index("GRES")
            continue
        if bars and gres == 1:
            gres = next((at for at, word in enumerate(words) if word.startswith(("gpu:", "(null)"))), 1)
        if len(words) <= max(name, gres) or (not bars and (name, gres) == (0, 1) and len(words) != 2):
            raise UserError(f"{where}: expected a node and its GRES as `sinfo -N -o '%N %G'` prints them")
        nodes.extend(_nodes(words[name], words[gres], where))
    return nodes


def _from_json(path: Path, text: str) -> list[Node]:
    """What slurmrestd answers, or `scontrol show nodes --json` prints."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON: {error}") from None
    listed = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(node, dict) and node.get("name") for node in listed):
        raise UserError(f"{path} is JSON without a list of nodes, as slurmrestd gives them")
    return [one for at, node in enumerate(listed)
            for one in _nodes(str(node["name"]), str(node.get("gres") or ""), f"{path}, nodes[{at}]")]  # fmt: skip


def _from_csv(path: Path, text: str) -> list[Node]:
    header, rows = read_rows(path, text)
    name, count, kind = (
        next((column for column in columns if column in header), None)
        for columns in (_NAME_COLUMNS, _COUNT_COLUMNS, _TYPE_COLUMNS)
    )
    if name is None or (count is None and "gres" not in header):
        raise UserError(f"{path}, line 1: a node table has the columns node, gpus or gres, and gpu_type")
    nodes: list[Node] = []
    for line, row in rows:
        where = f"{path}, line {line}"
        if count is None:
            nodes.extend(_nodes(row[name], row["gres"], where))
            continue
        number = whole_number(path, line, row, count, 0)
        held = ((row[kind] or None) if kind is not None else None, number)
        nodes.extend(Node(one, (held,) if number else (), where) for one in _expanded(row[name], where))
    return nodes


def _nodes(names: str, gres: str, where: str) -> list[Node]:
    try:
        held = parse_gres(gres)
    except UserError as error:
        raise UserError(f"{where}: Gres: {error}") from None
    return [Node(name, held, where) for name in _expanded(names, where)]


def _expanded(names: str, where: str) -> list[str]:
    try:
        return expand(names)
    except UserError as error:
        raise UserError(f"{where}: NodeName: {error}") from None
