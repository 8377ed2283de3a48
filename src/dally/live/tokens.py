"""Tokens: who may ask what. Only a digest of each is kept; a token itself is shown once, when it is made.

A token is 32 random bytes, so that a plain digest is enough: nobody can try them out, and looking one up costs
nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import threading
import time
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.records import dataclass

PREFIX = "dally_"
_USER = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    name: str
    admin: bool = False

    def may_see(self, owner: str | None) -> bool:
        return self.admin or owner == self.name


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as it is kept."""

    id: str  # first digits of the digest: enough to name one
    user: str
    admin: bool
    made: float  # Unix seconds
    digest: str


class TokenFile:
    """Reads itself again when the file has changed: tokens come and go without a restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._rows: dict[str, TokenRow] = {}

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def rows(self) -> list[TokenRow]:
        return list(self._read().values())

    def caller(self, token: str) -> Caller | None:
        row = self._read().get(_digest(token))
        return None if row is None else Caller(row.user, row.admin)

    def add(self, user: str, admin: bool = False) -> str:
        """A new token for this user, which nobody will see again."""
        if not _USER.match(user):
            raise UserError(f"{user!r} is not the name of a user: letters, digits and . _ @ + - are allowed")
        token = PREFIX + secrets.token_urlsafe(32)
        digest = _digest(token)
        rows = {**self._read(), digest: TokenRow(digest[:10], user, admin, time.time(), digest)}
        self._write(rows)
        return token

    def remove(self, which: str) -> list[TokenRow]:
        """By id, or all tokens of a user. The file stays when the last one goes: nobody gets in then."""
        rows = self._read()
        gone = [row for row in rows.values() if which in (row.id, row.user)]
        if not gone:
            raise UserError(f"there is no token {which!r} and no user of that name in {self.path}")
        self._write({digest: row for digest, row in rows.items() if row not in gone})
        return gone

    def _read(self) -> dict[str, TokenRow]:
        try:
            found = self.path.stat()
        except OSError:
            return {}
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        with self._lock:
            if stamp != self._stamp:
                self._rows, self._stamp = self._load(), stamp
            return self._rows

    def _load(self) -> dict[str, TokenRow]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            rows = [TokenRow(each["sha256"][:10], str(each["user"]), each["admin"] is True, float(each["made"]),
                             str(each["sha256"])) for each in data["tokens"]]  # fmt: skip
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(f"{self.path} is not a file of tokens: {error}") from None
        return {row.digest: row for row in rows}

    def _write(self, rows: dict[str, TokenRow]) -> None:
        """Whole or not at all, readable by its owner alone."""
        data: dict[str, Any] = {"tokens": [
            {"user": row.user, "admin": row.admin, "made": row.made, "sha256": row.digest} for row in rows.values()
        ]}  # fmt: skip
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
            handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(data, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}") from None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
