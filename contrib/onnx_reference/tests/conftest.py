"""A fixture: models of one node as files."""

from collections.abc import Callable
from typing import Any

import pytest
from numpy.typing import NDArray
from onnx import helper

Build = Callable[..., bytes]


@pytest.fixture
def model() -> Build:
    """`model(op_type, arrays, outputs, domain="", version=1, **attributes)`: an ONNX file of one node."""

    def build(
        op_type: str,
        arrays: list[NDArray[Any]],
        outputs: list[int],
        domain: str = "",
        version: int = 1,
        **attributes: Any,
    ) -> bytes:
        names = [f"x{i}" for i in range(len(arrays))]
        node = helper.make_node(op_type, names, [f"y{i}" for i in range(len(outputs))], domain=domain, **attributes)
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(names, arrays, strict=True)
        ]
        results = [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(outputs)]
        opsets = [helper.make_opsetid("", 20), *([helper.make_opsetid(domain, version)] if domain else [])]
        graph = helper.make_graph([node], "graph", inputs, results)
        content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
        return content

    return build
