"""Forms that passes recognise or fold, on every device, with and without fusion, against the unfused nodes in float64."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.clip import Clip
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.erf import Erf
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.pad import Pad
from dovetail_ops_onnx.pow import Pow
from dovetail_ops_onnx.reciprocal import Reciprocal
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.softplus import Softplus
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx.transpose import Transpose

Array = np.ndarray[Any, Any]


class Form:
    """Writes a form over x [batch, ...] in one data type; random constants are the same in every type."""

    def __init__(self, dtype: str, batch: int | str, dims: tuple[int, ...]) -> None:
        self.g = GraphBuilder()
        self.dtype = dtype
        self.x: str = self.g.input("x", dtype, (batch, *dims))
        self._rng = np.random.default_rng(7)

    def __call__(self, op: Any, *inputs: Any) -> str:
        y: str = self.g.node(op, *(i if isinstance(i, str) else self.g.constant(i, self.dtype) for i in inputs))
        return y

    def some(self, *dims: int) -> str:
        return self.g.constant(self._rng.standard_normal(dims).astype(np.float32), self.dtype)

    def ints(self, *values: int) -> str:
        return self.g.constant(values, "int64")


def gelu(f: Form) -> str:
    return f(Mul(), f(Mul(), f.x, f(Add(), f(Erf(), f(Div(), f.x, math.sqrt(2))), 1.0)), 0.5)


def gelu_tanh(f: Form) -> str:
    inner = f(Mul(), f(Add(), f.x, f(Mul(), f(Pow(), f.x, 3.0), 0.044715)), math.sqrt(2 / math.pi))
    return f(Mul(), f(Mul(), f.x, 0.5), f(Add(), f(Tanh(), inner), 1.0))


def swish(f: Form) -> str:
    return f(Mul(), f.x, f(Sigmoid(), f.x))


def quick_gelu_behind_a_product(f: Form) -> str:
    y = f(MatMul(), f.x, f.some(7, 9))
    return f(Mul(), y, f(Sigmoid(), f(Mul(), y, 1.702)))


def hard_swish(f: Form) -> str:
    return f(Div(), f(Mul(), f.x, f(Clip(), f(Add(), f.x, 3.0), 0.0, 6.0)), 6.0)


def mish(f: Form) -> str:
    return f(Mul(), f.x, f(Tanh(), f(Softplus(), f.x)))


def layer_norm(f: Form) -> str:
    centred = f(Sub(), f.x, f(ReduceMean(), f.x, f.ints(-1)))
    root = f(Sqrt(), f(Add(), f(ReduceMean(), f(Pow(), centred, 2.0), f.ints(-1)), 1e-5))
    return f(Add(), f(Mul(), f(Div(), centred, root), f.some(7)), f.some(7))


def rms_norm(f: Form) -> str:
    inverse = f(Reciprocal(), f(Sqrt(), f(Add(), f(ReduceMean(), f(Mul(), f.x, f.x), f.ints(-1)), 1e-6)))
    return f(Mul(), f(Mul(), f.x, inverse), f.some(7))


def attention(f: Form) -> str:
    """Torch's: three projections, heads split off, a mask of some keys, heads joined."""
    heads = [f(Reshape(), f(MatMul(), f.x, f.some(6, 6)), f.ints(0, 5, 2, 3)) for _ in range(3)]
    q, v = (f(Transpose(perm=(0, 2, 1, 3)), heads[i]) for i in (0, 2))
    scores = f(Div(), f(MatMul(), q, f(Transpose(perm=(0, 2, 3, 1)), heads[1])), math.sqrt(3))
    mask = np.array([0, 0, -10000, 0, -1], np.float32).reshape(1, 1, 1, 5)
    weights = f(Softmax(), f(Add(), scores, mask))
    joined = f(Transpose(perm=(0, 2, 1, 3)), f(MatMul(), weights, v))
    return f(Reshape(), joined, f.ints(0, 5, 6))


def attention_of_four_dimensions(f: Form) -> str:
    q, k = (f(Mul(), f.x, 0.7), f(Mul(), f(Transpose(perm=(0, 1, 3, 2)), f(Relu(), f.x)), 0.7))
    return f(MatMul(), f(Softmax(), f(MatMul(), q, k)), f(Mul(), f.x, 2.0))


def padded_conv(f: Form) -> str:
    y = f(Conv(strides=(2, 1)), f(Pad(), f.x, f.ints(0, 0, 1, 0, 0, 0, 2, 1)), f.some(4, 3, 3, 2))
    return f(Relu(), f(Add(), f(Mul(), y, f.some(1, 4, 1, 1)), f.some(4, 1, 1)))


def padded_average(f: Form) -> str:
    return f(AveragePool(kernel_shape=(3, 2)), f(Pad(), f.x, f.ints(0, 0, 1, 0, 0, 0, 1, 1)))


def padded_greatest(f: Form) -> str:
    return f(MaxPool(kernel_shape=(3, 2)), f(Pad(), f(Relu(), f.x), f.ints(0, 0, 1, 1, 0, 0, 2, 0)))


def transposes(f: Form) -> str:
    y = f(Relu(), f(Transpose(perm=(0, 2, 1)), f(Transpose(perm=(0, 2, 1)), f.x)))
    return f(Transpose(perm=(2, 1, 0)), f(Transpose(perm=(0, 2, 1)), y))


FORMS: dict[Callable[[Form], str], tuple[int, ...]] = {
    **dict.fromkeys((gelu, gelu_tanh, swish, quick_gelu_behind_a_product, hard_swish, mish), (5, 7)),
    **dict.fromkeys((layer_norm, rms_norm, transposes), (5, 7)),
    attention: (5, 6),
    attention_of_four_dimensions: (3, 5, 7),
    **dict.fromkeys((padded_conv, padded_average, padded_greatest), (3, 5, 7)),
}


def in_float64(build: Callable[[Form], str], x: Array) -> Array:
    f = Form("float64", x.shape[0], x.shape[1:])
    graph = f.g.graph([build(f)])
    return fold_constants(graph.replace(inputs=(), constants={**graph.constants, "x": x.astype(np.float64)})).constants[
        graph.outputs[0]
    ]


@pytest.mark.parametrize("build", FORMS, ids=lambda build: build.__name__)
@pytest.mark.parametrize("fusion", [True, False])
def test_forms(core: dovetail.Core, device: str, build: Callable[[Form], str], fusion: bool) -> None:
    f = Form("float32", "N", FORMS[build])
    rng = np.random.default_rng(3)
    with core.compile_model(f.g.model([build(f)]), device, {"FUSION": fusion}) as compiled:
        for batch in (3, 0):
            x = rng.standard_normal((batch, *FORMS[build])).astype(np.float32)
            np.testing.assert_allclose(compiled({"x": x})[0], in_float64(build, x), rtol=1e-4, atol=1e-5)
