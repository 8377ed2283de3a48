"""Shared GPUs: which jobs hold the very same GPUs, who runs when, and how packed jobs get along.

All jobs that hold an identical placement form a *group*. A group is a list of *turns* served in weighted round
robin: a turn of weight w runs w quanta in every round. A turn holds one job, or several *packed* jobs that run at
once. Groups never overlap: a GPU belongs to one group, which is taken from the free GPUs once and given back when
its last job leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from dally.core.job import Job
from dally.core.placement import Placement

QUANTUM: Final = 60.0  # seconds; Gandiva, OSDI'18: about a minute, some hundred mini-batches


class Share(NamedTuple):
    """How a job wants to hold GPUs that others may hold too.

    `beside` names a job of the same GPUs in whose turn it is packed; None: a turn of its own.
    """

    weight: float = 1.0
    beside: str | None = None
    quantum: float = QUANTUM


ALONE = Share()


class Interference(Protocol):
    """What packed jobs do to each other. The scheduler asks `fits` alone; `slowdown` is the world's knowledge."""

    def slowdown(self, job: Job, others: Sequence[Job], gpu_type: str) -> float:
        """How many times longer a step of `job` takes while the others run on the same GPUs; at least 1."""
        ...

    def fits(self, jobs: Sequence[Job], gpu_type: str) -> str | None:
        """None where the memory of a GPU holds all these jobs at once, else a sentence that says why not."""
        ...


class NoInterference:
    """Packed jobs do not feel each other and memory is never short: where nothing is known of jobs."""

    def slowdown(self, job: Job, others: Sequence[Job], gpu_type: str) -> float:
        return 1.0

    def fits(self, jobs: Sequence[Job], gpu_type: str) -> str | None:
        return None


class Group:
    """The jobs of one set of GPUs, as turns in order of service. Changed by `Groups` alone."""

    __slots__ = ("_shares", "placement", "turns")

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.turns: list[list[str]] = []  # job ids; several in one turn are packed
        self._shares: dict[str, Share] = {}

    @property
    def members(self) -> Iterable[str]:
        """Everybody on these GPUs, in order of arrival on them."""
        return self._shares.keys()

    def __len__(self) -> int:
        return len(self._shares)

    def __bool__(self) -> bool:
        return bool(self._shares)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._shares

    @property
    def quantum(self) -> float:
        """The shortest quantum any member asks for: who wants to react quickly is not held up by the others."""
        return min(share.quantum for share in self._shares.values())

    @property
    def sliced(self) -> bool:
        """Whether its jobs take turns at all."""
        return len(self.turns) > 1

    def share(self, job_id: str) -> Share:
        """As last asked for; whom a job was packed beside may have left since, `turn` says who is there."""
        return self._shares[job_id]

    def turn(self, job_id: str) -> list[str]:
        """The job and those packed with it."""
        return next(turn for turn in self.turns if job_id in turn)

    def others(self, job_id: str) -> list[str]:
        """Those that run at the same time as the job: the rest of its turn."""
        if len(self._shares) == 1:
            return []
        return [other for other in self.turn(job_id) if other != job_id]

    def weight(self, turn: Sequence[str]) -> float:
        """Of a turn: the largest of its members. Who is packed beside somebody takes nothing from him, and a pair
        is not served twice as much as a job alone."""
        return max(self._shares[job].weight for job in turn)

    def fraction(self, job_id: str) -> float:
        """Part of the time in which the job's turn is served; what switching costs is not in it."""
        if len(self.turns) == 1:
            return 1.0
        return self.weight(self.turn(job_id)) / sum(self.weight(turn) for turn in self.turns)

    def restore(self, turns: list[list[str]], shares: dict[str, Share]) -> None:
        """As a snapshot says it was."""
        self.turns, self._shares = turns, shares

    def _add(self, job_id: str, share: Share) -> None:
        if share.beside is None:
            self.turns.append([job_id])
        else:
            self.turn(share.beside).append(job_id)
        self._shares[job_id] = share

    def _remove(self, job_id: str) -> None:
        turn = self.turn(job_id)
        turn.remove(job_id)
        if not turn:
            self.turns.remove(turn)
        del self._shares[job_id]

    def _change(self, job_id: str, share: Share) -> None:
        turn = self.turn(job_id)
        if (len(turn) == 1) if share.beside is None else (share.beside in turn):
            self._shares[job_id] = share  # it stays in its turn
            return
        turn.remove(job_id)
        if share.beside is None:  # unpacked: right behind those it was packed with
            self.turns.insert(self.turns.index(turn) + 1, [job_id])
        else:
            self.turn(share.beside).append(job_id)
            if not turn:
                self.turns.remove(turn)
        self._shares[job_id] = share


class Groups:
    """All groups of a cluster, by GPUs, by job and by machine. Changes can be tried inside a `trial`."""

    __slots__ = ("_by_job", "_by_machine", "_by_placement", "_saved")

    def __init__(self) -> None:
        self._by_placement: dict[Placement, Group] = {}
        self._by_job: dict[str, Group] = {}
        self._by_machine: dict[int, dict[Placement, Group]] = {}
        self._saved: _Saved | None = None  # while something is being tried

    def __len__(self) -> int:
        return len(self._by_placement) - (0 if self._saved is None else len(self._saved.hollow))

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[Group]:
        return iter(self._there(self._by_placement))

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._by_job

    def at(self, placement: Placement) -> Group | None:
        """Who holds exactly these GPUs."""
        group = self._by_placement.get(placement)
        return group if group is not None and group.turns else None

    def of(self, job_id: str) -> Group:
        """The group a running job belongs to, be it alone."""
        return self._by_job[job_id]

    def on(self, machine: int) -> Iterable[Group]:
        """Groups with a GPU on the machine, in order of their formation."""
        return self._there(self._by_machine.get(machine, {}))

    def _there(self, groups: dict[Placement, Group]) -> Iterable[Group]:
        if self._saved is None or not self._saved.hollow:
            return groups.values()
        return [group for group in groups.values() if group.turns]

    def residents(self, machine: int) -> list[str]:
        """Jobs with a GPU on the machine."""
        return [job for group in self.on(machine) for job in group.members]

    def enter(self, job_id: str, placement: Placement, share: Share | None = None) -> bool:
        """Put a job on these GPUs; True where nobody held them before."""
        if self._saved is not None:
            self._saved.before(self, placement)
        group = self._by_placement.get(placement)
        if group is not None and not group.turns:  # left by everybody in this trial: another group, the latest now
            assert self._saved is not None
            self._saved.fill(self, group)
            group = None
        new = group is None
        if group is None:
            group = self._by_placement[placement] = Group(placement)
            for machine, _ in placement.slices:
                self._by_machine.setdefault(machine, {})[placement] = group
        group._add(job_id, share or ALONE)
        self._by_job[job_id] = group
        return new

    def adopt(self, group: Group, placement: Placement) -> None:
        """Another index's group under other numbers: the same turns, shares and order of arrival."""
        for member in group.members:
            self.enter(member, placement, group.share(member)._replace(beside=None))
        made = self._by_placement[placement]
        made.turns = [turn for turn in made.turns if turn[0] not in group] + [list(turn) for turn in group.turns]
        made._shares.update(group._shares)

    def leave(self, job_id: str) -> Group:
        """Take a job off its GPUs; the group that is returned may be empty now, and is then forgotten."""
        if self._saved is not None:
            self._saved.before(self, self._by_job[job_id].placement)
        group = self._by_job.pop(job_id)
        group._remove(job_id)
        if not group.turns:
            if self._saved is None:
                self._take_out(group)
            else:
                self._saved.hollow[group.placement] = None
        return group

    def _take_out(self, group: Group) -> None:
        del self._by_placement[group.placement]
        for machine, _ in group.placement.slices:
            del self._by_machine[machine][group.placement]

    def reshare(self, job_id: str, share: Share) -> Group:
        """Another weight or quantum, another turn, or a turn of its own."""
        group = self._by_job[job_id]
        if self._saved is not None:
            self._saved.before(self, group.placement)
        group._change(job_id, share)
        return group

    def trial(self) -> GroupsTrial:
        """`with groups.trial():` — whoever enters, leaves or changes turns in the block has not, after it."""
        return GroupsTrial(self)


class _Saved:
    """What a trial touched, as it was before.

    A group that everybody leaves in a trial stays where it is, hollow: so it is back in its place when the trial is
    undone, whatever the number of groups. Only where its GPUs are given out again in the same trial are the orders
    kept by copying them."""

    __slots__ = ("_all", "_machines", "groups", "hollow")

    def __init__(self) -> None:
        self.groups: dict[Placement, tuple[Group, list[list[str]], dict[str, Share]] | None] = {}
        self.hollow: dict[Placement, None] = {}
        self._all: dict[Placement, Group] | None = None
        self._machines: dict[int, dict[Placement, Group]] = {}

    def before(self, groups: Groups, placement: Placement) -> None:
        if placement not in self.groups:
            group = groups._by_placement.get(placement)
            self.groups[placement] = None if group is None else (group, [*map(list, group.turns)], dict(group._shares))

    def fill(self, groups: Groups, group: Group) -> None:
        """A hollow group makes room for another one on the same GPUs."""
        if self._all is None:
            self._all = dict(groups._by_placement)
        for machine, _ in group.placement.slices:
            if machine not in self._machines:
                self._machines[machine] = dict(groups._by_machine[machine])
        del self.hollow[group.placement]
        groups._take_out(group)

    def restore(self, groups: Groups) -> None:
        for placement in self.groups:  # first everybody out, then those who were there back in
            now = groups._by_placement.get(placement)
            for member in now.members if now is not None else ():
                groups._by_job.pop(member, None)
        if self._all is not None:
            groups._by_placement = self._all
            groups._by_machine.update(self._machines)
        for placement, saved in self.groups.items():
            if saved is not None:
                group = saved[0]
                group.turns, group._shares = saved[1:]
                groups._by_job.update(dict.fromkeys(group._shares, group))
            else:
                groups._by_placement.pop(placement, None)
                for machine, _ in placement.slices:
                    groups._by_machine.get(machine, {}).pop(placement, None)


class GroupsTrial:
    """Changes to groups that are always undone: a policy tries, the scheduler commits."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __enter__(self) -> Groups:
        assert self._groups._saved is None, "trials do not nest"
        self._groups._saved = _Saved()
        return self._groups

    def __exit__(self, *_: object) -> None:
        saved, self._groups._saved = self._groups._saved, None
        assert saved is not None
        saved.restore(self._groups)
