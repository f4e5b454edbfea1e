"""A fixture: an operator run on a device and by onnxruntime."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ValueInfoProto, helper, numpy_helper

import dovetail

Array = NDArray[Any]
Agree = Callable[..., Any]


def file_of(
    op_type: str, arrays: Sequence[Array | None], outputs: int, constants: Sequence[int], domain: str, attributes: dict[str, Any]
) -> bytes:
    """An ONNX file of one node with inputs x0, x1, ... (`constants`: the indices of those that are initializers)."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for i, a in enumerate(arrays)
        if a is not None and i not in constants
    ]
    weights = [numpy_helper.from_array(a, f"x{i}") for i, a in enumerate(arrays) if a is not None and i in constants]
    results = [ValueInfoProto(name=f"y{i}") for i in range(outputs)]
    graph = helper.make_graph([node], "graph", inputs, results, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


@pytest.fixture
def agree(core: dovetail.Core) -> Agree:
    """`agree(op_type, arrays, outputs=1, constants=(), tolerance=1e-4, device="NUMPY", domain=..., **attributes)`.

    Runs the node by dovetail and by onnxruntime, compares types, shapes and values, and returns the report.
    """

    def run(
        op_type: str,
        arrays: Sequence[Array | None],
        outputs: int = 1,
        constants: Sequence[int] = (),
        tolerance: float = 1e-4,
        device: str = "NUMPY",
        domain: str = "com.microsoft",
        steps: int = 0,
        **attributes: Any,
    ) -> Any:
        file = file_of(op_type, arrays, outputs, constants, domain, attributes)
        feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in constants}
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        want = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]).run(None, feeds)
        with core.compile_model(core.read_model(file, format="onnx"), device) as compiled:
            results = compiled(feeds)
            for i, expected in enumerate(want):
                assert (results[i].dtype, results[i].shape) == (expected.dtype, expected.shape), f"output {i}"
                if expected.dtype == object:
                    assert results[i].tolist() == expected.tolist(), f"output {i}"
                elif expected.dtype.kind in "iu":
                    difference = np.abs(results[i].astype(np.int64) - expected.astype(np.int64))
                    assert difference.max(initial=0) <= steps, f"output {i}"
                else:
                    got, close = results[i].astype(np.float64), expected.astype(np.float64)
                    np.testing.assert_allclose(got, close, rtol=tolerance, atol=tolerance, err_msg=f"output {i}")
            return compiled.report()

    return run
