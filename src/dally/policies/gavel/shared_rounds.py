"""Gavel with space sharing: pairs of jobs are rows of the allocation and units of the rounds (sections 3.1 and 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dally.core.plan import Plan
from dally.core.policy import View
from dally.policies.gavel.pairs import Partners
from dally.policies.gavel.paper import PaperRounds
from dally.policies.gavel.reasons import explain_all
from dally.policies.gavel.rounds import still_loading
from dally.policies.gavel.units import PairStandings, UnitPlacer, Units, choose, order, room_of

if TYPE_CHECKING:
    from dally.policies.gavel.policy import GavelOptions


class SharedRounds(PaperRounds):
    """As `PaperRounds`, which knows the jobs that run alone; here are those that run in pairs."""

    def __init__(self, options: GavelOptions) -> None:
        super().__init__(options)
        self._pairs: Units = {}  # pairs that run in this round, and their column

    def _start(self, view: View) -> None:
        super()._start(view)
        assert self.allotter is not None
        workers = self.allotter.workers
        self.allotter.partners = Partners(self.columns, workers, self.options.pack_above, self.options.partners)
        self.together = PairStandings({}, len(self.columns.all))
        self.units = UnitPlacer(view.topology, self.columns, self.options.placement_sensitive)

    # --- who goes -----------------------------------------------------------------------------------------

    def _forget(self, job_id: str) -> bool:
        self._part(job_id)
        return super()._forget(job_id)

    def _lose(self, job_id: str) -> None:
        self._part(job_id)
        super()._lose(job_id)

    def _part(self, job_id: str) -> None:
        """Its partner goes on alone on the same GPUs; the round counts for it as if it had been alone all along."""
        for row in [row for row in self._pairs if job_id in row]:
            column = self._pairs.pop(row)
            self._running[row[1] if row[0] == job_id else row[0]] = column

    # --- rounds -------------------------------------------------------------------------------------------

    def _book(self, now: float) -> None:
        super()._book(now)
        for row, column in self._pairs.items():
            if (place := self.together.index.get(row)) is not None:
                self.together.received[place, column] += now - self._began
        if self._gone:
            self.together.dissolve(self._gone, self.standings)

    def _allocate(self, view: View, now: float) -> None:
        super()._allocate(view, now)
        assert self.allotter is not None
        self.together = PairStandings(self.allotter.together, len(self.columns.all))

    def _deal(self, view: View, now: float) -> Plan:
        running: Units = {**{(job_id,): column for job_id, column in self._running.items()}, **self._pairs}
        alone = {job_id: column for row, column in running.items() for job_id in row}
        loading = still_loading(view, alone, now)
        settled = {row: column for row, column in running.items() if any(job_id in loading for job_id in row)}
        cells = order(self.standings, self.together, self.options.round / 2.0, self.conserving)
        chosen = choose(view, self.standings, self.together, self.columns, cells,
                        room_of(view, self.columns, running), settled)  # fmt: skip
        if chosen == running and not self.options.placement_sensitive:
            return []
        plan, after = self.units.carry_units(view, running, chosen, self._spare(cells))
        self._running = {row[0]: column for row, column in after.items() if len(row) == 1}
        self._pairs = {row: column for row, column in after.items() if len(row) == 2}
        return plan

    def _spare(self, cells: list[int]) -> list[tuple[str, int]]:
        """Jobs in order, where those who were chosen may find no place near enough."""
        if not self.options.placement_sensitive:
            return []
        width, ids = len(self.columns.all), self.standings.ids
        return [(ids[cell // width], cell % width) for cell in cells if cell // width < len(ids)]

    def _explain(self, view: View) -> Plan:
        runs = {job_id for row in self._pairs for job_id in row} | self._running.keys()
        shares = {job_id: [*self.standings.share[place], *self.together.of(job_id)]
                  for job_id, place in self.standings.index.items() if job_id not in runs}  # fmt: skip
        names = (*self.columns.names, *(f"{name} beside another job" for name in self.columns.names))
        return explain_all(view, names, shares, len(self.members))
