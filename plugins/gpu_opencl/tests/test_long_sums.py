"""Sums of very many float32 numbers: in two levels, so that they are off by less than 1e-6."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail

CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any], tuple[int, ...], Any]] = {
    "mean": ("ReduceMean", (1, 3, 255, 301), {"axes": [2, 3]}, (2, 3), np.mean),
    "outer": ("ReduceMean", (60_001, 2), {"axes": [0]}, (0,), np.mean),
    "sum": ("ReduceSum", (2, 250_007), {}, (0, 1), np.sum),
    "window": ("AveragePool", (1, 2, 255, 301), {"kernel_shape": [255, 301]}, (2, 3), np.mean),
}


@pytest.fixture(scope="module")
def core() -> dovetail.Core:
    return dovetail.Core()


@pytest.mark.parametrize("relu", [False, True], ids=["alone", "relu"])
@pytest.mark.parametrize("name", CASES)
def test_against_float64(core: dovetail.Core, name: str, relu: bool) -> None:
    op_type, shape, attributes, axes, compute = CASES[name]
    nodes = [helper.make_node(op_type, ["x"], ["m"], **attributes), helper.make_node("Relu", ["m"], ["y"])]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("x", shape), ("y" if relu else "m", None))]
    graph = helper.make_graph(nodes[: 1 + relu], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    compiled = core.compile_model(core.read_model(model), "OPENCL", {"FALLBACK": False})
    x = np.random.default_rng(3).random(shape, np.float32) + 0.5
    np.testing.assert_allclose(compiled([x])[0], compute(x.astype(np.float64), axes, keepdims=True), rtol=1e-6)
