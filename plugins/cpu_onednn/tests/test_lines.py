"""Reductions over last axes, in lines: sums and means against float64, extremes with NaN and infinities, for new sizes too."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.kernels import _reduce
from dovetail_ops_onnx._reduce import EXACT
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.global_max_pool import GlobalMaxPool
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_min import ReduceMin
from dovetail_ops_onnx.reduce_prod import ReduceProd
from dovetail_ops_onnx.reduce_sum import ReduceSum

KINDS: dict[str, tuple[Any, Any]] = {
    "max": (ReduceMax, np.max),
    "min": (ReduceMin, np.min),
    "sum": (ReduceSum, np.sum),
    "mean": (ReduceMean, np.mean),
}
SHAPES = [((32, 2), (1,)), ((1, 7), (1,)), ((5, 67, 33), (2,)), ((3, 41, 5, 9), (2, 3)), ((101, EXACT), (1,))]
SHAPES += [((33, EXACT + 1), (1,)), ((1, 1), (1,)), ((64, 1), (1,)), ((40, 3, 17), (0, 1, 2)), ((9, 40, 6), (1, 2))]
SHAPES += [((3, 112, 112), (1, 2)), ((2, 4099), (1,)), ((50, 7, 7), (1, 2)), ((50, 33), (1,))]
SHAPES += [((128, 2), (1,)), ((127, 2), (1,)), ((11_000, 3), (1,)), ((3, 700, 2, 8), (2, 3)), ((2048, 17), (1,))]
SHAPES += [((521, 63), (1,)), ((521, 64), (1,)), ((1, 40, 1000), (2,))]


@pytest.mark.parametrize("device", ["ONEDNN", "NUMPY"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_results(device: str, dtype: str, keepdims: bool, name: str) -> None:
    operator, numpy = KINDS[name]
    rng = np.random.default_rng(3)
    for shape, axes in SHAPES:
        g = GraphBuilder()
        y = g.node(operator(keepdims=keepdims), g.input("x", dtype, shape), g.constant(np.array(axes)))
        compiled = dovetail.Core(config=False).compile_model(g.model([y]), device)
        x = rng.standard_normal(shape).astype(dtype)
        for data in (x, np.where(rng.random(shape) < 0.02, np.nan, x), np.where(rng.random(shape) < 0.02, np.inf, x)):
            data = data.astype(dtype)
            wanted = numpy(data.astype(np.float64), axis=axes, keepdims=keepdims)
            size = 4e-6 if dtype == "float32" else 1e-14
            scale = np.sum(np.abs(np.where(np.isfinite(data), data, 0)), axis=axes, keepdims=keepdims)
            np.testing.assert_allclose(compiled(data)[y], wanted, rtol=1e-6, atol=float(size * scale.max()))


PRODUCTS = [((500, 12), (1,), "ufunc"), ((3, 4, 5), (0,), "ufunc"), ((4, 300), (1,), "jit")]


@pytest.mark.parametrize(("shape", "axes", "kernel"), PRODUCTS)
def test_products(shape: tuple[int, ...], axes: tuple[int, ...], kernel: str) -> None:
    g = GraphBuilder()
    y = g.node(ReduceProd(), g.input("x", "float32", shape), g.constant(np.array(axes)))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    x = np.random.default_rng(6).uniform(0.9, 1.1, shape).astype(np.float32)
    x[0, 0], x[1, 1] = np.nan, -np.inf
    np.testing.assert_allclose(compiled(x)[y], np.prod(x.astype(np.float64), axis=axes, keepdims=True), rtol=2e-5)
    assert kernel in compiled.report().nodes[0].kernel


@pytest.mark.parametrize("device", ["ONEDNN", "NUMPY"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("operator", [ReduceMax, ReduceMin, ReduceSum, ReduceProd])
def test_whole_numbers(device: str, dtype: str, operator: Any) -> None:
    rng = np.random.default_rng(5)
    for shape in ((128, 2), (3000, 16), (40, 5, 17), (127, 3), (0, 5), (4096, 9)):
        g = GraphBuilder()
        y = g.node(operator(), g.input("x", dtype, shape), g.constant(np.array([-1])))
        compiled = dovetail.Core(config=False).compile_model(g.model([y]), device)
        x = rng.integers(0, np.iinfo(dtype).max, shape, dtype)  # sums and products wrap
        x.flags.writeable = False
        for data in (x, np.asfortranarray(x)):
            wanted = operator.ufunc.reduce(data, -1, dtype, keepdims=True)
            np.testing.assert_array_equal(compiled(data)[y], wanted)


@pytest.mark.parametrize("dims", [(7, 7), (112, 112), (4099,), (3, 3)])
@pytest.mark.parametrize(("operator", "numpy"), [(GlobalAveragePool, np.mean), (GlobalMaxPool, np.max)])
def test_global_pools_on_numpy(operator: Any, numpy: Any, dims: tuple[int, ...]) -> None:
    g, axes = GraphBuilder(), tuple(range(2, 2 + len(dims)))
    y = g.node(operator(), g.input("x", "float32", (2, 3, *dims)))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "NUMPY")
    x = np.random.default_rng(4).uniform(0, 1, (2, 3, *dims)).astype(np.float32)
    x[0, 1].flat[-1], x[1, 2].flat[5] = np.nan, np.inf
    np.testing.assert_allclose(compiled(x)[y], numpy(x.astype(np.float64), axis=axes, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 80, 1000), (3, 5, 7), (300, 2, 20)])
def test_means_of_sequences_without_a_reorder(shape: tuple[int, ...]) -> None:
    g = GraphBuilder()
    y = g.node(ReduceMean(), g.input("x", "float32", shape), g.constant(np.array([2])))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    assert [node.kernel for node in compiled.report().nodes] == ["ufunc"]


@pytest.mark.parametrize("name", KINDS)
def test_lines_become_too_large_and_small_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reduce, "LARGE", 32 * 70)
    operator, numpy = KINDS[name]
    g = GraphBuilder()
    y = g.node(operator(), g.input("x", "float32", ["n", 70]), g.constant(np.array([-1])))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    for count in (3, 5, 33, 67, 4, 32):
        x = np.random.default_rng(count).standard_normal((count, 70)).astype(np.float32)
        kernel = compiled.report({"x": (count, 70)}).nodes[0].kernel
        assert (kernel == "ufunc") == (count <= 32)
        np.testing.assert_allclose(compiled(x)[y], numpy(x.astype(np.float64), axis=1, keepdims=True), rtol=1e-5, atol=1e-5)
