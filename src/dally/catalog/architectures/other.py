"""Networks of other kinds: DLRM, the autoencoder of recommendation jobs, and CycleGAN."""

from __future__ import annotations

from itertools import pairwise

from dally.catalog.architectures.cnn import ConvStack
from dally.catalog.layers import Table, Work, activation, embedding, linear

# Rows of the 26 tables of the Criteo Terabyte data with categories seen under 15 times merged into one,
# as published with NVIDIA's DLRM example.
_CRITEO = (
    7912889, 33823, 17139, 7339, 20046, 4, 7105, 1382, 63, 5554114, 582469, 245828, 11, 2209, 10667, 104, 4,
    968, 15, 8165896, 2675940, 7156453, 302516, 12022, 97, 35,
)  # fmt: skip


def dlrm(table: Table, width: int = 128, dense: int = 13) -> None:
    """DLRM, arXiv 1906.00091, in the configuration of MLPerf and NVIDIA's example.

    The embedding tables are spread over the GPUs (model parallel) and their gradients never all-reduced; what
    data parallelism exchanges is the two small perceptrons.
    """
    for index, rows in enumerate(_CRITEO):
        work = [embedding(rows, width, positions=1)]
        table.row(f"embedding.{index}", "embedding", work, synchronised=False)
    _perceptron(table, "bottom", (dense, 512, 256, width))
    vectors = len(_CRITEO) + 1
    pairs = vectors * (vectors - 1) // 2
    interaction = Work((), 2 * vectors * vectors * width, vectors * width, pairs, vectors * width)
    # The interaction's output is padded to a multiple of 8: 351 pairs + 128 + 1 = 480 inputs.
    _perceptron(table, "top", (pairs + width + 1, 1024, 1024, 512, 256, 1), first=interaction)


def _perceptron(table: Table, name: str, sizes: tuple[int, ...], *, first: Work | None = None) -> None:
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        work = [linear(inputs, outputs), activation(outputs)]
        if first is not None and not index:
            work.insert(0, first)
        table.row(f"{name}.{index}", "linear", work)


def autoencoder(table: Table, items: int = 20108, hidden: int = 200) -> None:
    """An autoencoder over a user's items, one hidden layer: the shape of Gavel's recommendation jobs."""
    table.row("encoder", "linear", [linear(items, hidden), activation(hidden)])
    table.row("decoder", "linear", [linear(hidden, items)])


def cyclegan(table: Table, image: int = 256, width: int = 64, blocks: int = 9) -> None:
    """CycleGAN, arXiv 1703.10593: two generators of nine residual blocks and two 70×70 patch discriminators.

    In one step each generator runs three times (translation, cycle, identity) and so does each
    discriminator (once for the generator's loss, once each on real and generated images).
    """
    for which in ("a", "b"):
        _generator(ConvStack(table, 3, (image, image)), f"generator_{which}", width, blocks)
    for which in ("a", "b"):
        _discriminator(ConvStack(table, 3, (image, image)), f"discriminator_{which}", width)


def _generator(net: ConvStack, name: str, width: int, blocks: int) -> None:
    def step(part: str, out: int, kernel: int, stride: int = 1) -> None:
        net.conv(f"{name}.{part}", out, kernel, stride=stride, bias=True, affine=False, runs=3)

    step("in", width, 7)
    step("down.0", 2 * width, 3, 2)
    step("down.1", 4 * width, 3, 2)
    for index in range(blocks):
        step(f"block.{index}.0", 4 * width, 3)
        step(f"block.{index}.1", 4 * width, 3)
    for index, out in enumerate((2 * width, width)):
        # A transposed convolution costs what the convolution it transposes costs: one product per input
        # position. Its weights and the size of its output are set here, its work through the input size.
        small, inputs = net.size, net.channels
        weight = inputs * out * 9
        large = (2 * small[0], 2 * small[1])
        elements = out * large[0] * large[1]
        work = Work((weight, out), 2 * weight * small[0] * small[1] + elements,
                    inputs * small[0] * small[1], elements, elements)  # fmt: skip
        net.table.row(f"{name}.up.{index}", "transposed conv", [work, activation(elements)], runs=3)
        net.channels, net.size = out, large
    net.conv(f"{name}.out", 3, 7, bias=True, norm=False, runs=3)


def _discriminator(net: ConvStack, name: str, width: int) -> None:
    net.conv(f"{name}.0", width, 4, stride=2, padding=1, bias=True, norm=False, runs=3)
    for index, stride in ((1, 2), (2, 2), (3, 1)):
        out = width << index
        net.conv(f"{name}.{index}", out, 4, stride=stride, padding=1, bias=True, affine=False, runs=3)
    net.conv(f"{name}.4", 1, 4, padding=1, bias=True, norm=False, act=False, runs=3)
