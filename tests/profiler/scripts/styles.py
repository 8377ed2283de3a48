"""Training loops as people write them, one per style; each is profiled without an edit."""

import argparse
import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

torch.set_num_threads(1)


class Stream(IterableDataset):
    def __iter__(self):
        for number in range(300):
            yield {"x": torch.randn(20), "y": number % 3, "name": f"s{number}"}


def loader(size=160, batch=8, **more):
    return DataLoader(TensorDataset(torch.randn(size, 20), torch.randint(0, 3, (size,))), batch, shuffle=True, **more)


def train(style):
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
    if style in ("next-iter", "full-batch"):
        model = nn.Linear(20, 3)  # a model that is a single layer
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loss = nn.CrossEntropyLoss()
    called = torch.compile(model, backend="eager") if style == "compiled" else model

    def step(x, y, whole=True):
        loss(called(x), y).backward()
        if whole:
            optimizer.step()
            optimizer.zero_grad()

    if style == "own-batches":  # no DataLoader at all, two micro-batches a step
        for _ in range(10_000):
            for micro in range(2):
                step(torch.randn(8, 20), torch.randint(0, 3, (8,)), micro == 1)
    elif style == "accumulation":
        for _ in range(500):
            for number, (x, y) in enumerate(loader(drop_last=True)):
                step(x, y, number % 4 == 3)
    elif style == "two-loaders":
        labelled, plain = loader(), loader(640, 32)
        for _ in range(500):
            for (x, y), (more, _) in zip(labelled, plain, strict=True):
                loss(called(torch.cat([x, more])), torch.cat([y, torch.zeros(32, dtype=torch.long)])).backward()
                optimizer.step()
                optimizer.zero_grad()
    elif style == "next-iter":
        data = loader()
        for _ in range(10_000):
            step(*next(iter(data)))
    elif style == "full-batch":
        data = loader(80, 80)
        for _ in range(10_000):
            for x, y in data:
                step(x, y)
    elif style == "iterable":
        for _ in range(500):
            for batch in DataLoader(Stream(), batch_size=7, drop_last=True):
                step(batch["x"], batch["y"])
    elif style == "validation":
        data, held_out = loader(), loader(40, 20)
        for epoch in range(500):
            for x, y in data:
                step(x, y)
            with torch.no_grad():
                print(f"epoch {epoch}", [called(x).argmax(1).eq(y).sum().item() for x, y in held_out])
    elif style == "elsewhere":  # changes its folder, reads by a relative path, prints much
        os.chdir(Path(__file__).parent)
        assert Path("styles.py").read_text()
        for _ in range(500):
            for x, y in loader():
                step(x, y)
            print("x" * 1_000_000)
    else:
        for _ in range(500):
            for x, y in loader():
                step(x, y)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("style")
    args = parser.parse_args()
    if args.style == "asks":
        args.style = input("which style? ")
    train(args.style)
    sys.exit(0)
