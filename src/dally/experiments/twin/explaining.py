"""What may explain the rest: places where the record and the description of the cluster do not agree."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.experiments.twin.backtest import FEW, BackTest
from dally.experiments.twin.history import History, Recorded, partition_of
from dally.report.wording import jobs_text, listed, share_text, time_text

MOST_LOOKED_AT = 2000  # jobs whose waits are looked into
LOOKS = 5  # moments of each wait
LONG = 60.0  # seconds: shorter waits are the scheduler's own pace
_TELLING = 0.05  # a share that is worth a sentence


@dataclass(frozen=True, slots=True)
class Room:
    """Of waits looked into: in what part of them the record itself had room for the job, by partition and by user."""

    looks: int
    with_room: int
    by_user: tuple[tuple[str, int, int], ...]  # looks, with room


def explanations(history: History, topology: Topology, test: BackTest) -> list[str]:
    """Sentences, the weightiest first; empty where nothing was found."""
    said = [*_unfit(history, topology, test), *_room_said(history, topology, test), *_concentrated(test),
            *_known_gaps(history)]  # fmt: skip
    return said or ["nothing that the record shows; what is left is chance, and what this model of the scheduler lacks"]


# --- the cluster as it is described ------------------------------------------------------------------------------


def _unfit(history: History, topology: Topology, test: BackTest) -> list[str]:
    said = []
    if test.replay.rejected:
        said.append(f"{jobs_text(test.replay.rejected)} ran in the record and cannot run on the cluster as it is "
                    "described: too few GPUs of their type or partition, or nodes that are missing")  # fmt: skip
    named = Counter(name for each in history.ran.values() for name, _ in each.truth.ran_on)
    if named:
        strange = [name for name in named if _machine(topology, name) is None]
        if strange:
            said.append(f"{len(strange)} nodes of the record are not in the cluster: {_some(strange)}")
        known = {_machine(topology, name) for name in named}
        idle = [machine.name for machine in topology.machines if machine.index not in known]
        if idle and len(strange) != len(named):
            said.append(f"{len(idle)} of {len(topology.machines)} machines ran nothing in the whole record: "
                        f"{_some(idle)}; if they were down, the replay has GPUs that nobody had")  # fmt: skip
        over = _overbooked(history, topology)
        if over:
            said.append(f"{len(over)} nodes held more GPUs at once than the cluster gives them: {_some(over)}")
    return said


def _machine(topology: Topology, name: str) -> int | None:
    return topology.machine_by_name.get(name)


def _overbooked(history: History, topology: Topology) -> list[str]:
    changes: dict[str, list[tuple[float, int]]] = {}
    for each in history.ran.values():
        for name, gpus in each.truth.ran_on:
            if not each.again:
                changes.setdefault(name, []).extend([(each.start, gpus), (each.end, -gpus)])
    found = []
    for name, steps in changes.items():
        index, held = _machine(topology, name), 0
        if index is None:
            continue
        for _, step in sorted(steps):
            held += step
            if held > topology.machines[index].gpus:
                found.append(name)
                break
    return found


# --- jobs that waited although there was room -------------------------------------------------------------------


def room_while_waiting(history: History, topology: Topology, jobs: Sequence[Recorded]) -> Room | None:
    """Looks into a sample of waits: were as many nodes with enough free GPUs there, on the nodes its partition's jobs
    ran on? None where the record names no nodes."""
    waited = [each for each in jobs if each.start - each.job.submit_time > LONG and not each.again]
    if not waited or not any(each.truth.ran_on for each in history.ran.values()):
        return None
    step = max(1, len(waited) // MOST_LOOKED_AT)
    homes: dict[str, set[int]] = {}
    for each in history.ran.values():
        found = (_machine(topology, name) for name, _ in each.truth.ran_on)
        homes.setdefault(partition_of(each.job), set()).update(index for index in found if index is not None)
    looks = [(each.job.submit_time + (each.start - each.job.submit_time) * (k + 0.5) / LOOKS, each)
             for each in waited[::step] if each.truth.ran_on for k in range(LOOKS)]  # fmt: skip
    looks.sort(key=lambda look: look[0])
    begins = sorted((each for each in history.ran.values() if each.truth.ran_on), key=lambda each: each.start)
    free = [machine.gpus for machine in topology.machines]
    running: list[tuple[float, int, Recorded]] = []
    at, with_room, per_user = 0, 0, Counter[str]()
    for moment, each in looks:
        while at < len(begins) and begins[at].start <= moment:
            heapq.heappush(running, (begins[at].end, at, begins[at]))
            _take(free, topology, begins[at], -1)
            at += 1
        while running and running[0][0] <= moment:
            _take(free, topology, heapq.heappop(running)[2], 1)
        need = max(gpus for _, gpus in each.truth.ran_on)
        there = sum(free[index] >= need for index in homes[partition_of(each.job)])
        if there >= len(each.truth.ran_on):
            with_room += 1
            per_user[each.job.user or "–"] += 1
    looked = Counter(each.job.user or "–" for _, each in looks)
    users = tuple((name, looked[name], count) for name, count in per_user.most_common())
    return Room(len(looks), with_room, users) if looks else None


def _take(free: list[int], topology: Topology, each: Recorded, sign: int) -> None:
    for name, gpus in each.truth.ran_on:
        index = _machine(topology, name)
        if index is not None:
            free[index] += sign * gpus


def _room_said(history: History, topology: Topology, test: BackTest) -> list[str]:
    room = room_while_waiting(history, topology, test.jobs)
    if room is None:
        return _counted_said(history, topology, test)
    if room.with_room < _TELLING * room.looks:
        return []
    said = (f"in {share_text(room.with_room / room.looks)} of the moments looked at, a job waited although nodes of "
            "its partition had room for it: a reservation for another, a limit of its user or account, a dependency, "
            "or a node that was down; only the first is in the model")  # fmt: skip
    worst = [(name, held / looks) for name, looks, held in room.by_user if looks >= FEW and held > 0.5 * looks]
    if worst:
        said += f"; most of all for {listed([f'{name} ({share_text(part)})' for name, part in worst[:3]])}"
    return [said]


def _counted_said(history: History, topology: Topology, test: BackTest) -> list[str]:
    """Of a record that names no nodes: GPUs are counted over the whole cluster, whatever its partitions."""
    said = []
    looks, with_room, most = counted_room(history, topology.gpus, test.jobs)
    if most > topology.gpus:
        said.append(f"jobs held {most:,} GPUs at once, and the cluster as it is described has {topology.gpus:,}")
    if looks and with_room >= _TELLING * looks:
        said.append(f"in {share_text(with_room / looks)} of the moments looked at, a job waited although as many "
                    "GPUs as it asked for were free somewhere: a reservation for another, hours or queues it was not "
                    "allowed in, a limit of its user or account, free GPUs in too small pieces, or nodes that were "
                    "down; only reservations and pieces are in the model")  # fmt: skip
    return said


def counted_room(history: History, gpus: int, jobs: Sequence[Recorded]) -> tuple[int, int, int]:
    """(moments of waits looked at, those of them with as many GPUs free as the job asked for, most GPUs ever held)."""
    waited = [each for each in jobs if each.start - each.job.submit_time > LONG and not each.again]
    step = max(1, len(waited) // MOST_LOOKED_AT)
    looks = sorted((each.job.submit_time + (each.start - each.job.submit_time) * (k + 0.5) / LOOKS, each.job.gpus)
                   for each in waited[::step] for k in range(LOOKS))  # fmt: skip
    # at one moment, who ends goes before who starts, and both before the look
    steps = sorted([(each.end, 0, -each.job.gpus) for each in history.ran.values()]
                   + [(each.start, 1, each.job.gpus) for each in history.ran.values()])  # fmt: skip
    held = most = at = with_room = 0
    for moment, need in [*looks, (float("inf"), gpus + 1)]:
        while at < len(steps) and steps[at][0] <= moment:
            held += steps[at][2]
            most = max(most, held)
            at += 1
        with_room += gpus - held >= need
    return len(looks), with_room, most


# --- where the error is -------------------------------------------------------------------------------------------


def _concentrated(test: BackTest) -> list[str]:
    """Groups that hold much more of the error than of the jobs."""
    said = []
    total = sum(abs(each.wait_bias) * each.jobs for each in test.groups["partition"])
    for what, groups in test.groups.items():
        whole = sum(abs(each.wait_bias) * each.jobs for each in groups)
        for each in sorted(groups, key=lambda held: -abs(held.wait_bias) * held.jobs)[:1]:
            part, of_jobs = abs(each.wait_bias) * each.jobs / whole if whole else 0.0, each.jobs / len(test.jobs)
            if total and each.jobs >= FEW and part > 0.4 and part > 1.5 * of_jobs:
                word = "too long" if each.wait_bias > 0 else "too short"
                said.append(f"{what} {each.name}, {share_text(of_jobs)} of the jobs, has {share_text(part)} of the "
                            f"misfit in waits by {what}: {time_text(abs(each.wait_bias))} {word}")  # fmt: skip
    return said


def _known_gaps(history: History) -> list[str]:
    said = []
    again = sum(each.again for each in history.ran.values())
    if again:
        said.append(f"{jobs_text(again)} were put back into the queue and ran again: why is not in the record, and "
                    "they are not compared")  # fmt: skip
    if history.warm:
        said.append(f"{jobs_text(len(history.warm))} ran when the record began; what users had used before, and so "
                    "their fair-share, is not known")  # fmt: skip
    return said


def _some(names: Sequence[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:3]) + (", …" if len(shown) > 3 else "")
