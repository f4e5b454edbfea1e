"""Activations recognised from their elementwise forms, and only when they are complete."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.op import Operator
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.clip import Clip, Clip_6
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.erf import Erf
from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx.hard_sigmoid import HardSigmoid
from dovetail_ops_onnx.log import Log
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.passes.fuse_activations import fuse_activations
from dovetail_ops_onnx.pow import Pow
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softplus import Softplus
from dovetail_ops_onnx.tanh import Tanh


class Form:
    """Writes expressions of x; numbers become constants. `numbers` replaces some of them, `ops` some of the operators."""

    def __init__(
        self, dtype: str = "float32", shape: tuple[int, ...] = (3, 5), numbers: dict[float, float] | None = None
    ) -> None:
        self.g = GraphBuilder()
        self.dtype, self.numbers = dtype, numbers or {}
        self.x = self.g.input("x", dtype, shape)
        self.read_outside: list[str] = []

    def op(self, op: Operator, *inputs: str | float) -> str:
        names = [n if isinstance(n, str) else self.g.constant(self.numbers.get(n, n), self.dtype) for n in inputs]
        y: str = self.g.node(op, *names)
        return y

    def mul(self, *factors: str | float) -> str:
        y, *rest = factors
        for factor in rest:
            y = self.op(Mul(), y, factor)
        assert isinstance(y, str)
        return y


def gelu(f: Form, order: Callable[[str, float, str], tuple[str | float, ...]] = lambda x, h, s: (x, s, h)) -> str:
    return f.mul(*order(f.x, 0.5, f.op(Add(), f.op(Erf(), f.op(Div(), f.x, math.sqrt(2))), 1.0)))


def gelu_product(f: Form) -> str:
    return f.mul(f.mul(f.x, 0.5), f.op(Add(), 1.0, f.op(Erf(), f.op(Mul(), math.sqrt(0.5), f.x))))


def gelu_tanh(f: Form) -> str:
    inner = f.op(Add(), f.x, f.mul(0.044715, f.op(Pow(), f.x, 3.0)))
    return f.mul(f.mul(0.5, f.x), f.op(Add(), f.op(Tanh(), f.mul(math.sqrt(2 / math.pi), inner)), 1.0))


def gelu_tanh_cube(f: Form) -> str:
    inner = f.op(Add(), f.x, f.mul(f.mul(f.x, f.x, f.x), 0.044715))
    return f.mul(f.x, 0.5, f.op(Add(), 1.0, f.op(Tanh(), f.mul(inner, math.sqrt(2 / math.pi)))))


def gelu_tanh_bracket(f: Form) -> str:
    bracket = f.op(Add(), 1.0, f.mul(f.mul(0.044715, f.x), f.x))
    return f.mul(f.mul(f.x, 0.5), f.op(Add(), f.op(Tanh(), f.mul(f.x, math.sqrt(2 / math.pi), bracket)), 1.0))


def swish(f: Form) -> str:
    return f.mul(f.op(Sigmoid(), f.x), f.x)


def swish_exp(f: Form) -> str:
    return f.op(Div(), f.x, f.op(Add(), 1.0, f.op(Exp(), f.op(Neg(), f.x))))


def quick_gelu(f: Form) -> str:
    return f.mul(f.x, f.op(Sigmoid(), f.mul(f.x, 1.702)))


def hard_swish(f: Form) -> str:
    return f.mul(f.x, f.op(HardSigmoid(alpha=1 / 6, beta=0.5), f.x))


def hard_swish_div(f: Form) -> str:
    return f.op(Div(), f.mul(f.x, f.op(Clip(), f.op(Add(), f.x, 3.0), 0.0, 6.0)), 6.0)


def hard_swish_inner_div(f: Form) -> str:
    return f.mul(f.x, f.op(Div(), f.op(Clip_6(min=0.0, max=6.0), f.op(Add(), f.x, 3.0)), 6.0))


def hard_swish_mul(f: Form) -> str:
    return f.mul(f.mul(f.x, f.op(Clip(), f.op(Add(), 3.0, f.x), 0.0, 6.0)), 1 / 6)


def mish(f: Form) -> str:
    return f.mul(f.x, f.op(Tanh(), f.op(Softplus(), f.x)))


def mish_log(f: Form) -> str:
    return f.mul(f.x, f.op(Tanh(), f.op(Log(), f.op(Add(), f.op(Exp(), f.x), 1.0))))


def exact_gelu(x: float) -> float:
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def tanh_gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def six(x: float) -> float:
    return x * min(6.0, max(0.0, x + 3)) / 6


FORMS: dict[str, tuple[Callable[[Form], str], str, Callable[[float], float]]] = {
    "gelu": (gelu, "Gelu", exact_gelu),
    "gelu_x_last": (lambda f: gelu(f, lambda x, h, s: (s, h, x)), "Gelu", exact_gelu),
    "gelu_half_first": (lambda f: gelu(f, lambda x, h, s: (f.mul(h, x), s)), "Gelu", exact_gelu),
    "gelu_product": (gelu_product, "Gelu", exact_gelu),
    "gelu_tanh": (gelu_tanh, "Gelu", tanh_gelu),
    "gelu_tanh_cube": (gelu_tanh_cube, "Gelu", tanh_gelu),
    "gelu_tanh_bracket": (gelu_tanh_bracket, "Gelu", tanh_gelu),
    "swish": (swish, "Swish", lambda x: x / (1 + math.exp(-x))),
    "swish_exp": (swish_exp, "Swish", lambda x: x / (1 + math.exp(-x))),
    "quick_gelu": (quick_gelu, "Swish", lambda x: x / (1 + math.exp(-1.702 * x))),
    "hard_swish": (hard_swish, "HardSwish", six),
    "hard_swish_div": (hard_swish_div, "HardSwish", six),
    "hard_swish_inner_div": (hard_swish_inner_div, "HardSwish", six),
    "hard_swish_mul": (hard_swish_mul, "HardSwish", six),
    "mish": (mish, "Mish", lambda x: x * math.tanh(math.log1p(math.exp(x)))),
    "mish_log": (mish_log, "Mish", lambda x: x * math.tanh(math.log1p(math.exp(x)))),
}


def fused(f: Form, *outputs: str, keeps: bool = True) -> Graph:
    return drop_dead_nodes(fuse_activations(fold_constants(f.g.graph(outputs)), lambda node, graph: keeps))


def keys(graph: Graph) -> list[str]:
    return [node.op.key for node in graph.nodes]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_forms_of_exporters(name: str, dtype: str, rng: np.random.Generator) -> None:
    build, key, by_hand = FORMS[name]
    f = Form(dtype)
    graph = fused(f, build(f))
    assert keys(graph) == [key]
    assert len(graph.nodes[0].origins) >= 2
    x = (3 * rng.standard_normal((3, 5))).astype(dtype)
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, "x": x}))
    wanted = [by_hand(v) for v in x.astype(np.float64).ravel()]
    tolerance = {"rtol": 1e-5, "atol": 1e-7} if dtype == "float32" else {"rtol": 1e-3, "atol": 1e-4}
    np.testing.assert_allclose(done.constants[graph.outputs[0]].ravel(), wanted, **tolerance)


NEAR: dict[str, tuple[Callable[[Form], str], dict[str, Any]]] = {
    "gelu, another half": (gelu, {"numbers": {0.5: 0.25}}),
    "gelu, another one": (gelu, {"numbers": {1.0: 2.0}}),
    "gelu, another root": (gelu, {"numbers": {math.sqrt(2): 1.4143}}),
    "gelu, float64": (gelu, {"dtype": "float64"}),
    "gelu_tanh, another coefficient": (gelu_tanh, {"numbers": {0.044715: 0.0447}}),
    "gelu_tanh, another power": (gelu_tanh, {"numbers": {3.0: 2.0}}),
    "hard_swish_div, another shift": (hard_swish_div, {"numbers": {3.0: 2.0}}),
    "hard_swish_div, another limit": (hard_swish_div, {"numbers": {6.0: 5.0}}),
    "mish_log, another one": (mish_log, {"numbers": {1.0: 1.5}}),
    "gelu without half": (lambda f: f.mul(f.x, f.op(Add(), f.op(Erf(), f.op(Div(), f.x, math.sqrt(2))), 1.0)), {}),
    "swish of another value": (lambda f: f.mul(f.x, f.op(Sigmoid(), f.op(Relu(), f.x))), {}),
    "hard_sigmoid with its default slope": (lambda f: f.mul(f.x, f.op(HardSigmoid(), f.x)), {}),
    "clip with one limit": (lambda f: f.op(Div(), f.mul(f.x, f.op(Clip(), f.op(Add(), f.x, 3.0), 0.0)), 6.0), {}),
    "relu6 with another limit": (
        lambda f: f.op(Div(), f.mul(f.x, f.op(Clip_6(min=0.0, max=5.0), f.op(Add(), f.x, 3.0))), 6.0),
        {},
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses_stay(name: str) -> None:
    build, options = NEAR[name]
    f = Form(**options)
    y = build(f)
    before = keys(drop_dead_nodes(fold_constants(f.g.graph([y]))))
    assert keys(fused(f, y)) == before


@pytest.mark.parametrize("name", FORMS)
def test_an_inner_value_that_is_an_output_or_read_elsewhere_keeps_the_form(name: str) -> None:
    build, key, _ = FORMS[name]
    plain = Form()
    inner = [node.outputs[0] for node in fold_constants(plain.g.graph([build(plain)])).nodes[:-1]]
    for index in range(len(inner)):
        f = Form()
        y = build(f)
        assert key not in keys(fused(f, y, inner[index]))
        other = f.g.node(Relu(), inner[index])
        assert key not in keys(fused(f, y, other))


def test_a_constant_that_broadcasts_keeps_the_form() -> None:
    f = Form()
    wide = f.g.constant(np.full((2, 1, 1), 0.5), "float32")
    y = f.mul(f.mul(f.x, f.op(Add(), f.op(Erf(), f.op(Div(), f.x, math.sqrt(2))), 1.0)), wide)
    assert keys(fused(f, y)) == ["Div", "Erf", "Add", "Mul", "Mul"]


def test_a_device_without_a_kernel_keeps_the_form() -> None:
    f = Form()
    assert keys(fused(f, swish(f), keeps=False)) == ["Sigmoid", "Mul"]


def test_two_forms_that_share_their_input() -> None:
    f = Form()
    assert sorted(keys(fused(f, swish(f), gelu(f)))) == ["Gelu", "Swish"]
