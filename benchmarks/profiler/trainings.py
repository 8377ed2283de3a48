"""Three small trainings on made-up rows for the profiler's benchmarks: `trainings.py cnn|mlp|transformer`."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def cnn() -> tuple[nn.Module, torch.Tensor]:
    """About 1.7 million parameters, most of them in the classifier."""
    body = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    body += [nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
    body += [nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(128 * 16, 768), nn.ReLU(), nn.Linear(768, 10)), torch.randn(
        256, 3, 32, 32
    )


def mlp() -> tuple[nn.Module, torch.Tensor]:
    """About 3.1 million parameters in four equal layers."""
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10)), torch.randn(256, 1024)


class Transformer(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """About 1.6 million parameters in two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(64, 256)
        block = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embed(x)).mean(1))


def transformer() -> tuple[nn.Module, torch.Tensor]:
    return Transformer(), torch.randn(256, 16, 64)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["cnn", "mlp", "transformer"])
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, rows = {"cnn": cnn, "mlp": mlp, "transformer": transformer}[args.model]()
    data = TensorDataset(rows, torch.randint(0, 10, (len(rows),)))
    loader = DataLoader(data, args.batch_size, sampler=DistributedSampler(data))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for _ in range(100_000):
        for x, y in loader:
            optimizer.zero_grad()
            criterion(wrapped(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
