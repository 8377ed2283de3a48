"""Small ResNets and VGGs on made-up images, trained with DDP: what `dally reproduce stash --measure` profiles."""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BLOCKS = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
VGG = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3)}


class Block(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """Two convolutions, with a shortcut or without."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: bool, residual: bool) -> None:
        super().__init__()
        self.first = convolution(inputs, outputs, stride, norm)
        self.second = convolution(outputs, outputs, 1, norm)
        self.short: Any = None
        if residual and (stride != 1 or inputs != outputs):
            self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.residual = residual

    def forward(self, x: Any) -> Any:
        y = self.second(torch.relu(self.first(x)))
        if self.residual:
            y = y + (x if self.short is None else self.short(x))
        return torch.relu(y)


def convolution(inputs: int, outputs: int, stride: int, norm: bool) -> nn.Module:
    layer = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=not norm)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs)) if norm else layer


def resnet(depth: int, width: int, norm: bool, residual: bool) -> nn.Module:
    layers: list[Any] = [convolution(3, width, 1, norm), nn.ReLU()]
    channels = width
    for stage, count in enumerate(BLOCKS[depth]):
        for block in range(count):
            layers.append(Block(channels, width << stage, 2 if stage and not block else 1, norm, residual))
            channels = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def vgg(depth: int, width: int, norm: bool) -> nn.Module:
    layers: list[Any] = []
    channels = 3
    for stage, count in enumerate(VGG[depth]):
        for _ in range(count):
            out = min(width << stage, 8 * width)
            layers += [convolution(channels, out, 1, norm), nn.ReLU()]
            channels = out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, 64 * width), nn.ReLU(), nn.Linear(64 * width, 10))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("family", choices=["resnet", "vgg"])
    parser.add_argument("depth", type=int)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--no-norm", action="store_true")
    parser.add_argument("--no-residual", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    if args.family == "resnet":
        model = resnet(args.depth, args.width, not args.no_norm, not args.no_residual)
    else:
        model = vgg(args.depth, args.width, not args.no_norm)
    data = TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,)))
    loader = DataLoader(data, args.batch_size, sampler=DistributedSampler(data))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-3, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for _ in range(100_000):
        for x, y in loader:
            optimizer.zero_grad()
            criterion(wrapped(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
