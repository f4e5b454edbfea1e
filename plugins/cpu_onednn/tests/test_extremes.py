"""ReduceMax and ReduceMin by oneDNN's reduction where the numbers allow it, with NumPy's results for NaN and infinities."""

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.op import Operator
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.global_max_pool import GlobalMaxPool
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_min import ReduceMin
from dovetail_ops_onnx.relu import Relu

RNG = np.random.default_rng(5)
KINDS = {"max": (ReduceMax, np.max), "min": (ReduceMin, np.min)}
SHAPES = [((8400, 80), (1,)), ((7, 3), (-1,)), ((2, 3, 17, 33), (2, 3)), ((1, 5, 2), (1, 2)), ((300, 2), (1,))]


def values(shape: tuple[int, ...], kind: str) -> NDArray[np.float32]:
    found = RNG.standard_normal(shape).astype(np.float32)
    flat = found.reshape(-1)
    places = RNG.choice(flat.size, max(1, flat.size // 9), replace=False)
    match kind:
        case "finite":
            found *= 1e30
        case "nan":
            flat[places] = np.nan
        case "infinities":
            flat[places] = np.inf
            flat[places[::2]] = -np.inf
        case "lowest":
            flat[...] = -np.inf
        case "highest":
            flat[...] = np.inf
    return found


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("keepdims", [True, False])
def test_results(name: str, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> None:
    operator, numpy = KINDS[name]
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", shape)
    y = g.node(operator(keepdims=keepdims), x, g.constant(np.array(axes)))
    relu = g.node(Relu(), y)
    core = dovetail.Core(config=False)
    compiled, fused = (core.compile_model(g.model([one]), "ONEDNN") for one in (y, relu))
    assert len(fused.report().nodes) == (2 if {a % len(shape) for a in axes} == {*range(len(shape))[-len(axes) :]} else 1)
    # The same request: one run by references must not change the next.
    for kind in ("finite", "nan", "infinities", "lowest", "highest", "finite"):
        data = values(shape, kind)
        wanted = numpy(data, axis=axes, keepdims=keepdims)
        np.testing.assert_array_equal(compiled(data)[y], wanted)
        np.testing.assert_array_equal(fused(data)[relu], np.where(np.isnan(wanted), wanted, np.maximum(wanted, 0)))


@pytest.mark.parametrize("name", KINDS)
def test_kernels(name: str) -> None:
    """oneDNN's reduction of many numbers, NumPy of fewer lines, over first axes, and of whole numbers."""
    g = dovetail.GraphBuilder()
    operator = KINDS[name][0]
    x, whole, many = g.input("x", "float32", (40, 50)), g.input("whole", "int32", (40, 50)), g.input("m", "float32", (2100, 1000))
    last, first = g.constant(np.array([1])), g.constant(np.array([0]))
    read = [(many, last), (x, first), (whole, last), (x, last)]
    model = g.model([g.node(operator(), *inputs) for inputs in read])
    nodes = dovetail.Core(config=False).compile_model(model, "ONEDNN").report().nodes
    assert [node.kernel.startswith("jit") for node in nodes] == [True, False, False, False]
    assert [node.kernel for node in nodes[1:]] == ["ufunc"] * 3


@pytest.mark.parametrize("op", [GlobalAveragePool(), GlobalMaxPool(), ReduceMean()], ids=str)
def test_whole_planes(op: Operator) -> None:
    """By oneDNN's reduction where they are long, which takes five times as long as pooling for many short ones."""
    core, kernels = dovetail.Core(config=False), {}
    for length in (49, 1000, 1024, 2047, 2048, 2049):
        x = np.random.default_rng(length).standard_normal((2, 5, 1, length)).astype(np.float32)
        g = dovetail.GraphBuilder()
        axes = [g.constant(np.array([2, 3]))] if isinstance(op, ReduceMean) else []
        model = g.model([g.node(op, g.input("x", "float32", x.shape), *axes)])
        with core.compile_model(model, "ONEDNN") as compiled:
            want = (np.max if isinstance(op, GlobalMaxPool) else np.mean)(x.astype(np.float64), axis=(2, 3), keepdims=True)
            np.testing.assert_allclose(compiled(x)[0], want, rtol=1e-5, atol=1e-6)
            kernels[length] = [node.kernel for node in compiled.report().nodes]
    assert kernels[49] == kernels[1000] == kernels[2047] != kernels[1024] == kernels[2048] == kernels[2049]
