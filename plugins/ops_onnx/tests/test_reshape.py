"""Reshape of what has no elements, against onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from dovetail.errors import ShapeError
from dovetail_ops_onnx.reshape import Reshape


def by_onnxruntime(x, shape):
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape), helper.make_tensor_value_info("s", 7, [len(shape)])]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))
    node = helper.make_node("Reshape", ["x", "s"], ["y"], allowzero=1)
    graph = helper.make_graph([node], "g", values, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x, "s": np.int64(shape)})[0]


@pytest.mark.parametrize("dims", [(0, 16, 32), (5, 0, 12), (0, 0, 96)])
@pytest.mark.parametrize("shape", [[0, -1, 4, 8], [-1, 0, 4], [0, 0, -1], [0, -1], [2, 0, -1, 3]])
def test_what_remains_beside_a_zero_that_is_a_size(dims, shape):
    """As PyTorch's exporter writes it for a batch of none: the zeros are left out of both sides."""
    x = np.zeros(dims, np.float32)
    rest, others = (int(np.prod([d for d in all_dims if d > 0])) for all_dims in (dims, shape))
    if rest % others:
        with pytest.raises(ShapeError, match=f"-1 would stand for {rest} / {others} elements"):
            Reshape(allowzero=True).reference(x, np.int64(shape))
    else:
        assert Reshape(allowzero=True).reference(x, np.int64(shape)).shape == by_onnxruntime(x, shape).shape


def test_elements_do_not_vanish():
    with pytest.raises(ShapeError, match="it has 24 elements, the shape has 0"):
        Reshape(allowzero=True).reference(np.zeros((2, 3, 4), np.float32), np.int64([0, -1, 4]))
