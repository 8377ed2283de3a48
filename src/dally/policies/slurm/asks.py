"""What a gang comes to on nodes: so many of them, with so many GPUs on each."""

from __future__ import annotations

from typing import NamedTuple

from dally.policies.slurm.room import Chosen


class Shape(NamedTuple):
    """So many nodes with so many GPUs each; no nodes: GPUs wherever they are, as `sbatch --gpus` asks for them."""

    nodes: int
    gpus: int  # per node, or in all


_ANY = Shape(1, 1)  # a node with a GPU: the least that GPUs wherever they are come to


class Ask:
    """What a demand comes to on nodes of one GPU type in one partition."""

    __slots__ = ("chosen", "gpus", "least", "nodes", "shape", "where")

    def __init__(self, shape: Shape, where: int) -> None:
        self.shape, self.nodes, self.gpus = shape, shape.nodes, shape.gpus
        self.where = where  # nodes of this type that it may have at all
        self.least = shape if shape.nodes else _ANY  # what must be free before it can be there
        self.chosen: dict[int, Chosen] = {}  # by candidates, where nothing else decides: most looks find the same
