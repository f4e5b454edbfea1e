"""ReduceMax and ReduceMin by oneDNN's reduction where the numbers allow it, with NumPy's results for NaN and infinities."""

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_min import ReduceMin
from dovetail_ops_onnx.relu import Relu

RNG = np.random.default_rng(5)
KINDS = {"max": (ReduceMax, np.max), "min": (ReduceMin, np.min)}
SHAPES = [((8400, 80), (1,)), ((7, 3), (-1,)), ((2, 3, 17, 33), (2, 3)), ((1, 5, 2), (1, 2)), ((300, 13), (1,))]


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
    assert len(fused.report().nodes) == 1
    # The same request: one run by references must not change the next.
    for kind in ("finite", "nan", "infinities", "lowest", "highest", "finite"):
        data = values(shape, kind)
        wanted = numpy(data, axis=axes, keepdims=keepdims)
        np.testing.assert_array_equal(compiled(data)[y], wanted)
        np.testing.assert_array_equal(fused(data)[relu], np.where(np.isnan(wanted), wanted, np.maximum(wanted, 0)))


@pytest.mark.parametrize("name", KINDS)
def test_kernels(name: str) -> None:
    """The reduction over last axes, NumPy over first ones, of which oneDNN has only a reference, and of whole numbers."""
    g = dovetail.GraphBuilder()
    operator = KINDS[name][0]
    x, whole = g.input("x", "float32", (40, 50)), g.input("whole", "int32", (40, 50))
    last, first = g.constant(np.array([1])), g.constant(np.array([0]))
    model = g.model([g.node(operator(), x, last), g.node(operator(), x, first), g.node(operator(), whole, last)])
    nodes = dovetail.Core(config=False).compile_model(model, "ONEDNN").report().nodes
    assert [node.kernel.startswith("jit") for node in nodes] == [True, False, False]
    assert [node.kernel for node in nodes[1:]] == ["ufunc", "ufunc"]
