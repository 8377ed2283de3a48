"""What Gandiva remembers: what jobs have shown of themselves, which trials run, what was learned, in what order."""

from __future__ import annotations

from typing import NamedTuple

from dally.core.memory import Memory, Order, Table
from dally.core.placement import Placement
from dally.core.plain import MachineNumber

Pair = tuple[str, str, str]  # two models (or jobs, where a model is not known) in order, and the GPU type
Gang = tuple[str, int]  # a model (or job, where the model is not known) and its GPUs


class Class(NamedTuple):
    """Jobs of one class can share GPUs."""

    gpu_type: str
    gpus: int  # of the gang as submitted


class Check(NamedTuple):
    """What is to be judged once the job has done its mini-batches."""

    partner: str | None = None  # packed beside this job: keep it or undo it
    before: float | None = None  # moved for locality: time per mini-batch where it was


class Watch(NamedTuple):
    """A job whose mini-batches are being counted."""

    check: Check
    since: float
    due: tuple[float, int, str]  # its entry in the order of looks


class Trial(NamedTuple):
    """Of a job that is packed and not judged yet."""

    partner: str
    placement: Placement  # where a turn is kept for the one that came, should it be undone


class GandivaMemory(Memory):
    """Jobs by id. Who is on which GPUs is not here: the view knows, and `servers` and `ready` index it."""

    order: int = 0  # counts whatever has an order of its own: looks, packings, gangs apart, jobs that could grow

    # introspection
    alone: Table[str, float]  # profiled jobs: seconds per mini-batch with the GPUs to themselves
    watched: Table[str, Watch]
    looks: Order[tuple[float, int, str]]  # when, order, job

    # servers
    affinity: Table[MachineNumber, int]  # size of the jobs a server is for; 0: none yet

    # packing
    packed: Table[str, int]  # jobs that were packed beside another, and their order: the oldest leaves first
    trials: Table[str, Trial]  # both ways
    undone: Table[Pair, float]  # pairs that did less than by taking turns, and when that was seen
    look_again: Order[Class]  # something changed there since the last pair was looked for
    tried: int = 0
    kept: int = 0
    parted: int = 0  # trials that were undone

    # migration
    apart: Table[str, int]  # gangs on more servers than they need, or further apart, and their order
    apart_first: Order[tuple[int, str]]  # who has not been looked at for longest first
    no_use: Table[Gang, float]  # gangs that ran no faster closer together, and when that was seen

    # grow and shrink
    grown: Table[str, Placement]  # the GPUs they had before, latest last
    could_grow: Table[str, tuple[MachineNumber, int]]  # jobs that could, with server and order
    growing_on: Order[tuple[MachineNumber, int, str]]  # the same by server
    idle_looks: Order[tuple[float, MachineNumber]]  # when to look at a server; only the one in `idle_next` counts
    idle_next: Table[MachineNumber, float]

    # the age threshold
    rescued: Table[str, float]  # jobs room was made for, and when

    def next(self) -> int:
        self.order += 1
        return self.order
