"""Gavel with space sharing: pairs of jobs are rows of the allocation and units of the rounds (sections 3.1 and 5)."""

from __future__ import annotations

from collections.abc import Iterable

from dally.core.active import ActiveJob
from dally.core.placement import Placement
from dally.core.plan import Plan, Preempt
from dally.core.policy import View
from dally.policies.gavel.memory import PaperMemory
from dally.policies.gavel.pairs import Partners
from dally.policies.gavel.paper import PaperRounds
from dally.policies.gavel.reasons import explain_all
from dally.policies.gavel.rounds import settled_in
from dally.policies.gavel.standings import PairStandings, order_all
from dally.policies.gavel.units import UnitPlacer, Units, choose, room_of


class SharedRounds(PaperRounds):
    """As `PaperRounds`, which knows the jobs that run alone; here are those that run in pairs."""

    def attach(self, view: View, memory: PaperMemory) -> None:
        super().attach(view, memory)
        self.allotter.partners = Partners(self.columns, self.allotter.workers, self.options.pack_above,
                                          self.options.partners)  # fmt: skip
        self.units = UnitPlacer(view.topology, self.columns, self.options.placement_sensitive)

    # --- who goes -----------------------------------------------------------------------------------------

    def _lose(self, memory: PaperMemory, job_id: str) -> None:
        """Its partner goes on alone on the same GPUs; the round counts for it as if it had been alone all along."""
        for row in [row for row in memory.pairs if job_id in row]:
            column = memory.pairs.pop(row)
            memory.running[row[1] if row[0] == job_id else row[0]] = column
        super()._lose(memory, job_id)

    def _find(self, view: View, memory: PaperMemory, job_id: str, placement: Placement) -> None:
        """Two jobs found packed are a pair. Where jobs take turns, or more than two are packed, nobody can go on so."""
        super()._find(view, memory, job_id, placement)
        if job_id not in memory.running or super()._is_strange(view, view.job(job_id)):
            return
        group = view.groups.of(job_id)
        members = sorted(group.members, key=lambda member: view.job(member).number)
        if len(members) == 2 and not group.sliced:
            if all(member in memory.running for member in members):  # the second to be found
                memory.pairs[tuple(members)] = memory.running[job_id]
                for member in members:
                    del memory.running[member]
        elif len(members) > 1:
            memory.strangers.update(dict.fromkeys((member for member in members if member in memory.running), True))

    def _is_strange(self, view: View, job: ActiveJob) -> bool:
        if super()._is_strange(view, job) or job.id not in view.groups:
            return super()._is_strange(view, job)
        group = view.groups.of(job.id)
        return group.sliced or len(group) > 2

    # --- rounds -------------------------------------------------------------------------------------------

    def _book(self, view: View, memory: PaperMemory, now: float) -> None:
        super()._book(view, memory, now)
        for row, column in memory.pairs.items():
            if row in memory.pair_share:
                was = memory.pair_received.get(row) or (0.0,) * len(self.columns.all)
                memory.pair_received[row] = (*was[:column], was[column] + (now - memory.began), *was[column + 1 :])
        if memory.gone:
            self._dissolve(view, memory, now)

    def _dissolve(self, view: View, memory: PaperMemory, now: float) -> None:
        """Pairs of those who have gone. What the other was owed and got in company it is owed and has got alone, until
        time is allocated anew."""
        standings, gone = self.standings(view, memory, now), memory.gone
        for row in [row for row in memory.pair_share if row[0] in gone or row[1] in gone]:
            share, received = memory.pair_share.pop(row), memory.pair_received.pop(row, None)
            for job_id in row:
                if job_id not in gone:
                    standings.inherit(memory, job_id, share, received)

    def _allocate(self, view: View, memory: PaperMemory, now: float) -> None:
        super()._allocate(view, memory, now)
        memory.pair_share.clear()
        memory.pair_share.update(self.allotter.together)
        memory.pair_received.clear()

    def _deal(self, view: View, memory: PaperMemory, now: float) -> Plan:
        away = self._send_away(view, memory) if memory.strangers else []
        standings, together = self.standings(view, memory), PairStandings(memory)
        running: Units = {**{(job_id,): column for job_id, column in memory.running.items()}, **memory.pairs}
        alone = {job_id: column for row, column in running.items() for job_id in row}
        fixed = settled_in(view, alone, now)
        settled = {row: column for row, column in running.items() if any(job_id in fixed for job_id in row)}
        cells = order_all(standings, together, self.options.round / 2.0, self.conserving)
        chosen = choose(view, standings, together, self.columns, cells,
                        room_of(view, self.columns, running), settled, away)  # fmt: skip
        if chosen == running and not self.options.placement_sensitive:
            return [Preempt(job_id) for job_id in away]
        plan, after = self.units.carry_units(view, running, chosen, self._spare(standings.ids, cells))
        memory.running.clear()
        memory.running.update({row[0]: column for row, column in after.items() if len(row) == 1})
        memory.pairs.clear()
        memory.pairs.update({row: column for row, column in after.items() if len(row) == 2})
        return [*map(Preempt, away), *plan]

    def _spare(self, ids: list[str], cells: list[int]) -> Iterable[tuple[str, int]]:
        """Jobs in order, where those who were chosen may find no place near enough."""
        if not self.options.placement_sensitive:
            return []
        width = len(self.columns.all)
        return [(ids[cell // width], cell % width) for cell in cells if cell // width < len(ids)]

    def _explain(self, view: View, memory: PaperMemory) -> Plan:
        runs = {job_id for row in memory.pairs for job_id in row} | memory.running.keys()
        together = PairStandings(memory)
        shares = {job_id: [*share, *together.of(job_id)]
                  for job_id, share in memory.share.items() if job_id not in runs}  # fmt: skip
        names = (*self.columns.names, *(f"{name} beside another job" for name in self.columns.names))
        return explain_all(view, names, shares, len(memory.share))
