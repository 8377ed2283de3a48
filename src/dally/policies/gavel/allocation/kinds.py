"""Jobs of one kind: those that agree in all that a job is for as long as it lives, its gang and its throughputs.

Who is of which kind is worked out once for the programs of one allocation, which differ in what is asked for whom.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np

from dally.policies.gavel.allocation.grid import Floats, Ints
from dally.policies.gavel.allocation.program import Program


class Kinds:
    """The kinds of a program's jobs, in the order in which the first of each stands there."""

    def __init__(self, program: Program) -> None:
        self._gpus, self._gain = program.gpus, program.gain
        self.lines = lines([program.gpus[:, None], program.gain])  # by job, what its kind is
        kinds = {line: number for number, line in enumerate(dict.fromkeys(self.lines))}
        self.group: Ints = np.array(list(map(kinds.__getitem__, self.lines)), dtype=np.int64)
        self.alike = len(kinds) < len(self.lines)  # whether there are two of a kind
        self.count: Ints = np.bincount(self.group, minlength=len(kinds))
        self.first = first_of(self.group, len(kinds))
        # One row per kind, where that is fewer.
        self.names = tuple([(name_of(kind), 1) for kind in kinds]) if self.alike else ()
        self.gpus: Floats = program.gpus[self.first] * self.count
        self.gain: Floats = program.gain[self.first]
        self.nothing: Floats = np.zeros_like(self.gain)

    def are_of(self, program: Program) -> bool:
        """Whether it has the very jobs these were made for: arrays of one grid."""
        return program.gpus is self._gpus and program.gain is self._gain  # objects

    def asked_alike(self, program: Program) -> bool:
        """Whether the program asks the same for all jobs of one kind, so that a row per kind is enough."""
        if len(program.members) or program.push is None or program.floor is None:
            return False
        value, least = program.value, program.least
        if value.any() or (least is not value and least.any()):  # objects
            return False
        push, floor = program.push, program.floor
        return bool((push[self.first][self.group] == push).all() and (floor[self.first][self.group] == floor).all())


def lines(parts: list[Floats]) -> list[bytes]:
    """One string of bytes per row; −0.0 and 0.0 are one number."""
    table = np.ascontiguousarray(np.concatenate(parts, axis=1) + 0.0)
    found: list[bytes] = table.view(f"V{table.shape[1] * table.itemsize}").ravel().tolist()
    return found


def first_of(group: Ints, groups: int) -> Ints:
    """Of every group the first member."""
    first = np.empty(groups, dtype=np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # the earliest is written last
    return first


@lru_cache(maxsize=4096)
def name_of(kind: bytes) -> str:
    return blake2b(kind, digest_size=9).hexdigest()
