"""Convolutional networks: AlexNet, VGG, ResNet and MobileNetV3, as torchvision defines them."""

from __future__ import annotations

from dally.catalog.layers import Table, activation, conv, linear, normalisation
from dally.core.errors import UserError

Size = tuple[int, int]


class ConvStack:
    """Follows channels and image size through a network and adds a row per convolution."""

    def __init__(self, table: Table, channels: int, size: Size) -> None:
        self.table, self.channels, self.size = table, channels, size

    def at(self, channels: int, size: Size) -> ConvStack:
        """A branch that starts from another tensor."""
        return ConvStack(self.table, channels, size)

    def conv(
        self,
        name: str,
        out: int,
        kernel: int | Size,
        *,
        stride: int | Size = 1,
        padding: int | Size | None = None,
        groups: int = 1,
        bias: bool = False,
        norm: bool = True,
        act: bool = True,
        runs: int = 1,
        affine: bool = True,
    ) -> None:
        """A convolution with its normalisation and activation; padding None keeps odd kernels centred."""
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        sh, sw = (stride, stride) if isinstance(stride, int) else stride
        if padding is None:
            padding = ((kh - 1) // 2, (kw - 1) // 2)
        ph, pw = (padding, padding) if isinstance(padding, int) else padding
        height, width = self.size
        new = ((height + 2 * ph - kh) // sh + 1, (width + 2 * pw - kw) // sw + 1)
        work = [conv(self.channels, out, (kh, kw), new, self.size, groups=groups, bias=bias)]
        if norm:
            work.append(normalisation(out, new[0] * new[1], affine=affine))
        if act:
            work.append(activation(out * new[0] * new[1]))
        self.table.row(name, "depthwise conv" if groups > 1 else "conv", work, runs=runs)
        self.channels, self.size = out, new

    def pool(self, kernel: int, stride: int, padding: int = 0, *, ceil: bool = False) -> None:
        """Pooling changes the size only; its time is small beside the convolutions and not counted."""
        up = stride - 1 if ceil else 0
        height, width = ((side + 2 * padding - kernel + up) // stride + 1 for side in self.size)
        self.size = (height, width)


def _head(table: Table, name: str, inputs: int, outputs: int, *, act: bool = False) -> None:
    work = [linear(inputs, outputs)]
    if act:
        work.append(activation(outputs))
    table.row(name, "linear", work)


def alexnet(table: Table, classes: int = 1000, image: int = 224) -> None:
    """AlexNet, the single-tower version of arXiv 1404.5997 that torchvision ships."""
    net = ConvStack(table, 3, (image, image))
    net.conv("features.0", 64, 11, stride=4, padding=2, bias=True, norm=False)
    net.pool(3, 2)
    net.conv("features.3", 192, 5, bias=True, norm=False)
    net.pool(3, 2)
    net.conv("features.6", 384, 3, bias=True, norm=False)
    net.conv("features.8", 256, 3, bias=True, norm=False)
    net.conv("features.10", 256, 3, bias=True, norm=False)
    _head(table, "classifier.1", 256 * 6 * 6, 4096, act=True)
    _head(table, "classifier.4", 4096, 4096, act=True)
    _head(table, "classifier.6", 4096, classes)


_VGG = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg(table: Table, depth: int, classes: int = 1000, image: int = 224, norm: bool = False) -> None:
    """VGG, arXiv 1409.1556, configurations A, B, D and E; without batch normalisation, as published, or with it."""
    if depth not in _VGG:
        raise UserError(f"VGG comes with depth 11, 13, 16 or 19, not {depth}")
    net = ConvStack(table, 3, (image, image))
    index = 0
    for stage, count in enumerate(_VGG[depth]):
        for _ in range(count):
            net.conv(f"features.{index}", min(64 << stage, 512), 3, bias=True, norm=norm)
            index += 3 if norm else 2
        net.pool(2, 2)
        index += 1
    _head(table, "classifier.0", 512 * 7 * 7, 4096, act=True)
    _head(table, "classifier.3", 4096, 4096, act=True)
    _head(table, "classifier.6", 4096, classes)


_RESNET = {  # depth: blocks per stage, bottleneck
    10: ((1, 1, 1, 1), False),
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}


def resnet(
    table: Table, depth: int, classes: int = 1000, image: int = 224, norm: bool = True, residual: bool = True
) -> None:
    """ResNet v1.5 (the stride sits in the 3×3 convolution), arXiv 1512.03385.

    `norm` and `residual` leave out batch normalisation and the shortcuts, as Stash's study does (arXiv 2208.14344).
    """
    if depth not in _RESNET:
        raise UserError(f"ResNet comes with depth {', '.join(map(str, _RESNET))}, not {depth}")
    net = ConvStack(table, 3, (image, image))
    net.conv("conv1", 64, 7, stride=2, norm=norm)
    net.pool(3, 2, 1)
    _residual_stages(net, *_RESNET[depth], norm=norm, residual=residual)
    _head(table, "fc", net.channels, classes)


def resnet_cifar(table: Table, depth: int, classes: int = 10, image: int = 32) -> None:
    """ResNet with the 3×3 stem that is usual on CIFAR's 32×32 images."""
    if depth not in _RESNET:
        raise UserError(f"ResNet comes with depth {', '.join(map(str, _RESNET))}, not {depth}")
    net = ConvStack(table, 3, (image, image))
    net.conv("conv1", 64, 3)
    _residual_stages(net, *_RESNET[depth])
    _head(table, "linear", net.channels, classes)


def _residual_stages(
    net: ConvStack, blocks: tuple[int, ...], bottleneck: bool, *, norm: bool = True, residual: bool = True
) -> None:
    for stage, count in enumerate(blocks):
        width = 64 << stage
        out = 4 * width if bottleneck else width
        for block in range(count):
            stride = 2 if stage and not block else 1
            name = f"layer{stage + 1}.{block}"
            before = net.at(net.channels, net.size)
            if bottleneck:
                net.conv(f"{name}.conv1", width, 1, norm=norm)
                net.conv(f"{name}.conv2", width, 3, stride=stride, norm=norm)
                net.conv(f"{name}.conv3", out, 1, norm=norm)
            else:
                net.conv(f"{name}.conv1", width, 3, stride=stride, norm=norm)
                net.conv(f"{name}.conv2", out, 3, norm=norm)
            if residual and (stride != 1 or before.channels != out):
                before.conv(f"{name}.downsample.0", out, 1, stride=stride, act=False, norm=norm)


# kernel, expanded channels, output channels, squeeze-and-excitation, stride; arXiv 1905.02244, tables 1 and 2
_MOBILENET_LARGE = (
    (3, 16, 16, 0, 1), (3, 64, 24, 0, 2), (3, 72, 24, 0, 1), (5, 72, 40, 1, 2), (5, 120, 40, 1, 1),
    (5, 120, 40, 1, 1), (3, 240, 80, 0, 2), (3, 200, 80, 0, 1), (3, 184, 80, 0, 1), (3, 184, 80, 0, 1),
    (3, 480, 112, 1, 1), (3, 672, 112, 1, 1), (5, 672, 160, 1, 2), (5, 960, 160, 1, 1), (5, 960, 160, 1, 1),
)  # fmt: skip
_MOBILENET_SMALL = (
    (3, 16, 16, 1, 2), (3, 72, 24, 0, 2), (3, 88, 24, 0, 1), (5, 96, 40, 1, 2), (5, 240, 40, 1, 1),
    (5, 240, 40, 1, 1), (5, 120, 48, 1, 1), (5, 144, 48, 1, 1), (5, 288, 96, 1, 2), (5, 576, 96, 1, 1),
    (5, 576, 96, 1, 1),
)  # fmt: skip


def mobilenet_v3(table: Table, large: bool, classes: int = 1000, image: int = 224) -> None:
    """MobileNetV3, arXiv 1905.02244, with torchvision's rounding of the squeezed channels."""
    blocks, last = (_MOBILENET_LARGE, 1280) if large else (_MOBILENET_SMALL, 1024)
    net = ConvStack(table, 3, (image, image))
    net.conv("features.0.0", 16, 3, stride=2)
    for number, (kernel, expanded, out, squeeze, stride) in enumerate(blocks, 1):
        name, part = f"features.{number}.block", 0
        if expanded != net.channels:
            net.conv(f"{name}.{part}.0", expanded, 1)
            part += 1
        net.conv(f"{name}.{part}.0", expanded, kernel, stride=stride, groups=expanded)
        part += 1
        if squeeze:
            inner = _divisible(expanded // 4)
            area = net.size[0] * net.size[1]
            table.row(f"{name}.{part}.fc1", "conv", [activation(expanded * area), linear(expanded, inner)])
            table.row(f"{name}.{part}.fc2", "conv", [linear(inner, expanded), activation(expanded * area)])
            part += 1
        net.conv(f"{name}.{part}.0", out, 1, act=False)
    net.conv(f"features.{len(blocks) + 1}.0", 6 * net.channels, 1)
    _head(table, "classifier.0", net.channels, last, act=True)
    _head(table, "classifier.3", last, classes)


def _divisible(value: int, by: int = 8) -> int:
    """The nearest multiple of `by` that does not lose more than a tenth of `value`."""
    rounded = max(by, (value + by // 2) // by * by)
    return rounded + by if rounded * 10 < value * 9 else rounded
