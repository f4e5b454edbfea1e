"""Matrix products of infinities and NaN, with and without chains: as float64 and onnxruntime have them."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail

SHAPES = [
    ((1, 4, 17, 25), (1, 1, 25, 1)),
    ((1, 4, 17, 25), (1, 4, 25, 1)),
    ((1, 1, 17, 25), (3, 1, 25, 2)),
    ((17, 25), (25, 16)),
    ((4, 17, 25), (25,)),
]


def product(a, b):
    """Term by term, in float64: a sum that stops at no infinity."""
    with np.errstate(all="ignore"):
        if b.ndim == 1:
            return (a.astype(np.float64) * b).sum(-1)
        return np.einsum("...ij,...jk->...ijk", a.astype(np.float64), b.astype(np.float64)).sum(-2)


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("values", [(np.inf,), (-np.inf,), (np.nan,), (np.inf, -np.inf, 0.0)])
def test_products(left, right, values, constant, chained):
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(dims).astype(np.float32) for dims in (left, right))
    for array in (a, b):
        for value in values:
            array.flat[rng.integers(array.size)] = value
    nodes = [helper.make_node("MatMul", ["a", "b"], ["m" if chained else "y"])]
    if chained:
        nodes += [helper.make_node("Abs", ["m"], ["n"]), helper.make_node("Relu", ["n"], ["y"])]
    inputs = {"a": a} if constant else {"a": a, "b": b}
    want = product(a, b)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, want.shape)],
        [numpy_helper.from_array(b, "b")] if constant else [],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()
    core = dovetail.Core()
    with core.compile_model(core.read_model(made, "onnx"), "ONEDNN", {"FALLBACK": False}) as compiled:
        got = compiled(inputs)["y"]
    peer = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, inputs)[0]
    np.testing.assert_allclose(got, np.abs(want) if chained else want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got, peer, rtol=1e-4, atol=1e-4)
