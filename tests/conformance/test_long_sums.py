"""Sums of very many float32 numbers, where a device adds them up in two levels: they are off by less than 1e-6."""

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
    "global": ("GlobalAveragePool", (1, 3, 255, 301), {}, (2, 3), np.mean),
    "three_axes": ("GlobalAveragePool", (1, 2, 31, 40, 65), {}, (2, 3, 4), np.mean),
}
DIRECT = {"NUMPY": ("outer",), "ONEDNN": ("outer", "sum", "window")}
"""By type of device: what it adds up in one level, or does not run at all."""


@pytest.mark.parametrize("relu", [False, True], ids=["alone", "relu"])
def test_against_float64(core: dovetail.Core, device: str, relu: bool) -> None:
    cases = {name: case for name, case in CASES.items() if name not in DIRECT.get(device.split(".")[0], ())}
    for name, (op_type, shape, attributes, axes, compute) in cases.items():
        nodes = [helper.make_node(op_type, ["x"], ["m"], **attributes), helper.make_node("Relu", ["m"], ["y"])]
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("x", shape), ("y" if relu else "m", None))]
        graph = helper.make_graph(nodes[: 1 + relu], "g", infos[:1], infos[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        compiled = core.compile_model(core.read_model(model), device, {"FALLBACK": False})
        x = np.random.default_rng(3).random(shape, np.float32) + 0.5
        wanted = compute(x.astype(np.float64), axes, keepdims=True)
        np.testing.assert_allclose(compiled([x])[0], wanted, rtol=1e-6, err_msg=name)
