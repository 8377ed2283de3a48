"""A plain PyTorch DDP script, made interruptible by the three lines that are marked."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import dally.job  # 1


class Noisy(Dataset):
    """Points with noise that is drawn when they are fetched: random numbers are part of the data."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.linspace(-1, 1, 16) * (index % 7 - 3) + 0.1 * torch.randn(16)
        return x, x.sum().reshape(1)


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(100 + rank)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)
data = Noisy()
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=True), num_workers=int(sys.argv[3]))
losses = Path(f"{sys.argv[1]}-{rank}").open("a")  # noqa: SIM115

for epoch, (x, y) in dally.job.batches(loader, model, optimizer, scheduler, epochs=4):  # 2 and 3: was two nested loops
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(epoch, loss.item().hex(), file=losses, flush=True)
    time.sleep(float(sys.argv[2]))
