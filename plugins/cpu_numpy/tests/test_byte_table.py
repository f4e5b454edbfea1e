"""Functions of stored bytes by a table: every byte, chains of operators, all types; other nodes are refused."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail_ops_onnx.clip import Clip
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.hard_swish import HardSwish
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.p_relu import PRelu
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softmax import Softmax

Array = np.ndarray[Any, Any]


def real(x: Array, scale: float, zero: int) -> Array:
    return (x.astype(np.float64) - zero) * np.float32(scale)


def stored(y: Array, scale: float, zero: int, dtype: Any) -> Array:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(y / np.float32(scale)) + zero, limits.min, limits.max).astype(dtype)


def chain(shape: Any, source: Any, target: Any, *operators: Any) -> dovetail.Model:
    """Operators between a DequantizeLinear of scale 0.05 and a QuantizeLinear of 0.03, zero points 7 and 3.

    A tuple is an operator with its constants.
    """
    g = dovetail.GraphBuilder()
    x = g.input("x", np.dtype(source).name, shape)
    y = g.node(DequantizeLinear(), x, g.constant(0.05, "float32"), g.constant(7, np.dtype(source).name))
    for operator in operators:
        op, *constants = operator if isinstance(operator, tuple) else (operator,)
        y = g.node(op, y, *(g.constant(np.float32(number)) for number in constants))
    y = g.node(QuantizeLinear(), y, g.constant(0.03, "float32"), g.constant(3, np.dtype(target).name))
    return g.model([y])


CHAINS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "sigmoid": ((Sigmoid(),), lambda x: 1 / (1 + np.exp(-x))),
    "leaky_relu": ((LeakyRelu(alpha=0.3),), lambda x: np.where(x < 0, 0.3 * x, x)),
    "hard_swish": ((HardSwish(),), lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "clip": (((Clip(), -0.5, 2.0),), lambda x: np.clip(x, -0.5, 2)),
    "two": ((Sigmoid(), (Mul(), 1.75)), lambda x: 1.75 / (1 + np.exp(-x))),
    "slope": (((PRelu(), [[0.25]]),), lambda x: np.where(x < 0, 0.25 * x, x)),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("source", [np.uint8, np.int8])
@pytest.mark.parametrize("target", [np.uint8, np.int8])
def test_every_byte(core: dovetail.Core, name: str, source: Any, target: Any) -> None:
    operators, function = CHAINS[name]
    x = np.arange(256, dtype=np.uint8).view(source).reshape(2, 128)
    with core.compile_model(chain(x.shape, source, target, *operators), "NUMPY") as compiled:
        y = compiled(x)[0]
        (node,) = compiled.report().nodes
    assert node.kernel == "table"
    exact = function(real(x, 0.05, 7))
    assert y.dtype == target
    # Where the float lies half way between two steps float32 decides.
    halves = np.abs((exact / np.float32(0.03)) % 1 - 0.5) < 1e-4
    np.testing.assert_array_equal(y[~halves], stored(exact, 0.03, 3, target)[~halves])
    assert np.abs(y.astype(int) - stored(exact, 0.03, 3, target)).max() <= 1


@pytest.mark.parametrize("shape", [(), (1,), (3, 5, 7), (0, 4), (2, 3, 4, 5)], ids=str)
def test_shapes(core: dovetail.Core, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    x = rng.integers(0, 256, shape).astype(np.uint8)
    turned = np.asarray(x.T).copy().T
    turned.setflags(write=False)
    with core.compile_model(chain(shape, np.uint8, np.int8, Sigmoid()), "NUMPY") as compiled:
        for given in (x, turned):
            y = compiled(given)[0]
            want = stored(1 / (1 + np.exp(-real(x, 0.05, 7))), 0.03, 3, np.int8)
            assert (y.shape, y.dtype) == (shape, np.int8)
            assert np.abs(y.astype(int) - want).max(initial=0) <= 1


@pytest.mark.parametrize("operators", [(Softmax(),), ((PRelu(), [[0.25], [0.5]]),), ((Mul(), np.ones((2, 3))),)], ids=str)
def test_no_function_of_single_bytes_is_taken(core: dovetail.Core, rng: np.random.Generator, operators: Any) -> None:
    x = rng.integers(0, 256, (2, 3)).astype(np.uint8)
    with core.compile_model(chain(x.shape, np.uint8, np.uint8, *operators), "NUMPY") as compiled:
        y = compiled(x)[0]
        assert "table" not in {node.kernel for node in compiled.report().nodes}
    value = real(x, 0.05, 7)
    op, *constants = operators[0] if isinstance(operators[0], tuple) else (operators[0],)
    if isinstance(op, Softmax):
        want = np.exp(value) / np.exp(value).sum(1, keepdims=True)
    else:
        want = value * constants[0] if isinstance(op, Mul) else np.where(value < 0, value * np.asarray(constants[0]), value)
    assert np.abs(y.astype(int) - stored(want, 0.03, 3, np.uint8)).max() <= 1


def test_a_scale_for_each_channel_is_not_taken(core: dovetail.Core, rng: np.random.Generator) -> None:
    g, x = dovetail.GraphBuilder(), rng.integers(-128, 128, (2, 3)).astype(np.int8)
    scales = np.float32([0.05, 0.1, 0.2])
    y = g.node(DequantizeLinear(), g.input("x", "int8", x.shape), g.constant(scales))
    y = g.node(QuantizeLinear(), g.node(LeakyRelu(alpha=0.5), y), g.constant(0.3, "float32"), g.constant(1, "int8"))
    with core.compile_model(g.model([y]), "NUMPY") as compiled:
        value = x * scales.astype(np.float64)
        want = stored(np.where(value < 0, value / 2, value), 0.3, 1, np.int8)
        assert np.abs(compiled(x)[0].astype(int) - want).max() <= 1
        assert "table" not in {node.kernel for node in compiled.report().nodes}
