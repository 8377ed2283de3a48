"""Times all-reduces of growing size inside a machine, between machines and between racks; every rank runs it."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from dally.profiler.inside.record import Record
from dally.profiler.inside.task import read_task

MACHINE = "DALLY_PROFILE_MACHINE"  # `rack/machine` of a rank; by default the host's name, all in one rack
SIZES = "DALLY_PROFILE_SIZES"  # bytes, separated by commas
_LEAST, _MOST = 5, 200  # repetitions of one size
_SECONDS = 1.5  # for one size, as far as the least number of repetitions allows


def members(places: list[tuple[str, str]]) -> list[tuple[str, list[int]]]:
    """Level → ranks that meet there: all of one machine, then one of each machine of a rack, then one of each rack."""
    first_rack, first_machine = places[0]
    inside = [rank for rank, place in enumerate(places) if place == (first_rack, first_machine)]
    rack: dict[str, int] = {}
    racks: dict[str, int] = {}
    for rank, (in_rack, machine) in enumerate(places):
        if in_rack == first_rack:
            rack.setdefault(machine, rank)
        racks.setdefault(in_rack, rank)
    found = [("machine", inside), ("rack", list(rack.values())), ("cluster", list(racks.values()))]
    return [(level, ranks) for level, ranks in found if len(ranks) > 1]


def climb(record: Any, sizes: list[int]) -> None:
    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda") if cuda else torch.device("cpu")
    rank, world = dist.get_rank(), dist.get_world_size()
    rack, _, machine = os.environ.get(MACHINE, f"rack/{socket.gethostname()}").partition("/")
    places: list[Any] = [None] * world
    dist.all_gather_object(places, (rack, machine))
    record.write(
        "begin",
        rank=rank,
        world=world,
        backend=dist.get_backend(),
        places=places,
        gpu=torch.cuda.get_device_name() if cuda else None,
        torch=str(torch.__version__),
    )
    for level, ranks in members(places):
        group = dist.new_group(ranks)
        if rank in ranks:
            for size in sizes:
                data = torch.ones(max(1, size // 4), device=device)
                times = _times(dist, torch, data, group, cuda)
                record.write("ladder", level=level, ranks=len(ranks), size=data.numel() * 4, times=times)
        dist.barrier()
    record.write("done", steps=0)
    dist.destroy_process_group()


def _times(dist: Any, torch: Any, data: Any, group: Any, cuda: bool) -> list[float]:
    """Seconds of each all-reduce. The ranks agree beforehand on how many there will be."""
    for _ in range(2):
        dist.all_reduce(data, group=group)
    _settle(torch, cuda)
    began = time.perf_counter()
    dist.all_reduce(data, group=group)
    _settle(torch, cuda)
    guess = torch.tensor([time.perf_counter() - began], device=data.device)
    dist.all_reduce(guess, op=dist.ReduceOp.MAX, group=group)
    count = max(_LEAST, min(_MOST, int(_SECONDS / max(1e-6, float(guess)))))
    times = []
    for _ in range(count):
        dist.barrier(group=group)
        began = time.perf_counter()
        dist.all_reduce(data, group=group)
        _settle(torch, cuda)
        times.append(time.perf_counter() - began)
        data.fill_(1.0)
    return times


def _settle(torch: Any, cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


def main() -> None:
    task = read_task()
    assert task is not None
    climb(Record(task.folder), [int(size) for size in os.environ[SIZES].split(",")])


if __name__ == "__main__":
    main()
