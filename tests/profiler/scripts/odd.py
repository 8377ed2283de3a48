"""Training scripts that misbehave, one per mode, and two whose data are slow on purpose. Knows no profiler."""

import argparse
import ctypes
import mmap
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Rows(Dataset):
    """`slow-disk`: 10 ms for a file that is not in the page cache. `heavy-transform`: 10 ms per sample, always."""

    def __init__(self, mode, folder, size):
        self.mode, self.size = mode, size
        self.files = sorted(Path(folder).iterdir()) if folder else []

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if self.mode == "slow-disk":
            return read_slowly(self.files[index % len(self.files)]), index % 10
        row = torch.full((64,), float(index % 7))
        if self.mode == "heavy-transform":
            time.sleep(0.010)  # asleep, so that who else uses the CPU does not decide how heavy it is
        return row, index % 10


libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def in_memory(handle):
    """Whether the page cache holds the file's first page. Asking does not fetch it; RWF_NOWAIT would, on a fast disk."""
    first, held = ctypes.c_size_t(mmap.PAGESIZE), (ctypes.c_ubyte * 1)()
    found = libc.mmap(None, first, mmap.PROT_READ, mmap.MAP_SHARED, handle, ctypes.c_long(0))
    address = ctypes.c_void_p(found)
    if libc.mincore(address, first, held) != 0:
        raise OSError(ctypes.get_errno(), "mincore")
    libc.munmap(address, first)
    return bool(held[0] & 1)


def read_slowly(path):
    """A disk of 10 ms per file under a real page cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        if not in_memory(handle):
            time.sleep(0.010)
        buffer = bytearray(256)
        os.preadv(handle, [buffer], 0)
    finally:
        os.close(handle)
    return torch.frombuffer(buffer, dtype=torch.float32).nan_to_num(0, 0, 0).clamp(-1, 1)


def train(mode, folder, size, workers):
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1 or "RANK" in os.environ
    if distributed:
        dist.init_process_group("nccl")  # as written for GPUs
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    if distributed:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    criterion = nn.CrossEntropyLoss()

    def step(x, y):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()

    if mode == "no-loader":
        for _ in range(100_000):
            step(torch.randn(8, 64), torch.randint(0, 10, (8,)))
        return
    if mode == "no-training":
        return
    dataset = Rows(mode, folder, size)
    sampler = DistributedSampler(dataset) if distributed else None
    loader = DataLoader(dataset, 8, sampler=sampler, num_workers=workers)
    done = 0
    for _ in range(2 if mode == "short" else 1000):
        for x, y in loader:
            done += 1
            if mode == "crash" and done == 20:
                raise RuntimeError("the loss is not a number")
            if mode == "hang" and done == 20:
                time.sleep(3600)
            if mode == "stubborn":
                try:
                    step(x, y)
                except BaseException:
                    continue
            step(x, y)


def spawned(rank, mode, folder, size, workers, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    train(mode, folder, size, workers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mode")
    parser.add_argument("--folder", default="")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    if args.mode == "spawn":
        port = int(os.environ.get("MASTER_PORT", "29500")) + 1
        mp.spawn(spawned, (args.mode, args.folder, args.size, args.workers, port), nprocs=2)
    else:
        if args.mode == "daemon" and os.fork() == 0:
            os.setsid()
            time.sleep(3600)
        train(args.mode, args.folder, args.size, args.workers)
