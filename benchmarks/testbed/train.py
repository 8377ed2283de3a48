"""The benchmark's training job: real DistributedDataParallel over gloo, in which only the GPU's work is a timed pause.

    rank.py --model language --steps 100 --log FILE --checkpoint DIR

Every layer pauses on the way forward and back for as long as a GPU would compute, and has real weights whose real
gradients DDP gathers into buckets and all-reduces while backward goes on. It is saved, asked to leave and resumed by
`dally.job`. Ranks come from dally's environment, or from srun's.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import dally.job
from testbed.models import MODELS, ModelKind


class Pause(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The identity, as slow as a layer on a GPU."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward: float, backward: float) -> torch.Tensor:
        ctx.seconds = backward
        time.sleep(forward)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        time.sleep(ctx.seconds)
        return gradients[0], None, None


class Layer(nn.Module):  # type: ignore[misc, unused-ignore]
    """Weights that meet the data in one product: as cheap as real gradients can be."""

    def __init__(self, parameters: int, forward: float, backward: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(parameters))
        self.pauses = forward, backward

    def forward(self, x: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        # The pause comes after the product, hence before it on the way back: a gradient is ready when its layer is.
        y = x + torch.dot(self.weight, data[: self.weight.numel()])
        paused: torch.Tensor = Pause.apply(y, *self.pauses)
        return paused


class Net(nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self, kind: ModelKind) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(layer.parameters, layer.forward, layer.backward) for layer in kind.layers)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        x = torch.zeros(())
        for layer in self.layers:
            x = layer(x, data)
        return x


class Log:
    """What the first rank writes down, a line at a time, so that a kill costs one line."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None or int(os.environ["RANK"]) != 0 else Path(path)

    def __call__(self, event: str, **fields: Any) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"event": event, "time": time.time(), **fields}) + "\n")


def find_ranks() -> None:
    """srun's variables in the words that torch reads, where nobody has set those."""
    if "RANK" in os.environ:
        return
    slurm = os.environ
    os.environ.update(RANK=slurm.get("SLURM_PROCID", "0"), WORLD_SIZE=slurm.get("SLURM_NTASKS", "1"),
                      LOCAL_RANK=slurm.get("SLURM_LOCALID", "0"))  # fmt: skip
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(20000 + int(slurm.get("SLURM_JOB_ID", "0")) % 20000))


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--log", help="file for what the first rank measures")
    parser.add_argument("--checkpoint", help="folder, where dally names none")
    chosen = parser.parse_args(words)
    kind = MODELS[chosen.model]
    torch.set_num_threads(1)
    find_ranks()
    log, world = Log(chosen.log), int(os.environ["WORLD_SIZE"])
    said = {name: os.environ.get(name) for name in ("DALLY_JOB", "DALLY_GPUS", "SLURM_JOB_ID")}
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    log("begin", model=kind.name, world=world, nodes=nodes, host=socket.gethostname(), **said)
    train(kind, chosen.steps, world, chosen.checkpoint, log)


def train(kind: ModelKind, steps: int, world: int, checkpoint: str | None, log: Log) -> None:
    if world > 1:
        dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    data = torch.randn(max(layer.parameters for layer in kind.layers), generator=torch.Generator().manual_seed(rank))
    model: nn.Module = Net(kind)
    if world > 1:
        cap = kind.bucket / 2**20
        # All ranks begin with the same weights or the same checkpoint: nothing has to be sent before the first step.
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=cap, gradient_as_bucket_view=True,
                                                    init_sync=False)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    where = None if "DALLY_CHECKPOINT" in os.environ else checkpoint
    done, seconds, told, before = 0, 0.0, time.monotonic(), os.times()
    first: int | None = None
    times: list[float] = []
    begin = 0.0
    log("ready")
    try:
        for step in dally.job.loop(steps, model, optimizer, directory=where):
            first = step if first is None else first
            begin = time.monotonic() if not times else begin  # a step is all that is between two of them
            loss = (model(data) - rank) ** 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            now = time.monotonic()
            times.append(now - begin)
            seconds, begin, done = seconds + now - begin, now, done + 1
            if time.monotonic() - told > 2.0:
                told = time.monotonic()
                share = max(0.0, 1 - done * kind.compute / seconds)
                dally.job.exposed(min(1.0, share))
                log("steps", first=first, steps=done, seconds=seconds)
    finally:
        after = os.times()
        cpu = after.user + after.system - before.user - before.system
        log("end", first=first, steps=done, seconds=seconds, cpu=cpu, wanted=steps,
            median=sorted(times)[len(times) // 2] if times else None,
            whole=first is not None and first + done >= steps)  # fmt: skip
