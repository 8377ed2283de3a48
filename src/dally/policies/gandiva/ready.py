"""Jobs that could be packed: profiled, alone in their turn, not grown; of each class by utilisation.

What a job's utilisation is, is worked out when it matters: of most jobs the least that it can be shows that others come
before them.
"""

from __future__ import annotations

from dally.core.active import ActiveJob
from dally.core.memory import Draft, Order
from dally.core.policy import View
from dally.policies.gandiva.introspection import Introspection
from dally.policies.gandiva.peers import Index, Peers, Profiled


class _Place:
    """Where a job that could be packed stands: among whom, in which of their orders, as what."""

    __slots__ = ("entry", "order", "peers")

    def __init__(self, peers: Peers, order: Order[Profiled], entry: Profiled) -> None:
        self.peers, self.order, self.entry = peers, order, entry


class Ready:
    """An index on the memory's draft: it follows from the groups and the profiles."""

    def __init__(self, view: View, draft: Draft, watch: Introspection) -> None:
        self._view, self._watch = view, watch
        self._places: Index[str, _Place] = Index(draft)

    @staticmethod
    def count(peers: Peers) -> int:
        """How many of a class could be packed."""
        return len(peers.profiled) + len(peers.unread)

    def first(self, peers: Peers, most: int) -> list[Profiled]:
        """Those of a class that use their GPUs least: utilisation, arrival, job."""
        profiled, unread = peers.profiled, peers.unread
        while unread and (len(profiled) < most or unread[0][0] <= profiled[most - 1][0]):
            entry = unread[0]
            job_id: str = entry[2]
            unread.remove(entry)
            self._add(peers, profiled, (self._watch.utilization(self._view.job(job_id)), entry[1], job_id))
        return profiled[:most]

    def has(self, peers: Peers, job_id: str) -> bool:
        """Whether the job is among those of this class."""
        known = self._places.get(job_id)
        return known is not None and known.peers is peers  # objects

    def put(self, peers: Peers, job: ActiveJob) -> None:
        self.drop(job.id)
        self._add(peers, peers.unread, (self._watch.least_utilization(job), job.number, job.id))
        peers.changed()

    def _add(self, peers: Peers, order: Order[Profiled], entry: Profiled) -> None:
        order.add(entry)
        self._places.put(entry[2], _Place(peers, order, entry))

    def drop(self, job_id: str) -> None:
        known = self._places.take(job_id)
        if known is not None:
            known.order.remove(known.entry)
            known.peers.changed()  # others come into question instead
