"""The arithmetic of single layers, worked out by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dally.catalog.layers import (
    Table,
    activation,
    attention,
    conv,
    embedding,
    linear,
    normalisation,
    recurrent,
)

size = st.integers(min_value=1, max_value=64)


def test_a_convolution_counts_one_multiply_add_per_weight_and_output_position() -> None:
    work = conv(3, 64, 7, (112, 112), (224, 224))
    assert work.tensors == (64 * 3 * 49,)
    assert work.flops == 2 * 64 * 3 * 49 * 112 * 112
    assert work.read == 3 * 224 * 224 and work.written == 64 * 112 * 112


def test_a_depthwise_convolution_has_one_filter_per_channel() -> None:
    work = conv(72, 72, 5, (28, 28), (56, 56), groups=72)
    assert work.tensors == (72 * 25,)


def test_a_linear_layer_has_a_weight_and_a_bias() -> None:
    work = linear(512, 1000)
    assert work.tensors == (512_000, 1000)
    assert work.flops == 2 * 512_000 + 1000


def test_normalisation_has_scale_and_shift_and_rms_only_scale() -> None:
    assert normalisation(768, 128).tensors == (768, 768)
    assert normalisation(768, 128, shift=False).tensors == (768,)
    assert normalisation(768, 128, affine=False).tensors == ()


def test_an_embedding_moves_only_the_rows_it_looks_up() -> None:
    work = embedding(30_000, 768, positions=10)
    assert work.tensors == (30_000 * 768,) and work.flops == 0 and work.written == 7680


def test_attention_grows_with_the_square_of_the_sequence_but_its_traffic_does_not() -> None:
    short, long = attention(12, 64, 512), attention(12, 64, 1024)
    assert long.flops == 4 * short.flops
    assert long.read == 2 * short.read and long.kept == 2 * short.kept


def test_an_lstm_has_four_gates_and_two_biases_as_in_pytorch() -> None:
    work = recurrent(200, 300, steps=35, gates=4)
    assert sum(work.tensors) == 4 * 300 * (200 + 300 + 2)
    assert work.flops == 35 * 2 * 4 * 300 * (200 + 300)
    assert work.launches == 35


def test_a_row_that_is_not_synchronised_sends_no_gradients() -> None:
    table = Table(4)
    table.row("table", "embedding", [embedding(100, 8, positions=1)], synchronised=False)
    assert table.layers[0].parameters == 800 and table.layers[0].gradient_bytes == 0


def test_gradients_of_a_16_bit_model_are_two_bytes_wide() -> None:
    wide, narrow = Table(4), Table(2)
    for table in (wide, narrow):
        table.row("fc", "linear", [linear(10, 10)])
    assert wide.layers[0].gradient_bytes == 2 * narrow.layers[0].gradient_bytes == 440


def test_a_row_that_runs_three_times_costs_three_times_and_holds_its_weights_once() -> None:
    table = Table()
    table.row("once", "linear", [linear(8, 8)])
    table.row("thrice", "linear", [linear(8, 8)], runs=3)
    once, thrice = table.layers
    assert thrice.forward_flops == 3 * once.forward_flops and thrice.parameters == once.parameters


def test_an_activation_has_no_weight_gradient() -> None:
    table = Table()
    table.row("fc", "linear", [linear(8, 8)])
    table.row("fc+relu", "linear", [linear(8, 8), activation(8)])
    plain, fused = table.layers
    assert fused.weight_gradient_flops == plain.weight_gradient_flops
    assert fused.input_gradient_flops == fused.forward_flops == plain.forward_flops + 8


@given(channels=size, out=size, side=size)
def test_a_1x1_convolution_is_a_linear_map_at_every_position(channels: int, out: int, side: int) -> None:
    one = conv(channels, out, 1, (side, side), (side, side), bias=True)
    same = linear(channels, out, positions=side * side)
    assert (one.tensors, one.flops, one.read, one.written) == (
        same.tensors,
        same.flops,
        same.read,
        same.written,
    )
