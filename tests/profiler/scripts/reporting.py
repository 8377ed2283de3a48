"""A DDP training that reports its steps to dally; its device is a layer that takes its time, whatever the CPUs do."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import dally.job

torch.set_num_threads(1)


class Device(nn.Linear):
    """Forward takes as long as it was told."""

    def forward(self, x):
        time.sleep(float(sys.argv[1]))
        return super().forward(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(Device(64, 256), nn.ReLU(), nn.Linear(256, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(256, 64), torch.randint(0, 10, (256,)))
loader = DataLoader(data, 8, sampler=DistributedSampler(data))
for _, (x, y) in dally.job.batches(loader, model, optimizer, epochs=int(sys.argv[2])):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
