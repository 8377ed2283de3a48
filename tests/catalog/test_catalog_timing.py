"""Computing times: near published throughputs, and in the right order everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.catalog import compute_time, find_gpu, find_model, gpus, models, step_compute_time, update_time
from dally.catalog.model import Layer, Measured, Model, Precision

# model, GPU, batch, precision, samples per second. The first block was used to calibrate, the second was not.
# lambdal/deeplearning-benchmark (pytorch-train-throughput and -bs tables) and mosaicml/llm-foundry
# (scripts/train/benchmarking).
CALIBRATED = [
    ("resnet50", "V100", 128, "fp32", 369),
    ("resnet50", "V100", 256, "mixed", 833),
    ("resnet50", "A100-80GB", 640, "fp32", 1066),
    ("resnet50", "A100-80GB", 1280, "mixed", 1582),
    ("resnet50", "H100", 640, "fp32", 1893),
    ("resnet50", "H100", 1280, "mixed", 2791),
    ("bert-large", "V100", 8, "fp32", 12),
    ("bert-large", "V100", 16, "mixed", 57),
    ("bert-large", "A100-80GB", 112, "mixed", 152),
    ("bert-large", "H100", 112, "mixed", 310),
    ("transformer-xl", "V100", 12, "mixed", 18493 / 192),
    ("transformer-xl", "A100-80GB", 104, "mixed", 43078 / 192),
    ("transformer-xl", "H100", 104, "mixed", 62259 / 192),
    ("llama-7b", "A100-80GB", 6, "bf16", 4641 / 2048),
    ("llama-7b", "H100", 6, "bf16", 10643 / 2048),
]
PREDICTED = [
    ("resnet50", "A10", 448, "mixed", 638),
    ("resnet50", "A10", 224, "fp32", 349),
    ("resnet50", "A100-80GB", 256, "fp32", 938),  # NVIDIA DeepLearningExamples
    ("bert-base", "V100", 48, "mixed", 189),
    ("bert-base", "A100-80GB", 320, "mixed", 443),
    ("bert-base", "H100", 320, "mixed", 860),
    ("bert-large", "A10", 28, "mixed", 42),
    ("llama-13b", "A100-80GB", 2, "bf16", 2262 / 2048),
    ("llama-13b", "H100", 2, "bf16", 4792 / 2048),
    ("llama-70b", "A100-80GB", 8, "bf16", 410 / 2048),
    ("llama-70b", "H100", 8, "bf16", 1039 / 2048),
    ("gpt2", "A100-80GB", 64, "mixed", 156468 / 1024),
]


def rate(model: str, gpu: str, batch: int, precision: str) -> float:
    return batch / step_compute_time(find_model(model), find_gpu(gpu), batch, Precision(precision))


@pytest.mark.parametrize(("model", "gpu", "batch", "precision", "published"), CALIBRATED)
def test_calibrated_throughputs_are_met(
    model: str, gpu: str, batch: int, precision: str, published: float
) -> None:
    assert rate(model, gpu, batch, precision) == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize(("model", "gpu", "batch", "precision", "published"), PREDICTED)
def test_throughputs_that_were_not_calibrated_come_out_within_two_fifths(
    model: str, gpu: str, batch: int, precision: str, published: float
) -> None:
    assert rate(model, gpu, batch, precision) == pytest.approx(published, rel=0.41)


@pytest.mark.parametrize(
    ("fast", "slow", "low", "high"), [("V100", "K80", 6.5, 7.7), ("V100", "P100", 1.5, 1.85)]
)
def test_older_gpus_are_slower_by_the_factor_gavel_measured(
    fast: str, slow: str, low: float, high: float
) -> None:
    ratio = rate("resnet50", fast, 64, "fp32") / rate("resnet50", slow, 64, "fp32")
    assert low < ratio < high


@pytest.mark.parametrize("name", [n for n in models() if n not in ("recommendation", "a3c")])
def test_generations_of_training_gpus_are_ordered_for_every_model(name: str) -> None:
    model = find_model(name)
    times = [
        step_compute_time(model, find_gpu(g)) for g in ("K80", "P100", "V100", "A100-80GB", "H100", "B200")
    ]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("name", list(models()))
def test_every_pair_of_model_and_gpu_has_a_time_per_layer(name: str) -> None:
    model = find_model(name)
    for gpu in gpus().values():
        forward, backward = compute_time(model, gpu)
        assert len(forward) == len(backward) == len(model.layers)
        assert all(time > 0 for time in forward + backward)


@given(small=st.integers(1, 512), more=st.integers(1, 512))
def test_a_larger_batch_takes_longer_but_less_per_sample(small: int, more: int) -> None:
    model, gpu = find_model("resnet18"), find_gpu("V100")
    one, two = step_compute_time(model, gpu, small), step_compute_time(model, gpu, small + more)
    assert one < two
    assert two / (small + more) <= one / small * (1 + 1e-9)


@given(factor=st.floats(1.0, 10.0))
def test_a_gpu_with_more_of_everything_is_never_slower(factor: float) -> None:
    model, gpu = find_model("mobilenetv3-small"), find_gpu("V100")
    better = replace(gpu, fp32=gpu.fp32 * factor, memory_bandwidth=gpu.memory_bandwidth * factor)
    assert step_compute_time(model, better) <= step_compute_time(model, gpu)


def test_recomputation_adds_a_forward_pass_to_the_backward_one() -> None:
    model, gpu = find_model("llama-7b"), find_gpu("H100")
    forward, backward = compute_time(model, gpu)
    _, recomputed = compute_time(replace(model, recompute=True), gpu)
    assert sum(recomputed) == pytest.approx(sum(backward) + sum(forward))


def test_small_batches_are_limited_by_launches_and_memory_not_by_arithmetic() -> None:
    model, gpu = find_model("mobilenetv3-small"), find_gpu("H100")
    arithmetic = (model.forward_flops + model.backward_flops) / gpu.peak(Precision.FP32)
    assert step_compute_time(model, gpu, 1) > 20 * arithmetic


def test_the_update_streams_five_words_with_momentum_and_seven_with_adam() -> None:
    gpu = find_gpu("V100")
    assert update_time(find_model("vgg16"), gpu) == pytest.approx(138_357_544 * 20 / (900e9 * 0.8))
    assert update_time(find_model("bert-base"), gpu) == pytest.approx(109_482_240 * 28 / (900e9 * 0.8))


def measured(gpu: str | None) -> Model:
    layer = Layer("fc", "linear", 100, 400, measured=Measured(1e-3, 2e-3, 3e-3, gpu, 32))
    return Model("own", (layer,), "cnn", 32, "a test")


def test_measured_times_win_and_scale_with_the_batch() -> None:
    assert compute_time(measured("V100"), find_gpu("V100")) == ((1e-3,), (5e-3,))
    assert compute_time(measured("V100"), find_gpu("V100"), 64) == ((2e-3,), (10e-3,))


def test_measured_times_carry_over_to_another_gpu_by_their_effective_rates() -> None:
    (forward,), _ = compute_time(measured("V100"), find_gpu("K80"))
    assert forward == pytest.approx(1e-3 * (15.7 * 0.65) / (4.37 * 0.294))


def test_times_measured_on_an_unnamed_gpu_are_taken_as_they_are() -> None:
    assert compute_time(measured(None), find_gpu("K80")) == compute_time(measured(None), find_gpu("H100"))


def test_an_unknown_family_gets_the_default_efficiency() -> None:
    model = replace(find_model("bert-base"), family="something new")
    assert step_compute_time(model, find_gpu("V100")) == step_compute_time(
        find_model("bert-base"), find_gpu("V100")
    )
