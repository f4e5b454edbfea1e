"""Inputs for a model whose dimensions are open, and the option that names them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import closed, given_inputs

if TYPE_CHECKING:
    from dovetail.graph import Model

__all__ = ["input_option", "model_and_inputs"]

input_option = click.option(
    "-i", "--input", "given", multiple=True, metavar="[NAME=]SOURCE", help="As for `run`.  [default: random for every input]"
)
"""The option `--input`: the function gets `given`, a tuple of texts for `model_and_inputs`."""


def model_and_inputs(model: "Model", given: Sequence[str] = (), seed: int = 0) -> tuple["Model", dict[str, Any]]:
    """The model with closed dimensions and inputs for it: those of `-i` options, which close dimensions, else random ones.

    What neither the model nor an input says is 1. Raises as `given_inputs` and `closed` do.
    """
    known = model if given else closed(model)
    inputs = given_inputs(known, given, seed)
    return closed(_fitted(known, inputs)), inputs


def _fitted(model: "Model", inputs: Mapping[str, Any]) -> "Model":
    """The model with the shapes of these inputs where it leaves dimensions open; those that do not fit are left to the run."""
    from dovetail.graph import TensorType

    found = {}
    for name, tensor in model.inputs.items():
        shape = getattr(inputs.get(name), "shape", None)
        if type(tensor) is TensorType and shape is not None and (tensor.shape is None or len(tensor.shape) == len(shape)):
            declared = tensor.shape or shape
            found[name] = tuple(d if isinstance(d, int) else size for d, size in zip(declared, shape, strict=True))
    return model.reshape(found)
