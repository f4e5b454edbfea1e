"""Models, numbers and comparisons for tests of plans that take over decisions of earlier ones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import dovetail
from dovetail.testing.random_graphs import evaluate
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> NDArray[Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def convolutions() -> dovetail.Model:
    """Two convolutions, the first with a factor for each channel that folds into it, both with activations that fuse."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 4, "H", "W"])
    first = g.node(Mul(), g.node(Conv(pads=(1, 1, 1, 1)), x, g.constant(numbers(6, 4, 3, 3))), g.constant(numbers(6, 1, 1)))
    second = g.node(Conv(), g.node(Relu(), first), g.constant(numbers(6, 6, 1, 1)))
    return g.model([g.node(Relu(), g.node(Add(), second, first))])


def was_taken_over(compiled: dovetail.CompiledModel) -> bool:
    return "type_and_fold" not in {one.name for one in compiled.report().passes}


def run(compiled: dovetail.CompiledModel, model: dovetail.Model, **feeds: NDArray[Any]) -> bool:
    """Whether a plan took over decisions, after its results were compared with float64."""
    for found, wanted in zip(compiled(feeds).values(), evaluate(model, feeds), strict=True):
        assert found.shape == wanted.shape
        assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4)
    return was_taken_over(compiled)
