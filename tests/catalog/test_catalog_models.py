"""What the catalog says about models: names, gradients, skew, checkpoints and memory."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dally.catalog import batch_in_name, find_gpu, find_model, models
from dally.core.errors import UserError

# What Dally's authors list: gradients in MB, largest tensor over total, layers.
DALLY = [
    ("VGG", 531, 0.77, 11),
    ("AlexNet", 244, 0.62, 8),
    ("MobileNetV3", 9.9, 0.42, 52),
    ("ResNet18", 46.7, 0.20, 21),
    ("ResNet50", 102, 0.09, 54),
]


@pytest.mark.parametrize(("name", "megabytes", "skew", "rows"), DALLY)
def test_gradients_and_skew_agree_with_those_of_the_dally_paper(
    name: str, megabytes: float, skew: float, rows: int
) -> None:
    model = find_model(name)
    # Theirs leave out biases and batch normalisation (3 % of MobileNetV3) and, there, two of 54 layers.
    assert model.gradient_bytes / 1e6 == pytest.approx(megabytes, rel=0.035)
    assert model.skew == pytest.approx(skew, abs=0.02)
    assert len(model.layers) == (54 if name == "MobileNetV3" else rows)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("VGG", "vgg11"), ("vgg11", "vgg11"), ("VGG-16", "vgg16"), ("vgg19", "vgg19"),
        ("ResNet-50 (batch size 64)", "resnet50"), ("resnet50", "resnet50"), ("ResNet152", "resnet152"),
        ("resnet_101", "resnet101"), ("inception3", "inception3"), ("inception4", "inception4"),
        ("Inception", "inception3"), ("googlenet", "googlenet"), ("BERT", "bert-large"),
        ("MobileNetV3", "mobilenetv3-small"), ("mobilenet_v3_large", "mobilenetv3-large"),
        ("ViT-B/16", "vit-b16"), ("GPT-2", "gpt2"), ("LM (batch size 80)", "lstm"), ("LM", "lstm"),
        ("Recommendation (batch size 512)", "recommendation"), ("A3C", "a3c"), ("CycleGAN", "cyclegan"),
        ("Transformer", "transformer"), ("llama2-70b", "llama-70b"),
    ],
)  # fmt: skip
def test_a_model_is_found_however_a_trace_writes_it(written: str, name: str) -> None:
    assert find_model(written).name == name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ResNet-18 (batch size 128)", "resnet18-cifar"),
        ("Transformer (batch size 16)", "transformer-multi30k"),
    ],
)
def test_gavels_job_types_mean_the_networks_that_gavel_trains(written: str, name: str) -> None:
    assert find_model(written).name == name


def test_the_batch_in_a_gavel_job_type_can_be_read() -> None:
    assert batch_in_name("ResNet-50 (batch size 64)") == 64
    assert batch_in_name("resnet50") is None


def test_an_unknown_model_is_refused_with_near_matches() -> None:
    with pytest.raises(UserError, match=r"no model 'vg16'.*vgg16"):
        find_model("vg16")
    with pytest.raises(UserError, match="known are"):
        find_model("#")


@pytest.mark.parametrize("name", list(models()))
def test_a_model_is_sound(name: str) -> None:
    model = find_model(name)
    assert model.layers and model.batch_size > 0 and model.source
    assert 0 < model.skew <= 1 and 0 < model.utilization <= 1
    assert model.largest_tensor_bytes <= model.gradient_bytes
    assert model.checkpoint_bytes >= 4 * model.parameters
    assert len({layer.name for layer in model.layers}) == len(model.layers)


def test_sgd_saves_eight_bytes_per_parameter_and_adam_twelve() -> None:
    assert find_model("resnet50").checkpoint_bytes == 8 * 25_557_032
    assert find_model("bert-large").checkpoint_bytes == 12 * 335_141_888
    assert find_model("llama-7b").checkpoint_bytes == 12 * 6_738_415_616


def test_a_16_bit_model_with_adam_takes_sixteen_bytes_per_parameter() -> None:
    model = find_model("llama-7b")
    assert model.state_bytes + model.gradient_bytes == 16 * model.parameters  # ZeRO, section 3.1


def test_every_model_without_hints_fits_a_16_gb_gpu_at_its_default_batch() -> None:
    for model in models().values():
        if not model.parallelism.sharded and not model.local_parameters:
            assert model.memory_bytes() < find_gpu("V100").memory_bytes, model.name


def test_a_7b_model_fits_eight_h100_but_not_one() -> None:
    model, memory = find_model("llama-7b"), find_gpu("H100").memory_bytes
    assert model.memory_bytes(gpus=1) > memory > model.memory_bytes(gpus=8)


def test_memory_grows_with_the_batch() -> None:
    model = find_model("resnet50")
    assert model.memory_bytes(32) < model.memory_bytes(64) < model.memory_bytes(128)


def test_the_largest_tensor_is_a_weight_and_not_the_whole_fused_row() -> None:
    model = find_model("vgg11")
    assert model.largest_tensor_bytes == 4 * 25088 * 4096
    assert max(layer.gradient_bytes for layer in model.layers) == 4 * (25088 * 4096 + 4096)


@pytest.mark.reference
def test_all_models_of_the_reference_traces_are_found(reference: Path) -> None:
    folder = reference
    with (folder / "tiresias" / "jobs_480.csv").open() as file:
        names = {row["model_name"] for row in csv.DictReader(file)}
    names |= {line.split("\t")[0] for line in (folder / "gavel" / "jobs_96.trace").read_text().splitlines()}
    for key in json.loads((folder / "gavel" / "throughputs.json").read_text())["v100"]:
        names.add(key.split("'")[1])
    for trace in (folder.parent / "traces" / "dally").glob("*.json"):
        names |= {job["model"] for job in json.loads(trace.read_text())}
    assert len(names) > 30
    for name in sorted(names):
        find_model(name)
