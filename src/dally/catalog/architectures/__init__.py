"""Published architectures as functions that fill a layer table; data files name them and give arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dally.catalog.layers import Table
from dally.catalog.model import Layer
from dally.core.errors import UserError

# name in a data file → module that defines a function of that name
ARCHITECTURES: Mapping[str, str] = {
    "alexnet": "cnn",
    "vgg": "cnn",
    "resnet": "cnn",
    "resnet_cifar": "cnn",
    "mobilenet_v3": "cnn",
    "googlenet": "inception",
    "inception_v3": "inception",
    "inception_v4": "inception",
    "bert": "transformer",
    "gpt2": "transformer",
    "llama": "transformer",
    "vit": "transformer",
    "transformer": "transformer",
    "transformer_xl": "transformer",
    "lstm_lm": "recurrent",
    "deepspeech2": "recurrent",
    "a3c": "recurrent",
    "dlrm": "other",
    "autoencoder": "other",
    "cyclegan": "other",
}


def build(architecture: str, arguments: Mapping[str, Any], gradient_width: int) -> tuple[Layer, ...]:
    """The layer table of an architecture; arguments are checked against the function's own signature."""
    from importlib import import_module
    from inspect import Parameter, signature

    if architecture not in ARCHITECTURES:
        raise UserError(
            f"there is no architecture {architecture!r}; there are {', '.join(sorted(ARCHITECTURES))}"
        )
    function = getattr(import_module(f"{__name__}.{ARCHITECTURES[architecture]}"), architecture)
    wanted = {name: spec for name, spec in signature(function).parameters.items() if name != "table"}
    for name, value in arguments.items():
        if name not in wanted:
            raise UserError(
                f"architecture {architecture!r} has no argument {name!r}; it has {', '.join(wanted)}"
            )
        expected = str(wanted[name].annotation)
        if expected.startswith("int") and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            raise UserError(
                f"argument {name!r} of {architecture!r} must be a positive whole number, not {value!r}"
            )
        if expected == "bool" and not isinstance(value, bool):
            raise UserError(f"argument {name!r} of {architecture!r} must be true or false, not {value!r}")
    missing = [
        name for name, spec in wanted.items() if spec.default is Parameter.empty and name not in arguments
    ]
    if missing:
        raise UserError(f"architecture {architecture!r} needs the argument {missing[0]!r}")
    table = Table(gradient_width)
    function(table, **arguments)
    return tuple(table.layers)
