"""The trainings of `trainings.py` as jobs of the service: `dally.job` reports their steps and may interrupt them."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from trainings import cnn, mlp, transformer

import dally.job


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["cnn", "mlp", "transformer"])
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=100_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, rows = {"cnn": cnn, "mlp": mlp, "transformer": transformer}[args.model]()
    data = TensorDataset(rows, torch.randint(0, 10, (len(rows),)))
    loader = DataLoader(data, args.batch_size, sampler=DistributedSampler(data))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for _, (x, y) in dally.job.batches(loader, wrapped, optimizer, epochs=args.epochs):
        optimizer.zero_grad()
        criterion(wrapped(x), y).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
