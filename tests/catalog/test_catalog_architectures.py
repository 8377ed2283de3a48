"""Layer tables built from published architectures have the published numbers of parameters."""

from __future__ import annotations

import pytest

from dally.catalog import find_model, models
from dally.catalog.architectures import ARCHITECTURES, build
from dally.core.errors import UserError

PUBLISHED = {
    "alexnet": 61_100_840,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnet18-cifar": 11_173_962,
    "mobilenetv3-small": 2_542_856,
    "mobilenetv3-large": 5_483_032,
    "googlenet": 13_004_888,
    "inception3": 27_161_264,
    "inception4": 42_679_816,
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-70b": 68_976_648_192,
    "cyclegan": 2 * (11_378_179 + 2_764_737),
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_a_model_has_the_published_number_of_parameters(name: str, parameters: int) -> None:
    assert find_model(name).parameters == parameters


@pytest.mark.parametrize("name", list(models()))
def test_the_tensors_of_a_row_add_up_to_its_parameters(name: str) -> None:
    for layer in find_model(name).layers:
        assert sum(layer.tensors) == layer.parameters, layer.name


@pytest.mark.parametrize(("auxiliary", "parameters"), [(True, 27_161_264), (False, 23_834_568)])
def test_inception_v3_comes_with_or_without_its_auxiliary_classifier(
    auxiliary: bool, parameters: int
) -> None:
    table = build("inception_v3", {"auxiliary": auxiliary}, 4)
    assert sum(layer.parameters for layer in table) == parameters


@pytest.mark.parametrize(
    ("name", "millions", "published"),
    [
        ("transformer-xl", 192, "NVIDIA DeepLearningExamples"),
        ("transformer", 63, "18.9 M of embedding + 44.1 M"),
    ],
)
def test_models_published_in_round_numbers_come_close(name: str, millions: int, published: str) -> None:
    assert round(find_model(name).parameters / 1e6) == millions, published


@pytest.mark.parametrize(
    ("name", "gmacs"),  # multiply-adds of the convolutions and linear maps as torchvision lists them
    [("vgg16", 15.47), ("resnet18", 1.81), ("resnet50", 4.09), ("resnet152", 11.51), ("alexnet", 0.71),
     ("mobilenetv3-large", 0.22), ("googlenet", 1.50), ("inception3", 5.71), ("vit-b16", 17.56)],
)  # fmt: skip
def test_forward_operations_agree_with_the_published_multiply_adds(name: str, gmacs: float) -> None:
    # Ours count normalisation and activations too, hence at least as many and not many more.
    assert gmacs * 0.99 <= find_model(name).forward_flops / 2e9 <= gmacs * 1.06


def test_a_decoder_costs_two_operations_per_weight_and_token_plus_attention() -> None:
    model = find_model("llama-7b")
    weights = model.parameters - 32000 * 4096  # looking up an embedding is no arithmetic
    attention = 32 * 4 * 2048 * 4096
    assert model.forward_flops == pytest.approx(2048 * (2 * weights + attention), rel=0.002)


def test_the_first_layer_needs_no_input_gradient() -> None:
    layers = find_model("vgg11").layers
    assert layers[0].input_gradient_flops == 0
    assert all(layer.input_gradient_flops == layer.forward_flops for layer in layers[1:])


def test_backward_costs_about_twice_the_forward_pass() -> None:
    for name in ("resnet50", "bert-base", "gpt2"):
        model = find_model(name)
        assert 1.85 < model.backward_flops / model.forward_flops <= 2.0


def test_weights_that_are_shared_are_counted_and_exchanged_once() -> None:
    layers = {layer.name: layer for layer in find_model("gpt2").layers}
    assert layers["lm_head (shares wte)"].gradient_bytes == 0
    assert layers["lm_head (shares wte)"].forward_flops == 2 * 1024 * 768 * 50257
    assert layers["wte"].gradient_bytes == 4 * 50257 * 768


def test_embedding_tables_of_dlrm_are_never_all_reduced() -> None:
    model = find_model("dlrm")
    tables = [layer for layer in model.layers if layer.kind == "embedding"]
    assert len(tables) == 26 and all(layer.gradient_bytes == 0 for layer in tables)
    assert model.gradient_bytes == 4 * (model.parameters - sum(layer.parameters for layer in tables))


def test_every_architecture_of_the_registry_can_be_built_small() -> None:
    block = {"layers": 1, "hidden": 8, "heads": 2}
    needed = {
        "vgg": {"depth": 11},
        "resnet": {"depth": 18},
        "resnet_cifar": {"depth": 18},
        "mobilenet_v3": {"large": False},
        "bert": block,
        "gpt2": block,
        "vit": block,
        "llama": block | {"inner": 16},
    }
    for name in ARCHITECTURES:
        assert sum(layer.parameters for layer in build(name, needed.get(name, {}), 4)) > 0


@pytest.mark.parametrize(
    ("architecture", "arguments", "message"),
    [
        ("vggg", {}, "there is no architecture 'vggg'"),
        ("vgg", {}, "needs the argument 'depth'"),
        ("vgg", {"depth": 12}, "11, 13, 16 or 19"),
        ("vgg", {"depth": "11"}, "positive whole number"),
        ("vgg", {"depth": True}, "positive whole number"),
        ("vgg", {"depth": 11, "widht": 3}, "no argument 'widht'"),
        ("mobilenet_v3", {"large": 1}, "true or false"),
        (
            "llama",
            {"layers": 1, "hidden": 8, "heads": 2, "inner": 16, "key_heads": "x"},
            "positive whole number",
        ),
        ("bert", {"layers": 1, "hidden": 10, "heads": 3}, "cannot be divided among 3 heads"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(
    architecture: str, arguments: dict, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        build(architecture, arguments, 4)
