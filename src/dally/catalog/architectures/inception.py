"""The Inception line: GoogLeNet, Inception v3 and Inception v4."""

from __future__ import annotations

from collections.abc import Sequence

from dally.catalog.architectures.cnn import ConvStack, Size
from dally.catalog.layers import Table, activation, linear

# One convolution of a branch: output channels, kernel, stride, padding (None: centred).
Step = tuple[int, int | Size, int, int | None]


def _one(out: int, kernel: int | Size = 1, stride: int = 1, padding: int | None = None) -> Step:
    return (out, kernel, stride, padding)


def _valid(out: int, kernel: int | Size, stride: int = 1) -> Step:
    return (out, kernel, stride, 0)


def _block(net: ConvStack, name: str, branches: Sequence[Sequence[Step]], *, passed: int = 0) -> None:
    """Parallel branches whose outputs are concatenated; `passed` channels come from pooling alone."""
    total, size = passed, net.size
    for number, branch in enumerate(branches, 1):
        path = net.at(net.channels, net.size)
        for step, (out, kernel, stride, padding) in enumerate(branch, 1):
            path.conv(f"{name}.branch{number}.{step}", out, kernel, stride=stride, padding=padding)
        total += path.channels
        size = path.size
    net.channels, net.size = total, size


def googlenet(table: Table, classes: int = 1000, image: int = 224, auxiliary: bool = True) -> None:
    """GoogLeNet with batch normalisation, arXiv 1409.4842, as torchvision defines it (3×3 for 5×5)."""
    net = ConvStack(table, 3, (image, image))
    net.conv("conv1", 64, 7, stride=2)
    net.pool(3, 2, ceil=True)
    net.conv("conv2", 64, 1)
    net.conv("conv3", 192, 3)
    net.pool(3, 2, ceil=True)
    blocks = {
        "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64),
        "4a": (192, 96, 208, 16, 48, 64), "4b": (160, 112, 224, 24, 64, 64),
        "4c": (128, 128, 256, 24, 64, 64), "4d": (112, 144, 288, 32, 64, 64),
        "4e": (256, 160, 320, 32, 128, 128), "5a": (256, 160, 320, 32, 128, 128),
        "5b": (384, 192, 384, 48, 128, 128),
    }  # fmt: skip
    for name, (b1, r3, b3, r5, b5, pool) in blocks.items():
        if name == "4a" or name == "5a":
            net.pool(3 if name == "4a" else 2, 2, ceil=True)
        _block(
            net,
            f"inception{name}",
            [[_one(b1)], [_one(r3), _one(b3, 3)], [_one(r5), _one(b5, 3)], [_one(pool)]],
        )
        if auxiliary and name in ("4a", "4d"):
            head = net.at(net.channels, (4, 4))
            aux = "aux1" if name == "4a" else "aux2"
            head.conv(f"{aux}.conv", 128, 1)
            table.row(f"{aux}.fc1", "linear", [linear(2048, 1024), activation(1024)])
            table.row(f"{aux}.fc2", "linear", [linear(1024, classes)])
    table.row("fc", "linear", [linear(net.channels, classes)])


def inception_v3(table: Table, classes: int = 1000, image: int = 299, auxiliary: bool = True) -> None:
    """Inception v3, arXiv 1512.00567, with the auxiliary classifier that training uses."""
    net = ConvStack(table, 3, (image, image))
    net.conv("Conv2d_1a", 32, 3, stride=2, padding=0)
    net.conv("Conv2d_2a", 32, 3, padding=0)
    net.conv("Conv2d_2b", 64, 3)
    net.pool(3, 2)
    net.conv("Conv2d_3b", 80, 1)
    net.conv("Conv2d_4a", 192, 3, padding=0)
    net.pool(3, 2)
    for name, pool in (("5b", 32), ("5c", 64), ("5d", 64)):
        _block(
            net,
            f"Mixed_{name}",
            [[_one(64)], [_one(48), _one(64, 5)], [_one(64), _one(96, 3), _one(96, 3)], [_one(pool)]],
        )
    _block(
        net, "Mixed_6a", [[_valid(384, 3, 2)], [_one(64), _one(96, 3), _valid(96, 3, 2)]], passed=net.channels
    )
    for name, c in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        row, column = (1, 7), (7, 1)
        _block(
            net,
            f"Mixed_{name}",
            [
                [_one(192)],
                [_one(c), _one(c, row), _one(192, column)],
                [_one(c), _one(c, column), _one(c, row), _one(c, column), _one(192, row)],
                [_one(192)],
            ],
        )
    if auxiliary:
        head = net.at(net.channels, (5, 5))
        head.conv("AuxLogits.conv0", 128, 1)
        head.conv("AuxLogits.conv1", 768, 5, padding=0)
        table.row("AuxLogits.fc", "linear", [linear(768, classes)])
    _block(
        net,
        "Mixed_7a",
        [
            [_one(192), _valid(320, 3, 2)],
            [_one(192), _one(192, (1, 7)), _one(192, (7, 1)), _valid(192, 3, 2)],
        ],
        passed=net.channels,
    )
    for name in ("7b", "7c"):
        before = net.at(net.channels, net.size)
        _block(net, f"Mixed_{name}", [[_one(320)], [_one(384)], [_one(448), _one(384, 3)], [_one(192)]])
        # Both 3×3 paths end in a 1×3 and a 3×1 convolution side by side.
        for path in ("a", "b"):
            for kernel in ((1, 3), (3, 1)):
                split = net.at(384, before.size)
                split.conv(f"Mixed_{name}.split_{path}.{kernel[0]}x{kernel[1]}", 384, kernel)
        net.channels = 320 + 4 * 384 + 192
    table.row("fc", "linear", [linear(net.channels, classes)])


def inception_v4(table: Table, classes: int = 1000, image: int = 299) -> None:
    """Inception v4, arXiv 1602.07261, figures 3–9."""
    row, column = (1, 7), (7, 1)
    net = ConvStack(table, 3, (image, image))
    net.conv("stem.0", 32, 3, stride=2, padding=0)
    net.conv("stem.1", 32, 3, padding=0)
    net.conv("stem.2", 64, 3)
    _block(net, "stem.3", [[_valid(96, 3, 2)]], passed=net.channels)
    _block(
        net, "stem.4", [[_one(64), _valid(96, 3)], [_one(64), _one(64, row), _one(64, column), _valid(96, 3)]]
    )
    _block(net, "stem.5", [[_valid(192, 3, 2)]], passed=net.channels)
    for index in range(4):
        _block(
            net,
            f"a{index}",
            [[_one(96)], [_one(64), _one(96, 3)], [_one(64), _one(96, 3), _one(96, 3)], [_one(96)]],
        )
    _block(
        net,
        "reduction_a",
        [[_valid(384, 3, 2)], [_one(192), _one(224, 3), _valid(256, 3, 2)]],
        passed=net.channels,
    )
    for index in range(7):
        _block(
            net,
            f"b{index}",
            [
                [_one(384)],
                [_one(192), _one(224, row), _one(256, column)],
                [_one(192), _one(192, column), _one(224, row), _one(224, column), _one(256, row)],
                [_one(128)],
            ],
        )
    _block(
        net,
        "reduction_b",
        [
            [_one(192), _valid(192, 3, 2)],
            [_one(256), _one(256, row), _one(320, column), _valid(320, 3, 2)],
        ],
        passed=net.channels,
    )
    for index in range(3):
        size = net.size
        _block(
            net,
            f"c{index}",
            [[_one(256)], [_one(384)], [_one(384), _one(448, (3, 1)), _one(512, (1, 3))], [_one(256)]],
        )
        for path, inputs in (("a", 384), ("b", 512)):
            for kernel in ((1, 3), (3, 1)):
                net.at(inputs, size).conv(f"c{index}.split_{path}.{kernel[0]}x{kernel[1]}", 256, kernel)
        net.channels = 1536
    table.row("last_linear", "linear", [linear(net.channels, classes)])
