"""Recurrent networks: the LSTM language model, DeepSpeech2 and the small network of A3C."""

from __future__ import annotations

from dally.catalog.architectures.cnn import ConvStack
from dally.catalog.layers import Table, embedding, linear, normalisation, recurrent


def lstm_lm(
    table: Table,
    layers: int = 2,
    hidden: int = 200,
    vocabulary: int = 33278,
    sequence: int = 35,
) -> None:
    """A word-level LSTM language model in the shape of PyTorch's word_language_model example."""
    table.row("encoder", "embedding", [embedding(vocabulary, hidden, positions=sequence)])
    for index in range(layers):
        table.row(f"rnn.l{index}", "lstm", [recurrent(hidden, hidden, steps=sequence, gates=4)])
    table.row("decoder", "linear", [linear(hidden, vocabulary, positions=sequence)])


def deepspeech2(
    table: Table,
    layers: int = 5,
    hidden: int = 800,
    frames: int = 700,
    frequencies: int = 161,
    symbols: int = 29,
) -> None:
    """DeepSpeech2, arXiv 1512.02595: two convolutions over the spectrogram, bidirectional GRUs, a linear map."""
    net = ConvStack(table, 1, (frequencies, frames))
    net.conv("conv.0", 32, (41, 11), stride=2, padding=(20, 5), bias=True)
    net.conv("conv.3", 32, (21, 11), stride=(2, 1), padding=(10, 5), bias=True)
    steps = net.size[1]
    inputs = net.channels * net.size[0]
    for index in range(layers):
        cell = recurrent(inputs, hidden, steps=steps, gates=3, directions=2)
        # The two directions are summed; all but the first layer normalise their input.
        work = [cell] if not index else [normalisation(inputs, steps), cell]
        table.row(f"rnns.{index}", "gru", work)
        inputs = hidden
    table.row(
        "fc", "linear", [normalisation(hidden, steps), linear(hidden, symbols, positions=steps, bias=False)]
    )


def a3c(table: Table, image: int = 42, hidden: int = 256, actions: int = 6, steps: int = 20) -> None:
    """The actor-critic network of A3C, arXiv 1602.01783, for Atari's Pong; a sample is one rollout of steps."""
    net = ConvStack(table, 1, (image, image))
    for index in range(4):
        net.conv(f"conv{index + 1}", 32, 3, stride=2, bias=True, norm=False, runs=steps)
    features = net.channels * net.size[0] * net.size[1]
    table.row("lstm", "lstm", [recurrent(features, hidden, steps=steps, gates=4)])
    table.row("critic", "linear", [linear(hidden, 1, positions=steps)])
    table.row("actor", "linear", [linear(hidden, actions, positions=steps)])
