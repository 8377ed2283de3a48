"""A Slurm that is a dictionary: answers what it is made to, loses what it is made to lose, and runs nothing by itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dally.live.local import shim
from dally.live.slurm.client import Slurm, SlurmAway, SlurmRefused
from dally.live.slurm.reading import Reservation, SlurmJob, SlurmNode


class FakeSlurm(Slurm):
    def __init__(self, nodes: int = 2, gpus: int = 4) -> None:
        super().__init__(1.0)
        self.table: dict[int, SlurmJob] = {}
        self.node_table = {f"n{i}": SlurmNode(f"n{i}", f"10.0.0.{i}", "IDLE", gpus={None: gpus}) for i in range(1, nodes + 1)}
        self.reserved: list[Reservation] = []
        self.away = False
        self.deaf = False  # does what it is told, and its answer is lost
        self.refuses = ""
        self.said: list[tuple[str, tuple[int, ...]]] = []
        self.handed: list[Sequence[str]] = []
        self.listings = 0

    def _answer(self) -> None:
        self.calls += 1
        if self.away:
            raise SlurmAway("Unable to contact slurm controller")

    def jobs(self) -> list[SlurmJob]:
        self._answer()
        self.listings += 1
        return list(self.table.values())

    def nodes(self) -> list[SlurmNode]:
        self._answer()
        return list(self.node_table.values())

    def reservations(self) -> list[Reservation]:
        return self.reserved

    def submit(self, script: str, options: Sequence[str]) -> int:
        self._answer()
        if self.refuses:
            raise SlurmRefused(self.refuses)
        number = len(self.handed) + 1
        self.handed.append(options)
        comment = next(word for word in options if word.startswith("--comment=")).partition("=")[2]
        self.table[number] = SlurmJob(number, "PENDING", "JobHeldUser", os.getuid(), "me", "x", comment, held=True)
        if self.deaf:
            raise SlurmAway("sbatch got no answer")
        return number

    def release(self, ids: Sequence[int]) -> None:
        self._answer()
        self.said += [("release", tuple(ids))] if ids else []
        for number in ids:
            self.change(number, held=False, reason="None")

    def nudge(self, ids: Sequence[int]) -> None:
        self._answer()
        self.said += [("nudge", tuple(ids))] if ids else []

    def cancel(self, ids: Sequence[int]) -> None:
        self._answer()
        self.said += [("cancel", tuple(ids))] if ids else []
        for number in ids:
            if not self.table[number].over:
                self.change(number, state="CANCELLED")

    # --- what happens on the nodes --------------------------------------------------------------------------------

    def change(self, number: int, **fields: object) -> None:
        self.table[number] = replace(self.table[number], **fields)  # type: ignore[arg-type]

    def runs(self, number: int, folder: Path, *nodes: str) -> None:
        """Its batch process has taken the attempt."""
        os.link(folder / "run", folder / "claim")
        shim.Record(f"{folder}/exit").write(state="running", token="t")
        self.change(number, state="RUNNING", nodes=nodes, gpus={node: {None: 1} for node in nodes})

    def ends(self, number: int, folder: Path, code: int | None, state: str = "COMPLETED") -> None:
        if code is not None:
            shim.Record(f"{folder}/exit").write(state="exited", code=code, cause="")
        self.change(number, state=state)
