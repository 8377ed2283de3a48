"""Measured training speeds: steps per second of a job type on each GPU type, alone or beside another job.

The file is Gavel's (OSDI'20): GPU type → "('ResNet-18 (batch size 16)', 2)", job type and gang size → "null" for
the job alone, or a second key of that form for the job it shares its GPUs with, and then a pair of rates. A rate
of 0 says that it cannot run there, mostly for want of memory. A GPU type written `v100_unconsolidated` holds the
rates of gangs spread over several machines.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.records import dataclass

JobType = tuple[str, int]  # model as the file names it, gang size
Pair = tuple[float, float]
_SPREAD = "_unconsolidated"


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Steps per second; GPU types under the catalog's own names where it knows them."""

    source: str
    alone: Mapping[str, Mapping[JobType, float]]
    spread: Mapping[str, Mapping[JobType, float]]  # gangs over several machines, where measured
    beside: Mapping[str, Mapping[tuple[JobType, JobType], Pair]]

    @property
    def job_types(self) -> list[JobType]:
        return list(dict.fromkeys(kind for rates in self.alone.values() for kind in rates))

    def rate(self, model: str | None, gpus: int, gpu_type: str, *, consolidated: bool = True) -> float | None:
        """None where nobody measured it; 0 where it does not run."""
        if model is None:
            return None
        name = gpu_name(gpu_type)
        if not consolidated:
            found = self.spread.get(name, {}).get((model, gpus))
            if found is not None:
                return found
        return self.alone.get(name, {}).get((model, gpus))

    def pair(self, first: str | None, second: str | None, gpus: int, gpu_type: str) -> Pair | None:
        """Rates of two jobs of one size that share their GPUs; None where nobody measured them together."""
        if first is None or second is None:
            return None
        rates = self.beside.get(gpu_name(gpu_type), {})
        found = rates.get(((first, gpus), (second, gpus)))
        if found is not None:
            return found
        turned = rates.get(((second, gpus), (first, gpus)))
        return None if turned is None else (turned[1], turned[0])


@lru_cache(maxsize=256)
def gpu_name(text: str) -> str:
    """The catalog's name of a GPU type, or the text itself where the catalog does not know it."""
    from dally.catalog.store import gpus

    return gpus().resolve(text) or text


def read_throughputs(path: str | Path) -> Throughputs:
    """Read the file, or say in one sentence which entry of it is wrong."""
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"throughputs {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"throughputs {path}: it is not text in UTF-8") from error
    except json.JSONDecodeError as error:
        raise UserError(f"throughputs {path}, line {error.lineno}: it is not JSON: {error.msg}") from error
    if not isinstance(document, dict) or not document:
        raise UserError(f"throughputs {path}: it must be an object of GPU types, each with its job types")
    alone: dict[str, dict[JobType, float]] = {}
    spread: dict[str, dict[JobType, float]] = {}
    beside: dict[str, dict[tuple[JobType, JobType], Pair]] = {}
    for written, entries in document.items():
        where = f"throughputs {path}, GPU type {written!r}"
        if not isinstance(entries, dict):
            raise UserError(f"{where}: it must be an object of job types")
        far = written.endswith(_SPREAD)
        name = gpu_name(written.removesuffix(_SPREAD))
        rates = (spread if far else alone).setdefault(name, {})
        pairs = beside.setdefault(name, {})
        for text, cells in entries.items():
            kind = _job_type(text, where)
            if not isinstance(cells, dict) or "null" not in cells:
                raise UserError(f"{where}, job type {text!r}: it must be an object with the rate alone under \"null\"")
            for other, value in cells.items():
                if other == "null":
                    rates[kind] = _rate(value, f"{where}, job type {text!r}, alone")
                elif not far:
                    pairs[kind, _job_type(other, where)] = _pair(value, f"{where}, job type {text!r} beside {other!r}")
    return Throughputs(str(path), alone, spread, beside)


def _job_type(text: str, where: str) -> JobType:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        found = None
    if (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], str) and isinstance(found[1], int)
            and not isinstance(found[1], bool) and found[1] >= 1):  # fmt: skip
        return found[0], found[1]
    raise UserError(f"{where}: {text!r} is not a job type; write it like \"('ResNet-18 (batch size 16)', 2)\"")


def _rate(value: Any, where: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    raise UserError(f"{where}: {value!r} is not a number of steps per second")


def _pair(value: Any, where: str) -> Pair:
    if isinstance(value, list) and len(value) == 2:
        return _rate(value[0], where), _rate(value[1], where)
    raise UserError(f"{where}: it must be two rates, of the first and of the second job")
