"""Jobs that could be packed: profiled, alone in their turn, not grown; of each class by utilisation."""

from __future__ import annotations

from dally.core.memory import Draft, Order, Table
from dally.policies.gandiva.memory import Class
from dally.policies.gandiva.servers import ByClass, Servers

Entry = tuple[float, int, str]  # utilisation, arrival, job


class Ready:
    """An index on the memory's draft: it follows from the groups and the profiles."""

    def __init__(self, draft: Draft, servers: Servers) -> None:
        self._servers = servers
        self._of: ByClass[Entry] = ByClass(draft)
        self._entry: Table[str, tuple[Class, Entry]] = Table(draft)

    def of(self, wanted: Class) -> Order[Entry]:
        return self._of[wanted]

    def has(self, wanted: Class, job_id: str) -> bool:
        """Whether the job is among those of this class."""
        known = self._entry.get(job_id)
        return known is not None and known[0] == wanted

    def put(self, wanted: Class, entry: Entry) -> None:
        known = self._entry.get(entry[2])
        if known is not None:
            if known == (wanted, entry):
                return
            self._take_out(*known)
        self._of[wanted].add(entry)
        self._entry[entry[2]] = wanted, entry
        self._servers.changed(wanted)

    def drop(self, job_id: str) -> None:
        known = self._entry.pop(job_id, None)
        if known is not None:
            self._take_out(*known)

    def _take_out(self, wanted: Class, entry: Entry) -> None:
        self._of[wanted].remove(entry)
        self._servers.changed(wanted)  # others come into question instead
