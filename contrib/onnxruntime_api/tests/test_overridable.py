"""Initializers that are listed as inputs: sessions name them, and a run may give others. Compared with onnxruntime."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail_onnxruntime


@pytest.fixture(scope="module")
def model() -> bytes:
    """x * scale + shift; the scale is listed as an input."""
    nodes = [helper.make_node("Mul", ["x", "scale"], ["m"]), helper.make_node("Add", ["m", "shift"], ["y"])]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3]),
        helper.make_tensor_value_info("scale", TensorProto.FLOAT, [3]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])]
    values = [
        numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("scale", [1.0, 2.0, 3.0]), ("shift", [0.5, 0.25, 0.0]))
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, values)
    proto: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = proto.SerializeToString()
    return content


def test_a_run_may_give_others(model: bytes) -> None:
    ours, theirs = dovetail_onnxruntime.InferenceSession(model), onnxruntime.InferenceSession(model)
    described = [[(arg.name, arg.type, arg.shape) for arg in s.get_overridable_initializers()] for s in (ours, theirs)]
    assert described == [[("scale", "tensor(float)", [3])]] * 2
    x, scale = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([-1, 0.5, 4], np.float32)
    for feed in ({"x": x}, {"scale": scale, "x": x}, {"x": x}, {"x": x[:1], "scale": scale * 2}):
        np.testing.assert_array_equal(ours.run(None, feed)[0], theirs.run(None, feed)[0])


def _raised(session: Any, feed: dict[str, Any]) -> str:
    """The name of the class of the exception; empty where there is none."""
    try:
        session.run(None, feed)
    except Exception as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize(
    "feed",
    [
        {"scale": np.ones(3, np.float32)},
        {"x": np.ones((1, 3), np.float32), "shift": np.zeros(3, np.float32)},
        {"x": np.ones((1, 3), np.float32), "scale": np.ones(3)},
        {"x": np.ones((1, 3), np.float32), "scale": np.ones(4, np.float32)},
        {"x": np.ones((1, 4), np.float32)},
        {},
    ],
    ids=["missing", "unlisted", "type", "size", "shape", "nothing"],
)
def test_wrong_feeds_after_a_right_one(model: bytes, feed: dict[str, Any]) -> None:
    """Names and types that were right once are not checked again; everything else is refused by the same kind of exception."""
    ours, theirs = dovetail_onnxruntime.InferenceSession(model), onnxruntime.InferenceSession(model)
    for session in (ours, theirs):
        session.run(None, {"x": np.ones((1, 3), np.float32)})
    raised = [_raised(session, feed) for session in (ours, theirs)]
    assert raised[0] == raised[1] != ""
