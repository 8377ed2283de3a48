"""Reads accounts, QOS and reservations as Slurm's own tools print them, one after the other in a file or in a folder.

Known are `sacctmgr -P show assoc` (with `tree` or ParentName for the tree), `sacctmgr -P show qos`, `sacctmgr dump
CLUSTER`, `sshare -aP` (its shares), `scontrol show reservation` and `sacctmgr -P show reservation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dally.catalog.clusters.hostlist import expand
from dally.core.errors import UserError
from dally.policies.slurm.accounts import ROOT, Accounts, Association, Caps, Qos, Reservation

_MINUTE = 60.0
_DUMP = re.compile(r"^(Cluster|Parent|Account|User|Coordinator)\s+-\s+'?([^':]*)'?(?::(.*))?$", re.IGNORECASE)
_BETWEEN = re.compile(r":(?=[A-Z][A-Za-z]+=)")  # a type of GPU (`gres/gpu:a100=4`) has small letters or digits
_PAIR = re.compile(r"([A-Za-z]\w*)=(\S*)")
_TRES = re.compile(r"(?:^|,)\s*([\w/]+)(?::([\w.-]+))?=(\d+)")
_TYPE_OF_TABLE: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"account", "user", "rawshares"}), "sshare"),
    (frozenset({"name", "start", "end"}), "reservation"),
    (frozenset({"account", "user"}), "assoc"),
    (frozenset({"name", "priority"}), "qos"),
)  # fmt: skip
# What limits something else than the jobs, GPUs and nodes that run at a time.
_NOT_DONE = ("grptresmins", "grpwall", "grpsubmit", "grpsubmitjobs", "maxsubmit", "maxsubmitjobs", "maxsubmitpu",
             "maxsubmitjobsperuser", "maxsubmitpa", "maxsubmitjobsperaccount", "maxtresmins", "maxtresminsperjob",
             "maxtresrunminspu", "maxtresrunminspa", "maxjobsaccrue", "grpjobsaccrue", "maxjobsaccruepu")  # fmt: skip
_OF_ONE_JOB = ("maxtres", "maxtresperjob", "maxtrespernode", "maxwall", "maxwalldurationperjob", "mintres",
               "maxnodesperjob", "maxtresperunit")  # fmt: skip


def read_accounts(path: Path) -> tuple[Accounts, list[str]]:
    """Everything that is known in the file, or in the files of the folder; and what was read and what was not."""
    try:
        files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
    except OSError:
        raise UserError(f"policy 'slurm': {path} cannot be read") from None
    reader = _Reader(path.name)
    for file in files:
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            if path.is_dir():
                continue  # a folder may hold anything
            raise UserError(f"policy 'slurm': {file} cannot be read") from None
        reader.read(text)
    return reader.found(path)


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.associations: dict[tuple[str, str | None], Association] = {}
        self.qos: dict[str, Qos] = {}
        self.reservations: list[Reservation] = []
        self.not_done: dict[str, None] = {}
        self.of_one_job = self.shares_of_parents = False
        self.tables = 0

    def found(self, path: Path) -> tuple[Accounts, list[str]]:
        if not self.tables:
            raise UserError(f"policy 'slurm': {path} has nothing that sacctmgr, sshare or scontrol show reservation "
                            "prints; give `sacctmgr -P show assoc` and `sacctmgr -P show qos`")  # fmt: skip
        made = Accounts(self.associations, self.qos, tuple(self.reservations))
        users = sum(each.user is not None for each in made.associations.values())
        notes = [f"{self.name}: {len(made.associations) - users} accounts, {users} users in them, {len(made.qos)} QOS "
                 f"and {len(made.reservations)} reservations are read; {made.limits} of the accounts, users and QOS "
                 "have limits"]  # fmt: skip
        if self.not_done:
            notes.append(f"{self.name}: {', '.join(self.not_done)} are not imitated")
        if self.of_one_job:
            notes.append(f"{self.name}: limits of single jobs (MaxTRES, MaxWall, MinTRES) turn nobody away: the jobs "
                         "of a record were accepted")  # fmt: skip
        if self.shares_of_parents:
            notes.append(f"{self.name}: the share `parent` counts as 1")
        return made, notes

    def read(self, text: str) -> None:
        """Every table and list in it; lines of anything else are passed over."""
        kind, columns = "", {}
        parent = ROOT
        path: list[tuple[int, str]] = []  # accounts above, by how far they are indented
        for line in text.splitlines():
            if (match := _DUMP.match(line.strip())) is not None:
                self.tables += 1
                parent = self._dumped(match, parent)
            elif "|" in line:
                cells = line.split("|")
                names = [re.sub(r"[^a-z]", "", cell.lower()) for cell in cells]
                table = next((known for needed, known in _TYPE_OF_TABLE if needed <= set(names)), None)
                if table is not None:
                    kind, columns, path = table, {name: at for at, name in enumerate(names) if name}, []
                    self.tables += 1
                elif kind and len(cells) >= len(columns):
                    self._row(kind, {name: cells[at] for name, at in columns.items()}, path)
            elif "=" not in line:
                kind = ""
        self._reservations(text)

    # --- tables -----------------------------------------------------------------------------------------------

    def _row(self, kind: str, row: Mapping[str, str], path: list[tuple[int, str]]) -> None:
        said = {name: cell.strip() for name, cell in row.items() if cell.strip()}
        if kind == "qos":
            self._qos(said)
        elif kind == "reservation":
            self._reserve(said.get("name", ""), said.get("start", ""), said.get("end", ""),
                          said.get("nodenames", said.get("nodes", "")))  # fmt: skip
        elif "account" in said:
            account, user = said["account"], said.get("user")
            depth = len(row["account"]) - len(row["account"].lstrip(" "))
            while path and path[-1][0] >= depth:
                path.pop()
            above = said.get("parentname") or (path[-1][1] if path else ROOT)
            if user is None:
                path.append((depth, account))
            self._associate(account, user, above, said)

    def _associate(self, account: str, user: str | None, parent: str, said: Mapping[str, str]) -> None:
        text = said.get("fairshare" if "share" not in said and "rawshares" not in said else
                        "share" if "share" in said else "rawshares", "")  # fmt: skip
        key = (account, user)
        known = self.associations.get(key, Association(account, user))
        shares = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else known.shares
        self.shares_of_parents |= text.lower() == "parent"
        self._look(said)
        group = _caps(said, ("grpjobs",), ("grptres",), ("grptresrunmins",), ("grpnodes",))
        each = Caps(jobs=_whole(said, "maxjobs"))
        if account == ROOT:
            parent = ""
        self.associations[key] = replace(known, parent=parent if user is None else account, shares=shares,
                                         group=group if group.any else known.group,
                                         each=each if each.any else known.each)  # fmt: skip

    def _qos(self, said: Mapping[str, str]) -> None:
        name = said.get("name")
        if name is None:
            return
        self._look(said)
        flags = said.get("flags", "").lower()
        factor = said.get("usagefactor", "")
        self.qos[name] = Qos(
            name, _whole(said, "priority") or 0,
            frozenset(each.strip() for each in said.get("preempt", "").split(",") if each.strip()),
            float(factor) if re.fullmatch(r"\d+(\.\d+)?", factor) else 1.0,
            _caps(said, ("grpjobs",), ("grptres",), ("grptresrunmins",)),
            _caps(said, ("maxjobspu", "maxjobsperuser"), ("maxtrespu", "maxtresperuser")),
            _caps(said, ("maxjobspa", "maxjobsperaccount"), ("maxtrespa", "maxtresperaccount")),
            "noreserve" not in flags, "overpartqos" in flags, _seconds(said.get("preemptexempttime", "")))  # fmt: skip

    def _look(self, said: Mapping[str, str]) -> None:
        """What of it is said in the notes."""
        for name in _NOT_DONE:
            if said.get(name, "-1") != "-1":
                self.not_done[name] = None
        self.of_one_job |= any(said.get(name, "-1") != "-1" for name in _OF_ONE_JOB)
        for name in ("grptres", "maxtrespu", "maxtresperuser", "maxtrespa", "maxtresperaccount", "grptresrunmins"):
            for what, _, _ in _TRES.findall(said.get(name, "")):
                if what not in ("gres/gpu", "node"):
                    self.not_done[f"limits of {what}"] = None

    # --- sacctmgr dump ----------------------------------------------------------------------------------------

    def _dumped(self, match: re.Match[str], parent: str) -> str:
        """One line; which account those that follow are under."""
        kind, name, rest = match[1].lower(), match[2], match[3] or ""
        said = {}
        for part in _BETWEEN.split(rest):
            key, equals, value = part.partition("=")
            if equals and value.strip("'"):
                said[key.lower()] = value.strip("'")
        if kind == "parent":
            return name
        if kind == "account":
            self._associate(name, None, parent, said)
        elif kind == "user":
            self._associate(parent, name, parent, said)
        elif kind == "cluster":
            self._associate(ROOT, None, "", said)
            return ROOT
        return parent

    # --- reservations -----------------------------------------------------------------------------------------

    def _reservations(self, text: str) -> None:
        for block in re.split(r"(?=\bReservationName=)", text)[1:]:
            self.tables += 1
            said = {key.lower(): value for key, value in _PAIR.findall(block)}
            self._reserve(said["reservationname"], said.get("starttime", ""), said.get("endtime", ""),
                          said.get("nodes", ""))  # fmt: skip

    def _reserve(self, name: str, begin: str, end: str, nodes: str) -> None:
        since, until = moment(begin), moment(end)
        if since is None or until is None or until <= since:
            self.not_done[f"reservation {name} ({begin or '?'} to {end or '?'})"] = None
            return
        listed = None
        if nodes and nodes.upper() not in ("ALL", "(NULL)"):
            try:
                listed = tuple(expand(nodes))
            except UserError as error:
                raise UserError(f"policy 'slurm': reservation {name}: {error}") from None
        elif not nodes or nodes.upper() == "(NULL)":
            self.not_done[f"reservation {name}, which names no nodes"] = None
            return
        self.reservations.append(Reservation(name, since, until, listed))


def moment(text: str) -> float | None:
    """`2026-03-05T08:00:00` → seconds since 1970, as if it were UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _first(said: Mapping[str, str], names: Iterable[str]) -> str:
    return next((said[name] for name in names if name in said), "")


def _caps(said: Mapping[str, str], jobs: tuple[str, ...], tres: tuple[str, ...], run: tuple[str, ...] = (),
          nodes: tuple[str, ...] = ()) -> Caps:  # fmt: skip
    gpus, total = None, _whole(said, *nodes)
    typed = []
    for what, kind, count in _TRES.findall(_first(said, tres)):
        if what == "gres/gpu" and not kind:
            gpus = int(count)
        elif what == "gres/gpu":
            typed.append((kind, int(count)))
        elif what == "node":
            total = int(count)
    minutes = [int(count) for what, kind, count in _TRES.findall(_first(said, run)) if what == "gres/gpu" and not kind]
    return Caps(_whole(said, *jobs), gpus, total, minutes[0] * _MINUTE if minutes else None, tuple(typed))


def _whole(said: Mapping[str, str], *names: str) -> int | None:
    text = _first(said, names)
    return int(text) if text.isdigit() else None


def _seconds(text: str) -> float:
    """`01:00:00` or `1-00:00:00`."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return 0.0
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return days * 86400.0 + hours * 3600.0 + minutes * 60.0 + seconds
