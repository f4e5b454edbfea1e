"""Shared by the passes on quantized values: constant quantizations, and whether operators take stored numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.errors import OperatorError
from dovetail.graph import AbstractOperator, DType, Graph, Node, TensorType
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.quantized import Scaling

__all__ = ["STORED", "is_move", "scaling_of", "takes"]

STORED = frozenset({DType.INT8, DType.UINT8})
"""The stored types that are fused."""

_SPLITS, _MOVES = ("Split", "Split_2", "Split_13"), ("Expand", "Gather", "MaxPool", "Slice", "Slice_1", "Tile", "Transpose")
"""Besides views and sampling of the nearest element: each element of a result is one of input 0, or the largest of several."""


def scaling_of(node: Node, graph: Graph) -> Scaling | None:
    """The constant parameters of a node that quantizes or dequantizes; None for blocks, unusual scales and other kinds."""
    assert isinstance(node.op, DequantizeLinear | QuantizeLinear)
    if node.op.block_size or node.post_ops or any(n not in graph.constants for n in node.inputs[1:] if n):
        return None
    scale = graph.constants[node.inputs[1]]
    given = node.inputs[2] if len(node.inputs) > 2 else ""
    stored = node.inputs[0] if isinstance(node.op, DequantizeLinear) else node.writes[0]
    dtype = graph.types[stored].dtype
    zero = graph.constants[given] if given else np.zeros(scale.shape, dtype.numpy)
    found = Scaling(scale, zero, node.op.axis)
    return found if scale.dtype == np.float32 and dtype.is_integer and found.is_usual else None


def takes(op: AbstractOperator, inputs: Sequence[TensorType | None]) -> bool:
    """Whether the operator is defined for these types: older versions of some are for floats only."""
    try:
        op.check(inputs, 1)
    except OperatorError:
        return False
    return True


def is_move(op: AbstractOperator) -> bool:
    """Whether each element of the results is one of input 0 (of Concat: of any input), or the largest of several."""
    if is_one(op, "Resize", "Resize_10", "Upsample"):
        resize: Any = op
        return bool(resize.sampling.mode == "nearest" and resize.sampling.coordinate != "tf_crop_and_resize")
    return op.is_view or is_one(op, *_MOVES, *_SPLITS, "Concat", "DepthToSpace", "SpaceToDepth")
