"""Normalisations recognised from means, differences and roots, and only when they are complete."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.op import Operator
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.instance_normalization import InstanceNormalization
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.passes.fuse_normalizations import fuse_normalizations
from dovetail_ops_onnx.pow import Pow
from dovetail_ops_onnx.reciprocal import Reciprocal
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnx.sub import Sub

Array = np.ndarray[Any, Any]


class Form:
    """Writes normalisations of x [2, 3, 5]; `axes` are those of the mean, `again` those of the variance."""

    def __init__(
        self, dtype: str = "float32", axes: tuple[int, ...] = (-1,), again: tuple[int, ...] | None = None, keepdims: bool = True
    ) -> None:
        self.g = GraphBuilder()
        self.x = self.g.input("x", dtype, (2, 3, 5))
        self.dtype, self.axes, self.again, self.keepdims = dtype, axes, again or axes, keepdims
        rng = np.random.default_rng(3)
        row = (2, 3, 5)[min(a % 3 for a in axes) :]
        self.scale, self.shift = (rng.standard_normal(row).astype(dtype) for _ in range(2))

    def op(self, op: Operator, *inputs: str | float | Array) -> str:
        names = [n if isinstance(n, str) else self.g.constant(n, self.dtype) for n in inputs]
        y: str = self.g.node(op, *names)
        return y

    def mean(self, x: str, axes: tuple[int, ...] | None = None) -> str:
        y: str = self.g.node(ReduceMean(keepdims=self.keepdims), x, self.g.constant(axes or self.axes, "int64"))
        return y

    def centred(self) -> str:
        return self.op(Sub(), self.x, self.mean(self.x))

    def root(self, variance: str, epsilon: float = 0.01) -> str:
        return self.op(Sqrt(), self.op(Add(), variance, epsilon))

    def deviation(self, centred: str, square: bool = True) -> str:
        squared = self.op(Pow(), centred, 2.0) if square else self.op(Mul(), centred, centred)
        return self.root(self.mean(squared, self.again))


def bare(f: Form) -> str:
    centred = f.centred()
    return f.op(Div(), centred, f.deviation(centred))


def torch_form(f: Form) -> str:
    return f.op(Add(), f.op(Mul(), bare(f), f.scale), f.shift)


def without_shift(f: Form) -> str:
    return f.op(Mul(), f.scale, bare(f))


def two_differences(f: Form) -> str:
    mean = f.mean(f.x)
    one, other = f.op(Sub(), f.x, mean), f.op(Sub(), f.x, mean)
    return f.op(Add(), f.shift, f.op(Mul(), f.op(Div(), one, f.deviation(other)), f.scale))


def reciprocal(f: Form) -> str:
    centred = f.centred()
    inverse = f.op(Reciprocal(), f.deviation(centred, square=False))
    return f.op(Add(), f.op(Mul(), f.op(Mul(), centred, inverse), f.scale), f.shift)


def tf_form(f: Form) -> str:
    mean = f.mean(f.x)
    inverse = f.op(Reciprocal(), f.deviation(f.op(Sub(), f.x, mean), square=False))
    factor = f.op(Mul(), inverse, f.scale)
    return f.op(Add(), f.op(Mul(), f.x, factor), f.op(Sub(), f.shift, f.op(Mul(), mean, factor)))


def rms(f: Form) -> str:
    return f.op(Mul(), f.op(Div(), f.x, f.root(f.mean(f.op(Pow(), f.x, 2.0)))), f.scale)


def rms_reciprocal(f: Form) -> str:
    inverse = f.op(Div(), 1.0, f.root(f.mean(f.op(Mul(), f.x, f.x))))
    return f.op(Mul(), f.scale, f.op(Mul(), f.x, inverse))


def rms_bare(f: Form) -> str:
    return f.op(Mul(), f.x, f.op(Reciprocal(), f.root(f.mean(f.op(Pow(), f.x, 2.0)))))


LAYER = {
    "bare": bare,
    "torch": torch_form,
    "scale": without_shift,
    "twice": two_differences,
    "reciprocal": reciprocal,
    "tf": tf_form,
}
RMS = {"rms": rms, "rms_reciprocal": rms_reciprocal, "rms_bare": rms_bare}
FORMS: dict[str, Callable[[Form], str]] = {**LAYER, **RMS}


def fused(f: Form, *outputs: str, keeps: bool = True) -> Graph:
    return drop_dead_nodes(fuse_normalizations(fold_constants(f.g.graph(outputs)), lambda node, graph: keeps))


def keys(graph: Graph) -> list[str]:
    return [node.op.key for node in graph.nodes]


def value(graph: Graph, x: Array) -> Array:
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, "x": x}))
    return done.constants[graph.outputs[0]]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("axes", [(-1,), (1, 2), (2, 1), (0, 1, 2)])
def test_forms_of_exporters(name: str, axes: tuple[int, ...], rng: np.random.Generator) -> None:
    f = Form(axes=axes)
    graph = fused(f, FORMS[name](f))
    assert keys(graph) == ["RMSNormalization" if name in RMS else "LayerNormalization"]
    x = (rng.standard_normal((2, 3, 5)) + 0.5).astype(np.float32)
    wide = x.astype(np.float64)
    if name not in RMS:
        wide = wide - wide.mean(axes, keepdims=True)
    wanted = wide / np.sqrt((wide**2).mean(axes, keepdims=True) + 0.01)
    wanted = wanted * (1 if "bare" in name else f.scale) + (0 if name in RMS or name in ("bare", "scale") else f.shift)
    np.testing.assert_allclose(value(graph, x), wanted, rtol=1e-5, atol=1e-6)


def test_float16() -> None:
    f = Form("float16")
    assert keys(fused(f, torch_form(f))) == ["LayerNormalization"]


NEAR: dict[str, tuple[Callable[[Form], str], dict[str, Any]]] = {
    "another type": (torch_form, {"dtype": "float64"}),
    "an axis that is not the last": (bare, {"axes": (1,)}),
    "axes with a gap": (bare, {"axes": (0, 2)}),
    "rms over the first axis": (rms_bare, {"axes": (0,)}),
    "another power": (lambda f: f.op(Div(), f.x, f.root(f.mean(f.op(Pow(), f.x, 3.0)))), {}),
    "the variance of another value": (lambda f: f.op(Div(), f.centred(), f.deviation(f.op(Relu(), f.x))), {}),
    "a negative epsilon": (lambda f: f.op(Div(), f.x, f.root(f.mean(f.op(Mul(), f.x, f.x)), -0.01)), {}),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses_stay(name: str) -> None:
    build, options = NEAR[name]
    f = Form(**options)
    y = build(f)
    assert keys(fused(f, y)) == keys(drop_dead_nodes(fold_constants(f.g.graph([y]))))


def test_a_variance_over_another_axis_makes_an_rms_of_the_differences() -> None:
    f = Form(axes=(1, 2), again=(2,))
    assert keys(fused(f, bare(f))) == ["ReduceMean", "Sub", "RMSNormalization"]


def test_means_that_drop_their_axes_stay() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", (5, 5))
    mean = g.node(ReduceMean(keepdims=False), g.node(Mul(), x, x), g.constant([1], "int64"))
    y = g.node(Div(), x, g.node(Sqrt(), g.node(Add(), mean, g.constant(0.01, "float32"))))
    graph = fuse_normalizations(fold_constants(g.graph([y])), lambda node, graph: True)
    assert keys(graph) == ["Mul", "ReduceMean", "Add", "Sqrt", "Div"]


@pytest.mark.parametrize("name", FORMS)
def test_an_inner_value_that_is_an_output_is_kept(name: str) -> None:
    plain = Form()
    nodes = drop_dead_nodes(fold_constants(plain.g.graph([FORMS[name](plain)]))).nodes
    for index in range(len(nodes) - 1):
        f = Form()
        y = FORMS[name](f)
        inner = nodes[index].outputs[0]
        graph = fused(f, y, inner)
        assert inner in graph.producers


def test_a_residual_behind_the_scale_is_no_shift(rng: np.random.Generator) -> None:
    f = Form()
    y = f.op(Add(), f.op(Mul(), bare(f), f.scale), f.x)
    assert keys(fused(f, y)) == ["LayerNormalization", "Add"]


def test_a_device_without_a_kernel_keeps_the_form() -> None:
    f = Form()
    assert "LayerNormalization" not in keys(fused(f, torch_form(f), keeps=False))


def grouped(**changed: Any) -> Graph:
    """GroupNormalization of [2, 6, 4, 5] in 3 groups, as PyTorch exports it; each keyword changes one thing."""
    rng, g, dtype = np.random.default_rng(9), GraphBuilder(), changed.get("dtype", "float32")
    x = g.input("x", dtype, (2, 6, 4, 5))
    instances = g.node(Reshape(), x, g.constant(changed.get("groups", (0, 3, -1)), "int64"))
    count = changed.get("count", 3)
    numbers = np.ones(count, dtype) * changed.get("one", 1), np.zeros(count, dtype)
    y = g.node(InstanceNormalization(epsilon=1e-3), instances, *(g.constant(array.astype(dtype)) for array in numbers))
    y = g.node(Reshape(), y, g.constant((2, 6, 4, 5), "int64"))
    shape = changed.get("shape", (6, 1, 1))
    scale = g.input("scale", dtype, shape) if changed.get("open") else g.constant(rng.standard_normal(shape).astype(dtype))
    y = g.node(Mul(), scale, y) if changed.get("turned") else g.node(Mul(), y, scale)
    return fold_constants(g.graph([g.node(Add(), y, g.constant(rng.standard_normal(shape).astype(dtype)))]))


@pytest.mark.parametrize(
    "changed",
    [{}, {"shape": (1, 6, 1, 1)}, {"turned": True}, {"groups": (0, 1, -1), "count": 1}, {"groups": (2, 6, 20), "count": 6}],
)
def test_groups(changed: dict[str, Any]) -> None:
    graph = grouped(**changed)
    found = drop_dead_nodes(fuse_normalizations(graph, lambda node, graph: True))
    assert [node.op.key for node in found.nodes] == ["GroupNormalization"]
    x = 3 + np.random.default_rng(2).standard_normal((2, 6, 4, 5)).astype(np.float32)
    done = [fold_constants(one.replace(inputs=(), constants={**one.constants, "x": x})) for one in (found, graph)]
    np.testing.assert_allclose(*(one.constants[one.outputs[0]] for one in done), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "changed",
    [
        {"one": 2.0},
        {"open": True},
        {"shape": (1, 1, 5)},
        {"shape": (6, 4, 1)},
        {"groups": (1, 6, -1), "count": 6},  # the instances of both images are one
        {"groups": (2, 4, -1), "count": 4},  # 6 channels are not four groups
        {"dtype": "float64"},
    ],
)
def test_other_instances_stay(changed: dict[str, Any]) -> None:
    graph = grouped(**changed)
    assert fuse_normalizations(graph, lambda node, graph: True) is graph
